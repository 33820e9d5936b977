/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmlDeviceGetFieldValues: values by number, each with its own return code.
 */
#include "library.h"

struct value {
    unsigned type;
    uint64_t number; /* Signed values are stored as their two's complement. */
};

static nvmlReturn_t number(struct value *value, uint64_t n)
{
    value->type = NVML_ULLONG;
    value->number = n;
    return NVML_SUCCESS;
}

static nvmlReturn_t small(struct value *value, unsigned n)
{
    value->type = NVML_UINT;
    value->number = n;
    return NVML_SUCCESS;
}

static nvmlReturn_t ecc_field(const struct view *view, unsigned field, struct value *value)
{
    /* 7..17 volatile, 18..28 aggregate: pairs of corrected and uncorrected, the CBU alone. */
    static const unsigned char locations[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 6};
    NEED(!sim_lacks(view->facts, SIM_F_ECC), NVML_ERROR_NOT_SUPPORTED);
    if (field <= 2)
        return small(value, field == 1 ? view->state.ecc_current : view->state.ecc_pending);
    NEED(view->state.ecc_current, NVML_ERROR_NOT_SUPPORTED);
    if (field <= 6)
        return number(value, ecc_total(view, (field - 3) & 1, (field - 3) / 2));
    unsigned counter = field >= 18, place = field - (counter ? 18 : 7);
    unsigned error = place == 10 ? 1 : place & 1;
    return number(value, view->state.ecc[error][counter][locations[place]]);
}

static nvmlReturn_t retired_field(const struct view *view, unsigned field, struct value *value)
{
    NEED(!sim_lacks(view->facts, SIM_F_RETIRED_PAGES), NVML_ERROR_NOT_SUPPORTED);
    switch (field) {
    case 29: return small(value, view->state.retired_single);
    case 30: return small(value, view->state.retired_double);
    default: return small(value, view->state.retired_pending);
    }
}

static nvmlReturn_t remap_field(const struct view *view, unsigned field, struct value *value)
{
    const unsigned values[] = {view->state.remap_correctable, view->state.remap_uncorrectable,
                               view->state.remap_pending, view->state.remap_failure};
    NEED(!sim_lacks(view->facts, SIM_F_REMAPPED_ROWS), NVML_ERROR_NOT_SUPPORTED);
    return small(value, field <= 145 ? values[field - 142] : 0);
}

/* Error counters: scope is the link, or all ones for the sum over links. */
static nvmlReturn_t link_errors(const struct view *view, unsigned scope, unsigned counter,
                                struct value *value)
{
    uint64_t sum = 0;
    NEED(scope == SIM_ANY || scope < view->facts->nvlink_count, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned link = 0; link < view->facts->nvlink_count; link++)
        if (scope == SIM_ANY || scope == link)
            sum += view->state.nvlink_errors[link][counter];
    return number(value, sum);
}

/* The per-link fields of the first twelve links lie in two runs of numbers. */
static bool link_run(unsigned field, unsigned first, unsigned later, unsigned *link)
{
    if (field >= first && field < first + 6)
        *link = field - first;
    else if (later && field >= later && field < later + 6)
        *link = field - later + 6;
    else
        return false;
    return true;
}

static nvmlReturn_t link_counter_field(const struct view *view, unsigned field,
                                       struct value *value)
{
    static const struct { unsigned first, later, total, counter; } runs[] = {
        {32, 96, 38, 2}, {39, 102, 45, 3}, {46, 108, 52, 0}, {53, 114, 59, 1}, {148, 154, 160, 4}};
    unsigned link;
    for (unsigned i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (field == runs[i].total)
            return link_errors(view, SIM_ANY, runs[i].counter, value);
        if (link_run(field, runs[i].first, runs[i].later, &link))
            return link < view->facts->nvlink_count
                       ? link_errors(view, link, runs[i].counter, value)
                       : NVML_ERROR_NOT_SUPPORTED;
    }
    if (field == 90 || link_run(field, 84, 132, &link))
        return small(value, view->facts->nvlink_mbps);
    return NVML_ERROR_NOT_SUPPORTED;
}

static unsigned switch_links(const struct sim_facts *facts)
{
    unsigned count = 0;
    for (unsigned link = 0; link < facts->nvlink_count; link++)
        count += facts->links[link].type == 2;
    return count;
}

static nvmlReturn_t nvlink_field(const struct view *view, unsigned field, unsigned scope,
                                 struct value *value)
{
    NEED(view->facts->nvlink_count, NVML_ERROR_NOT_SUPPORTED);
    bool known = scope < view->facts->nvlink_count;
    switch (field) {
    case 91: return small(value, view->facts->nvlink_count);
    case 138: case 140: return number(value, view->state.nvlink_tx_kib);
    case 139: case 141: return number(value, view->state.nvlink_rx_kib);
    case 146: return known ? small(value, view->facts->links[scope].remote_link)
                           : NVML_ERROR_INVALID_ARGUMENT;
    case 147: return small(value, switch_links(view->facts));
    case 161: return link_errors(view, scope, 0, value);
    case 162: return link_errors(view, scope, 1, value);
    case 163: return link_errors(view, scope, 2, value);
    case 164: return small(value, view->facts->nvlink_mbps);
    case 165: return known ? small(value, !(view->state.nvlink_down >> scope & 1))
                           : NVML_ERROR_INVALID_ARGUMENT;
    case 166: return small(value, view->facts->nvlink_version);
    default: return link_counter_field(view, field, value);
    }
}

static nvmlReturn_t power_field(const struct view *view, unsigned field, unsigned scope,
                                struct value *value)
{
    const struct sim_facts *facts = view->facts;
    NEED(scope < 4, NVML_ERROR_INVALID_ARGUMENT);
    NEED(scope == 0, NVML_ERROR_NOT_SUPPORTED); /* Module and memory are not metered apart. */
    bool limits = !sim_lacks(facts, SIM_F_POWER_LIMIT);
    bool draws = !sim_lacks(facts, SIM_F_POWER_USAGE);
    NEED(field <= 186 ? draws : limits, NVML_ERROR_NOT_SUPPORTED);
    switch (field) {
    case 185: NEED(!sim_lacks(facts, SIM_F_AVERAGE_POWER), NVML_ERROR_NOT_SUPPORTED);
              return small(value, card_power_mw(view));
    case 186: return small(value, card_power_mw(view));
    case 187: return small(value, facts->power_min_mw);
    case 188: return small(value, facts->power_max_mw);
    case 189: return small(value, facts->power_default_mw);
    default: return small(value, view->state.power_limit_mw); /* 190 current, 192 requested */
    }
}

static nvmlReturn_t margin_field(const struct view *view, unsigned field, struct value *value)
{
    const struct sim_facts *facts = view->facts;
    const int limits[] = {facts->shutdown, facts->slowdown, facts->memory_max, facts->gpu_max};
    NEED(facts->margin && limits[field - 193] != SIM_NO_LIMIT, NVML_ERROR_NOT_SUPPORTED);
    value->type = NVML_INT;
    value->number = (uint64_t)(int64_t)limits[field - 193];
    return NVML_SUCCESS;
}

static nvmlReturn_t reason_field(const struct view *view, unsigned field, struct value *value)
{
    /* Accumulated time under a limit; the simulation knows only whether it holds now. */
    uint64_t bit = field == 74 ? 0x4 : field == 269 ? 0x20 : field == 270 ? 0x40 : 0x80;
    return number(value, card_clock_reasons(view) & bit ? sim_now_ns() - sim_host->boot_ns : 0);
}

static nvmlReturn_t other_field(const struct view *view, unsigned field, struct value *value)
{
    const struct sim_facts *facts = view->facts;
    switch (field) {
    case 74: case 269: case 270: case 271: return reason_field(view, field, value);
    case 75: case 76: case 77: case 78: case 79: case 80: case 81: return number(value, 0);
    case 82: NEED(!sim_lacks(facts, SIM_F_MEMORY_TEMPERATURE), NVML_ERROR_NOT_SUPPORTED);
             return small(value, (unsigned)card_memory_temperature(view));
    case 83: case 191: NEED(!sim_lacks(facts, SIM_F_ENERGY), NVML_ERROR_NOT_SUPPORTED);
             return number(value, card_energy_mj(view));
    case 94: return small(value, view->state.pcie_replays);
    case 95: case 169: return small(value, 0);
    case 170: return small(value, facts->c2c);
    case 184: return small(value, facts->mig_resetless);
    case 197: return number(value, (uint64_t)view->state.pcie_tx_kib * 1024);
    case 198: return number(value, (uint64_t)view->state.pcie_rx_kib * 1024);
    case 199: return small(value, facts->mig_slices != 0);
    case 226: case 227: NEED(!sim_lacks(facts, SIM_F_RECOVERY), NVML_ERROR_NOT_SUPPORTED);
             return small(value, field == 226 ? view->state.needs_reset
                                              : view->state.recovery_action == 4);
    case 230: NEED(!sim_lacks(facts, SIM_F_RECOVERY), NVML_ERROR_NOT_SUPPORTED);
             return small(value, view->state.recovery_action);
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

static nvmlReturn_t field_value(const struct view *view, unsigned field, unsigned scope,
                                struct value *value)
{
    if (field == 0 || field >= 308)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (field <= 28)
        return ecc_field(view, field, value);
    if (field <= 31 || field == 92 || field == 93)
        return retired_field(view, field, value);
    if ((field >= 142 && field <= 145) || field == 301 || field == 302)
        return remap_field(view, field, value);
    if (field >= 185 && field <= 192 && field != 191)
        return power_field(view, field, scope, value);
    if (field >= 193 && field <= 196)
        return margin_field(view, field, value);
    if (field >= 173 && field <= 183)
        return small(value, 0); /* PCIe error counters */
    bool link = (field >= 32 && field <= 73) || (field >= 84 && field <= 91) ||
                (field >= 96 && field <= 141) || (field >= 146 && field <= 168) ||
                (field >= 201 && field <= 222);
    return link ? nvlink_field(view, field, scope, value) : other_field(view, field, value);
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                             nvmlFieldValue_t *values)
{
    ENTER(device, WHOLE);
    NEED(values && count > 0, NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++) {
        struct value value = {NVML_ULLONG, 0};
        values[i].timestamp = (long long)sim_time_us();
        values[i].latencyUsec = 0;
        values[i].nvmlReturn = field_value(&view, values[i].fieldId, values[i].scopeId, &value);
        values[i].valueType = value.type;
        values[i].value.ullVal = value.number;
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceClearFieldValues(nvmlDevice_t device, int count,
                                               nvmlFieldValue_t *values)
{
    ENTER(device, WHOLE);
    NEED(values && count > 0, NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++)
        values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

static unsigned sampled(const struct view *view, unsigned type)
{
    switch (type) {
    case 0: return card_power_mw(view);
    case 5: return card_clock(view, 1);
    case 6: return card_clock(view, 2);
    default: return card_utilization(view, type <= 4 ? type - 1 : type - 4);
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int type,
                                         unsigned long long last_seen, unsigned int *value_type,
                                         unsigned int *count, nvmlSample_t *samples)
{
    ENTER(device, WHOLE);
    NEED(value_type && count && type < 10, NVML_ERROR_INVALID_ARGUMENT);
    NEED(type != 7 && !sim_lacks(view.facts, SIM_F_UTILIZATION), NVML_ERROR_NOT_SUPPORTED);
    NEED(!view.state.mig_current, NVML_ERROR_NOT_SUPPORTED);
    uint64_t now = sim_time_us();
    unsigned room = *count;
    *value_type = NVML_UINT;
    *count = 1;
    NEED(now > last_seen, NVML_ERROR_NOT_FOUND);
    if (!samples)
        return NVML_SUCCESS;
    NEED(room >= 1, NVML_ERROR_INSUFFICIENT_SIZE);
    samples[0].timeStamp = now;
    samples[0].sampleValue.ullVal = sampled(&view, type);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned int policy,
                                                 nvmlViolationTime_t *time)
{
    ENTER(device, WHOLE);
    NEED(time && policy < 12, NVML_ERROR_INVALID_ARGUMENT);
    uint64_t bit = policy == 0 ? 0x4 : policy == 1 ? 0x60 : 0;
    time->referenceTime = sim_time_us();
    time->violationTime = card_clock_reasons(&view) & bit ? sim_now_ns() - sim_host->boot_ns : 0;
    return NVML_SUCCESS;
}
