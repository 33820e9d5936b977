/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Initialisation, which cards are visible, and what a handle stands for.
 *
 * The list of cards is made at the first nvmlInit and stays until the last nvmlShutdown, as with
 * the real library: what is plugged in between is seen after the next initialisation.
 */
#define _GNU_SOURCE
#include "library.h"

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct nvmlDevice_st { char place; };
struct nvmlGpuInstance_st { char place; };
struct nvmlComputeInstance_st { char place; };

/* A handle is an address in these tables: nothing to allocate, and garbage is recognised. */
static struct nvmlDevice_st card_handles[SIM_CARDS];
static struct nvmlDevice_st mig_handles[SIM_CARDS * SIM_INSTANCES * SIM_COMPUTE];
static struct nvmlGpuInstance_st gi_handles[SIM_CARDS * SIM_INSTANCES];
static struct nvmlComputeInstance_st ci_handles[SIM_CARDS * SIM_INSTANCES * SIM_COMPUTE];

static pthread_mutex_t initialising = PTHREAD_MUTEX_INITIALIZER;
static unsigned references;
static unsigned visible[SIM_CARDS], visible_total;

bool library_ready(void) { return __atomic_load_n(&references, __ATOMIC_ACQUIRE) > 0; }

bool driver_at_least(unsigned major)
{
    return strtoul(sim_host->driver_version, NULL, 10) >= major;
}

nvmlDevice_t handle_of_card(unsigned card) { return &card_handles[card]; }
nvmlDevice_t handle_of_mig(unsigned card, unsigned gi, unsigned ci)
{
    return &mig_handles[(card * SIM_INSTANCES + gi) * SIM_COMPUTE + ci];
}
nvmlGpuInstance_t handle_of_gpu_instance(unsigned card, unsigned gi)
{
    return &gi_handles[card * SIM_INSTANCES + gi];
}
nvmlComputeInstance_t handle_of_compute_instance(unsigned card, unsigned gi, unsigned ci)
{
    return &ci_handles[(card * SIM_INSTANCES + gi) * SIM_COMPUTE + ci];
}

unsigned visible_count(void) { return visible_total; }
unsigned visible_card(unsigned index) { return visible[index]; }
unsigned visible_index(unsigned card)
{
    for (unsigned i = 0; i < visible_total; i++)
        if (visible[i] == card)
            return i;
    return SIM_ANY;
}

bool is_administrator(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    memset(sets, 0, sizeof sets);
    if (syscall(SYS_capget, &header, sets) != 0)
        return false;
    return sets[0].effective >> CAP_SYS_ADMIN & 1;
}

static int by_bus(const void *left, const void *right)
{
    const struct sim_facts *a = &sim_host->cards[*(const unsigned *)left].facts;
    const struct sim_facts *b = &sim_host->cards[*(const unsigned *)right].facts;
    if (a->domain != b->domain)
        return a->domain < b->domain ? -1 : 1;
    if (a->bus != b->bus)
        return a->bus < b->bus ? -1 : 1;
    return a->device < b->device ? -1 : a->device > b->device;
}

static void look_for_cards(void)
{
    char node[32];
    visible_total = 0;
    for (unsigned card = 0; card < sim_host->card_count && card < SIM_CARDS; card++) {
        struct sim_state state;
        sim_read(card, &state);
        snprintf(node, sizeof node, "nvidia%u", sim_host->cards[card].facts.minor);
        if (!state.excluded && sim_node_error(node) == 0)
            visible[visible_total++] = card;
    }
    qsort(visible, visible_total, sizeof *visible, by_bus);
}

static nvmlReturn_t attach(void)
{
    int control = sim_node_error("nvidiactl");
    if (control == EPERM || control == EACCES)
        return NVML_ERROR_UNKNOWN; /* What a process sees that lost its device cgroup. */
    if (control != 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    int opened = sim_open(sim_default_folder());
    if (opened != SIM_OK)
        return (nvmlReturn_t)opened;
    if (sim_host->init_code)
        return sim_host->init_code;
    if (is_administrator())
        capability_repair();
    look_for_cards();
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    nvmlReturn_t result = NVML_SUCCESS;
    (void)flags;
    pthread_mutex_lock(&initialising);
    if (references == 0)
        result = attach();
    if (result == NVML_SUCCESS)
        __atomic_add_fetch(&references, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&initialising);
    return result;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&initialising);
    if (references == 0)
        result = NVML_ERROR_UNINITIALIZED;
    else
        __atomic_sub_fetch(&references, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&initialising);
    return result;
}

/* The place of a handle in a table, or -1: compares addresses only. */
static long place_in(const void *handle, const void *table, size_t entries)
{
    uintptr_t at = (uintptr_t)handle, from = (uintptr_t)table;
    return at >= from && at < from + entries ? (long)(at - from) : -1;
}

static bool locate(nvmlDevice_t handle, struct view *view)
{
    long place = place_in(handle, card_handles, sizeof card_handles);
    view->gpu_instance = view->compute_instance = SIM_ANY;
    if (place >= 0) {
        view->card = (unsigned)place;
        return true;
    }
    place = place_in(handle, mig_handles, sizeof mig_handles);
    if (place < 0)
        return false;
    view->compute_instance = (uint32_t)place % SIM_COMPUTE;
    view->gpu_instance = (uint32_t)place / SIM_COMPUTE % SIM_INSTANCES;
    view->card = (unsigned)place / SIM_COMPUTE / SIM_INSTANCES;
    return true;
}

static nvmlReturn_t look(struct view *view, const char *function)
{
    NEED(view->card < sim_host->card_count, NVML_ERROR_INVALID_ARGUMENT);
    view->facts = &sim_host->cards[view->card].facts;
    return (nvmlReturn_t)sim_faults(view->card, function, &view->state);
}

nvmlReturn_t view_device(nvmlDevice_t handle, unsigned kinds, const char *function,
                         struct view *view)
{
    ENTER_LIBRARY();
    NEED(locate(handle, view), NVML_ERROR_INVALID_ARGUMENT);
    nvmlReturn_t result = look(view, function);
    if (result != NVML_SUCCESS)
        return result;
    if (view->gpu_instance == SIM_ANY)
        return kinds & WHOLE ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    const struct sim_instance *instance = &view->state.instances[view->gpu_instance];
    if (!instance->present || !instance->compute[view->compute_instance].present)
        return NVML_ERROR_NOT_FOUND;
    return kinds & MIG ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t view_gpu_instance(nvmlGpuInstance_t handle, const char *function, struct view *view)
{
    ENTER_LIBRARY();
    long place = place_in(handle, gi_handles, sizeof gi_handles);
    NEED(place >= 0, NVML_ERROR_INVALID_ARGUMENT);
    view->card = (unsigned)place / SIM_INSTANCES;
    view->gpu_instance = (uint32_t)place % SIM_INSTANCES;
    view->compute_instance = SIM_ANY;
    nvmlReturn_t result = look(view, function);
    if (result == NVML_SUCCESS && !view->state.instances[view->gpu_instance].present)
        return NVML_ERROR_NOT_FOUND;
    return result;
}

nvmlReturn_t view_compute_instance(nvmlComputeInstance_t handle, const char *function,
                                   struct view *view)
{
    ENTER_LIBRARY();
    long place = place_in(handle, ci_handles, sizeof ci_handles);
    NEED(place >= 0, NVML_ERROR_INVALID_ARGUMENT);
    view->card = (unsigned)place / SIM_COMPUTE / SIM_INSTANCES;
    view->gpu_instance = (uint32_t)place / SIM_COMPUTE % SIM_INSTANCES;
    view->compute_instance = (uint32_t)place % SIM_COMPUTE;
    nvmlReturn_t result = look(view, function);
    if (result != NVML_SUCCESS)
        return result;
    const struct sim_instance *instance = &view->state.instances[view->gpu_instance];
    if (!instance->present || !instance->compute[view->compute_instance].present)
        return NVML_ERROR_NOT_FOUND;
    return NVML_SUCCESS;
}

nvmlReturn_t put_string(char *to, unsigned int length, const char *from)
{
    NEED_POINTER(to);
    NEED(strlen(from) < length, NVML_ERROR_INSUFFICIENT_SIZE);
    memcpy(to, from, strlen(from) + 1);
    return NVML_SUCCESS;
}
