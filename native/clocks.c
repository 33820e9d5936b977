/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks: present, greatest, supported, locked, and why they are lower than they could be.
 */
#include "library.h"

enum { GRAPHICS, SM, MEMORY, VIDEO, CLOCK_TYPES };

static bool has_clock(const struct sim_facts *facts, unsigned type)
{
    const unsigned tops[] = {facts->max_graphics, facts->max_sm, facts->max_memory,
                             facts->max_video};
    return type < CLOCK_TYPES && tops[type] != 0;
}

static unsigned greatest(const struct sim_facts *facts, unsigned type)
{
    const unsigned tops[] = {facts->max_graphics, facts->max_sm, facts->max_memory,
                             facts->max_video};
    return tops[type];
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type,
                                           unsigned int *clock)
{
    ENTER(device, WHOLE);
    NEED(clock && type < CLOCK_TYPES, NVML_ERROR_INVALID_ARGUMENT);
    NEED(has_clock(view.facts, type), NVML_ERROR_NOT_SUPPORTED);
    *clock = card_clock(&view, type);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type,
                                              unsigned int *clock)
{
    ENTER(device, WHOLE);
    NEED(clock && type < CLOCK_TYPES, NVML_ERROR_INVALID_ARGUMENT);
    NEED(has_clock(view.facts, type), NVML_ERROR_NOT_SUPPORTED);
    *clock = greatest(view.facts, type);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, unsigned int type,
                                                       unsigned int *clock)
{
    return nvmlDeviceGetMaxClockInfo(device, type, clock);
}

static nvmlReturn_t application_clock(const struct view *view, unsigned type, unsigned graphics,
                                      unsigned memory, unsigned int *clock)
{
    NEED(clock && type < CLOCK_TYPES, NVML_ERROR_INVALID_ARGUMENT);
    NEED(!driver_at_least(595), NVML_ERROR_DEPRECATED);
    NEED(!sim_lacks(view->facts, SIM_F_APPLICATION_CLOCKS), NVML_ERROR_NOT_SUPPORTED);
    unsigned value = type == MEMORY ? memory : graphics;
    NEED(type != VIDEO && value, NVML_ERROR_NOT_SUPPORTED);
    *clock = value;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned int type,
                                                   unsigned int *clock)
{
    ENTER(device, WHOLE);
    return application_clock(&view, type, view.state.app_graphics, view.state.app_memory, clock);
}

EXPORT nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, unsigned int type,
                                                          unsigned int *clock)
{
    ENTER(device, WHOLE);
    return application_clock(&view, type, view.facts->app_graphics, view.facts->app_memory, clock);
}

EXPORT nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned int type, unsigned int id,
                                       unsigned int *clock)
{
    switch (id) {
    case 0: return nvmlDeviceGetClockInfo(device, type, clock);
    case 1: return nvmlDeviceGetApplicationsClock(device, type, clock);
    case 2: return nvmlDeviceGetDefaultApplicationsClock(device, type, clock);
    case 3: return nvmlDeviceGetMaxClockInfo(device, type, clock);
    default: return library_ready() ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t device, unsigned int type,
                                                     unsigned int state, unsigned int *low,
                                                     unsigned int *high)
{
    ENTER(device, WHOLE);
    NEED(low && high && type < CLOCK_TYPES && state < 16, NVML_ERROR_INVALID_ARGUMENT);
    NEED(has_clock(view.facts, type) && (state == 0 || state == 8), NVML_ERROR_NOT_SUPPORTED);
    *high = greatest(view.facts, type);
    *low = type == MEMORY ? *high : view.facts->clocks[0].min;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count,
                                                       unsigned int *clocks)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(SUPPORTED_CLOCKS);
    NEED_POINTER(count);
    unsigned total = 0;
    while (total < SIM_CLOCKS && view.facts->clocks[total].memory)
        total++;
    unsigned room = *count;
    *count = total;
    NEED(room >= total && clocks, total ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
    for (unsigned i = 0; i < total; i++)
        clocks[i] = view.facts->clocks[i].memory;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory,
                                                         unsigned int *count, unsigned int *clocks)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(SUPPORTED_CLOCKS);
    NEED_POINTER(count);
    const struct sim_clocks *range = NULL;
    for (unsigned i = 0; i < SIM_CLOCKS; i++)
        if (view.facts->clocks[i].memory == memory && memory)
            range = &view.facts->clocks[i];
    NEED(range, NVML_ERROR_NOT_FOUND);
    unsigned room = *count, steps = range->steps > 1 ? range->steps : 1;
    *count = steps;
    NEED(room >= steps && clocks, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < steps; i++)
        clocks[i] = range->max - (range->max - range->min) * i / (steps > 1 ? steps - 1 : 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device,
                                                           unsigned long long *reasons)
{
    ENTER(device, WHOLE);
    NEED_POINTER(reasons);
    *reasons = card_clock_reasons(&view);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                              unsigned long long *reasons)
{
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device,
                                                             unsigned long long *reasons)
{
    ENTER(device, WHOLE);
    NEED_POINTER(reasons);
    *reasons = 0x1ff;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device,
                                                                unsigned long long *reasons)
{
    return nvmlDeviceGetSupportedClocksEventReasons(device, reasons);
}

EXPORT nvmlReturn_t nvmlDeviceGetAdaptiveClockInfoStatus(nvmlDevice_t device, unsigned int *status)
{
    ENTER(device, WHOLE);
    NEED_POINTER(status);
    *status = view.facts->architecture >= 7;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAutoBoostedClocksEnabled(nvmlDevice_t device,
                                                          unsigned int *enabled,
                                                          unsigned int *by_default)
{
    (void)enabled;
    (void)by_default;
    ENTER(device, WHOLE);
    return NVML_ERROR_NOT_SUPPORTED; /* Gone since Pascal. */
}

EXPORT nvmlReturn_t nvmlDeviceGetClockOffsets(nvmlDevice_t device, nvmlClockOffset_t *offset)
{
    ENTER(device, WHOLE);
    NEED_VERSION(offset, 1);
    NEED(offset->type < CLOCK_TYPES && offset->pstate < 16, NVML_ERROR_INVALID_ARGUMENT);
    return NVML_ERROR_NOT_SUPPORTED; /* Data-centre boards refuse offsets. */
}

static nvmlReturn_t lock_range(nvmlDevice_t device, unsigned low, unsigned high, bool memory,
                               const char *function)
{
    struct view view;
    nvmlReturn_t result = view_device(device, WHOLE, function, &view);
    NEED(result == NVML_SUCCESS, result);
    NEED_FEATURE(SUPPORTED_CLOCKS);
    NEED_ADMINISTRATOR();
    NEED(low <= high, NVML_ERROR_INVALID_ARGUMENT);
    struct sim_state *state = sim_begin(view.card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    if (memory) {
        state->locked_memory_min = low;
        state->locked_memory_max = high;
    } else {
        state->locked_min = low;
        state->locked_max = high;
    }
    sim_end(view.card);
    return NVML_SUCCESS;
}

/* 0xffffff01 and 0xffffff02 stand for "at TDP" and "no limit". */
static unsigned plain_clock(unsigned clock, unsigned otherwise)
{
    return clock >= 0xffffff00u ? otherwise : clock;
}

EXPORT nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int low,
                                                 unsigned int high)
{
    return lock_range(device, plain_clock(low, 0), plain_clock(high, 0xffff), false, __func__);
}

EXPORT nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device)
{
    return lock_range(device, 0, 0, false, __func__);
}

EXPORT nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned int low,
                                                    unsigned int high)
{
    return lock_range(device, plain_clock(low, 0), plain_clock(high, 0xffff), true, __func__);
}

EXPORT nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device)
{
    return lock_range(device, 0, 0, true, __func__);
}

static nvmlReturn_t application_clocks(nvmlDevice_t device, unsigned memory, unsigned graphics,
                                       const char *function)
{
    struct view view;
    nvmlReturn_t result = view_device(device, WHOLE, function, &view);
    NEED(result == NVML_SUCCESS, result);
    NEED(!driver_at_least(595), NVML_ERROR_DEPRECATED);
    NEED_FEATURE(APPLICATION_CLOCKS);
    NEED_ADMINISTRATOR();
    struct sim_state *state = sim_begin(view.card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    state->app_memory = memory ? memory : view.facts->app_memory;
    state->app_graphics = graphics ? graphics : view.facts->app_graphics;
    sim_end(view.card);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned int memory,
                                                    unsigned int graphics)
{
    NEED(memory && graphics, NVML_ERROR_INVALID_ARGUMENT);
    return application_clocks(device, memory, graphics, __func__);
}

EXPORT nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device)
{
    return application_clocks(device, 0, 0, __func__);
}
