/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the maker's tool does past NVML, for nvidia-smi alone: names of unreachable cards, resets,
 * time slices. Programs of others never call these.
 */
#include "library.h"

nvmlReturn_t simBusId(unsigned int index, char *to, unsigned int size);
nvmlReturn_t simReset(nvmlDevice_t device);
nvmlReturn_t simGetTimeslice(nvmlDevice_t device, unsigned int *slice);
nvmlReturn_t simSetTimeslice(nvmlDevice_t device, unsigned int slice);

EXPORT nvmlReturn_t simBusId(unsigned int index, char *to, unsigned int size)
{
    ENTER_LIBRARY();
    NEED(to && size && index < visible_count(), NVML_ERROR_INVALID_ARGUMENT);
    format_bus_id(&sim_host->cards[visible_card(index)].facts, to, size);
    return NVML_SUCCESS;
}

/* A lost card has no handle that answers, so faults are looked past here. */
EXPORT nvmlReturn_t simReset(nvmlDevice_t device)
{
    ENTER_LIBRARY();
    for (unsigned i = 0; i < visible_count(); i++) {
        unsigned card = visible_card(i);
        if (handle_of_card(card) != device)
            continue;
        NEED_ADMINISTRATOR();
        NEED(!sim_busy(card, SIM_ANY, SIM_ANY), NVML_ERROR_IN_USE);
        struct sim_state *state = sim_begin(card);
        NEED(state, NVML_ERROR_NO_PERMISSION);
        int failure = sim_rule_for(state, "simReset");
        if (failure) {
            sim_abort(card);
            return (nvmlReturn_t)failure;
        }
        sim_reset(&sim_host->cards[card].facts, state);
        sim_restart_energy(card);
        sim_end(card);
        sim_futex_wake(&sim_host->cards[card].live.knob_futex);
        capability_sync(card);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t simGetTimeslice(nvmlDevice_t device, unsigned int *slice)
{
    ENTER(device, WHOLE);
    NEED_POINTER(slice);
    *slice = view.state.timeslice;
    return NVML_SUCCESS;
}

/* 0 default, 1 short, 2 medium, 3 long. */
EXPORT nvmlReturn_t simSetTimeslice(nvmlDevice_t device, unsigned int slice)
{
    ENTER(device, WHOLE);
    NEED(slice <= 3, NVML_ERROR_INVALID_ARGUMENT);
    NEED_ADMINISTRATOR();
    NEED(!view.state.mig_current, NVML_ERROR_NOT_SUPPORTED);
    struct sim_state *state = sim_begin(view.card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    state->timeslice = slice;
    sim_end(view.card);
    return NVML_SUCCESS;
}
