/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of libnvidia-ml share: how a call gets from a handle to a card, or to a refusal.
 *
 * Every exported function begins with one of the ENTER macros: initialised? handle known? does the
 * card hang, fail or miss? may a MIG device be asked this? Then it has a `struct view` with the
 * card's facts and a private, consistent copy of its state.
 */
#ifndef SIM_LIBRARY_H
#define SIM_LIBRARY_H

#include <stddef.h>

#include "capability.h"
#include "nvml.h"
#include "state.h"

struct view {
    unsigned card;
    uint32_t gpu_instance, compute_instance; /* SIM_ANY for a whole card. */
    const struct sim_facts *facts;
    struct sim_state state;
};

enum { WHOLE = 1, MIG = 2, EITHER = 3 };

bool library_ready(void);
bool driver_at_least(unsigned major);
nvmlReturn_t view_device(nvmlDevice_t handle, unsigned kinds, const char *function,
                         struct view *view);
nvmlReturn_t view_gpu_instance(nvmlGpuInstance_t handle, const char *function, struct view *view);
nvmlReturn_t view_compute_instance(nvmlComputeInstance_t handle, const char *function,
                                   struct view *view);

nvmlDevice_t handle_of_card(unsigned card);
nvmlDevice_t handle_of_mig(unsigned card, unsigned gi, unsigned ci);
nvmlGpuInstance_t handle_of_gpu_instance(unsigned card, unsigned gi);
nvmlComputeInstance_t handle_of_compute_instance(unsigned card, unsigned gi, unsigned ci);
unsigned visible_count(void);
unsigned visible_card(unsigned index);
unsigned visible_index(unsigned card); /* SIM_ANY when hidden */

bool is_administrator(void);
nvmlReturn_t put_string(char *to, unsigned int length, const char *from);
void format_bus_id(const struct sim_facts *facts, char *to, size_t size);
void mig_profile_name(const struct view *view, char *to, size_t size);
const struct sim_profile *profile_of(const struct view *view);
const struct sim_ci_profile *ci_profile_of(const struct view *view);

/* Load: what the processes and the knobs together make of a card; engines are numbered as in
 * sim_state.utilization. */
unsigned card_utilization(const struct view *view, unsigned engine);
unsigned card_power_mw(const struct view *view);
int card_temperature(const struct view *view);
int card_memory_temperature(const struct view *view);
unsigned card_clock(const struct view *view, unsigned type);
uint64_t card_energy_mj(const struct view *view);
unsigned card_pstate(const struct view *view);
uint64_t card_clock_reasons(const struct view *view);
uint64_t ecc_total(const struct view *view, unsigned error, unsigned counter);


#define ENTER(handle, kinds)                                                                       \
    struct view view;                                                                              \
    do {                                                                                           \
        nvmlReturn_t entered = view_device(handle, kinds, __func__, &view);                        \
        if (entered != NVML_SUCCESS)                                                               \
            return entered;                                                                        \
    } while (0)

#define ENTER_INSTANCE(handle)                                                                     \
    struct view view;                                                                              \
    do {                                                                                           \
        nvmlReturn_t entered = view_gpu_instance(handle, __func__, &view);                         \
        if (entered != NVML_SUCCESS)                                                               \
            return entered;                                                                        \
    } while (0)

#define ENTER_LIBRARY()                                                                            \
    do {                                                                                           \
        if (!library_ready())                                                                      \
            return NVML_ERROR_UNINITIALIZED;                                                       \
    } while (0)

#define NEED(condition, code)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return code;                                                                           \
    } while (0)

#define NEED_POINTER(pointer) NEED((pointer) != NULL, NVML_ERROR_INVALID_ARGUMENT)
#define NEED_FEATURE(feature)                                                                      \
    NEED(!sim_lacks(view.facts, SIM_F_##feature), NVML_ERROR_NOT_SUPPORTED)
#define NEED_ADMINISTRATOR() NEED(is_administrator(), NVML_ERROR_NO_PERMISSION)
#define NEED_VERSION(pointer, number)                                                              \
    do {                                                                                           \
        NEED_POINTER(pointer);                                                                     \
        NEED((pointer)->version == NVML_STRUCT(*(pointer), number),                                \
             NVML_ERROR_ARGUMENT_VERSION_MISMATCH);                                                \
    } while (0)

#endif
