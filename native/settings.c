/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an administrator may set: persistence, compute mode, power limit, fans, and the like.
 */
#include "library.h"

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(PERSISTENCE);
    NEED_POINTER(mode);
    *mode = view.state.persistence;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned int mode)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(PERSISTENCE);
    NEED_ADMINISTRATOR();
    NEED(mode <= 1, NVML_ERROR_INVALID_ARGUMENT);
    struct sim_state *state = sim_begin(view.card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    state->persistence = mode;
    sim_end(view.card);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
    ENTER(device, EITHER);
    NEED_FEATURE(COMPUTE_MODE);
    NEED_POINTER(mode);
    *mode = view.state.compute_mode;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode)
{
    ENTER(device, EITHER);
    NEED_FEATURE(COMPUTE_MODE);
    NEED_ADMINISTRATOR();
    NEED(mode < 4, NVML_ERROR_INVALID_ARGUMENT);
    NEED(mode != 1, NVML_ERROR_NOT_SUPPORTED); /* Exclusive thread was removed. */
    struct sim_state *state = sim_begin(view.card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    state->compute_mode = mode;
    sim_end(view.card);
    return NVML_SUCCESS;
}

static nvmlReturn_t set_power_limit(const struct view *view, unsigned milliwatts)
{
    NEED(!sim_lacks(view->facts, SIM_F_POWER_LIMIT), NVML_ERROR_NOT_SUPPORTED);
    NEED_ADMINISTRATOR();
    NEED(milliwatts >= view->facts->power_min_mw && milliwatts <= view->facts->power_max_mw,
         NVML_ERROR_INVALID_ARGUMENT);
    struct sim_state *state = sim_begin(view->card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    state->power_limit_mw = milliwatts;
    sim_end(view->card);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int milliwatts)
{
    ENTER(device, WHOLE);
    return set_power_limit(&view, milliwatts);
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device,
                                                         nvmlPowerValue_v2_t *value)
{
    ENTER(device, WHOLE);
    NEED_VERSION(value, 2);
    NEED(value->powerScope < 4, NVML_ERROR_INVALID_ARGUMENT);
    NEED(value->powerScope == 0, NVML_ERROR_NOT_SUPPORTED);
    return set_power_limit(&view, value->powerValueMw);
}

static nvmlReturn_t set_fan(const struct view *view, unsigned fan, unsigned percent)
{
    NEED(!sim_lacks(view->facts, SIM_F_FAN), NVML_ERROR_NOT_SUPPORTED);
    NEED_ADMINISTRATOR();
    NEED(fan < view->facts->fans, NVML_ERROR_INVALID_ARGUMENT);
    struct sim_state *state = sim_begin(view->card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    state->fan_percent = percent;
    sim_end(view->card);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetFanSpeed_v2(nvmlDevice_t device, unsigned int fan,
                                             unsigned int percent)
{
    ENTER(device, WHOLE);
    NEED(percent <= 100, NVML_ERROR_INVALID_ARGUMENT);
    return set_fan(&view, fan, percent);
}

EXPORT nvmlReturn_t nvmlDeviceSetDefaultFanSpeed_v2(nvmlDevice_t device, unsigned int fan)
{
    ENTER(device, WHOLE);
    return set_fan(&view, fan, SIM_ANY);
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned int *mode)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(ACCOUNTING);
    NEED_POINTER(mode);
    *mode = view.state.accounting && !view.state.mig_current;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, unsigned int mode)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(ACCOUNTING);
    NEED(!view.state.mig_current, NVML_ERROR_NOT_SUPPORTED);
    NEED_ADMINISTRATOR();
    NEED(mode <= 1, NVML_ERROR_INVALID_ARGUMENT);
    struct sim_state *state = sim_begin(view.card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    state->accounting = mode;
    sim_end(view.card);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAPIRestriction(nvmlDevice_t device, unsigned int api,
                                                unsigned int *restricted)
{
    ENTER(device, WHOLE);
    NEED(restricted && api < 2, NVML_ERROR_INVALID_ARGUMENT);
    NEED(api == 0 && !sim_lacks(view.facts, SIM_F_APPLICATION_CLOCKS), NVML_ERROR_NOT_SUPPORTED);
    *restricted = 1;
    return NVML_SUCCESS;
}

static unsigned card_at(const nvmlPciInfo_t *pci)
{
    for (unsigned i = 0; i < visible_count(); i++) {
        const struct sim_facts *facts = &sim_host->cards[visible_card(i)].facts;
        if (facts->domain == pci->domain && facts->bus == pci->bus && facts->device == pci->device)
            return visible_card(i);
    }
    return SIM_ANY;
}

EXPORT nvmlReturn_t nvmlDeviceQueryDrainState(nvmlPciInfo_t *pci, unsigned int *draining)
{
    struct sim_state state;
    ENTER_LIBRARY();
    NEED(pci && draining, NVML_ERROR_INVALID_ARGUMENT);
    unsigned card = card_at(pci);
    NEED(card != SIM_ANY, NVML_ERROR_NOT_FOUND);
    sim_read(card, &state);
    *draining = state.drain;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceModifyDrainState(nvmlPciInfo_t *pci, unsigned int draining)
{
    ENTER_LIBRARY();
    NEED(pci && draining <= 1, NVML_ERROR_INVALID_ARGUMENT);
    unsigned card = card_at(pci);
    NEED(card != SIM_ANY, NVML_ERROR_NOT_FOUND);
    NEED_ADMINISTRATOR();
    struct sim_state *state = sim_begin(card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    state->drain = draining;
    sim_end(card);
    return NVML_SUCCESS;
}
