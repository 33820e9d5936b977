/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changes by itself: temperature, power, utilisation, clocks, fans, performance state.
 */
#include "library.h"

#include <string.h>

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor,
                                             unsigned int *temperature)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(TEMPERATURE);
    NEED(temperature && sensor == 0, NVML_ERROR_INVALID_ARGUMENT);
    *temperature = (unsigned)card_temperature(&view);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(TEMPERATURE);
    NEED_VERSION(temperature, 1);
    NEED(temperature->sensorType == 0, NVML_ERROR_INVALID_ARGUMENT);
    temperature->temperature = card_temperature(&view);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device,
                                                   nvmlMarginTemperature_t *margin)
{
    ENTER(device, WHOLE);
    NEED_VERSION(margin, 1);
    NEED(view.facts->margin, NVML_ERROR_NOT_SUPPORTED);
    margin->value = view.facts->margin - card_temperature(&view);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int threshold,
                                                      unsigned int *temperature)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(TEMPERATURE);
    NEED(temperature && threshold < 8, NVML_ERROR_INVALID_ARGUMENT);
    const int limits[] = {view.facts->shutdown, view.facts->slowdown, view.facts->memory_max,
                          view.facts->gpu_max};
    NEED(threshold < 4 && limits[threshold] != SIM_NO_LIMIT, NVML_ERROR_NOT_SUPPORTED);
    int limit = limits[threshold];
    *temperature = (unsigned)(view.facts->margin ? view.facts->margin - limit : limit);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetThermalSettings(nvmlDevice_t device, unsigned int index,
                                                 nvmlGpuThermalSettings_t *settings)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(TEMPERATURE);
    NEED(settings && (index == 0 || index == 15), NVML_ERROR_INVALID_ARGUMENT);
    memset(settings, 0, sizeof *settings);
    settings->count = 1;
    settings->sensor[0].controller = 1; /* GPU internal */
    settings->sensor[0].max = 127;
    settings->sensor[0].current = card_temperature(&view);
    settings->sensor[0].target = 1; /* GPU */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(POWER_USAGE);
    NEED_POINTER(milliwatts);
    *milliwatts = card_power_mw(&view);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device,
                                                        unsigned long long *millijoules)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(ENERGY);
    NEED_POINTER(millijoules);
    *millijoules = card_energy_mj(&view);
    return NVML_SUCCESS;
}

static nvmlReturn_t give_limit(const struct view *view, unsigned int *to, unsigned value)
{
    NEED(!sim_lacks(view->facts, SIM_F_POWER_LIMIT), NVML_ERROR_NOT_SUPPORTED);
    NEED_POINTER(to);
    *to = value;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit)
{
    ENTER(device, WHOLE);
    return give_limit(&view, limit, view.state.power_limit_mw);
}

EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit)
{
    ENTER(device, WHOLE);
    return give_limit(&view, limit, view.state.power_limit_mw);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device,
                                                             unsigned int *limit)
{
    ENTER(device, WHOLE);
    return give_limit(&view, limit, view.facts->power_default_mw);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device,
                                                                 unsigned int *low,
                                                                 unsigned int *high)
{
    ENTER(device, WHOLE);
    NEED(low && high, NVML_ERROR_INVALID_ARGUMENT);
    *high = view.facts->power_max_mw;
    return give_limit(&view, low, view.facts->power_min_mw);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, unsigned int *mode)
{
    ENTER(device, WHOLE);
    return give_limit(&view, mode, 1);
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned int *state)
{
    ENTER(device, WHOLE);
    NEED_POINTER(state);
    *state = card_pstate(&view);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, unsigned int *state)
{
    return nvmlDeviceGetPerformanceState(device, state);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t device,
                                                            unsigned int *states,
                                                            unsigned int size)
{
    ENTER(device, WHOLE);
    NEED(states && size >= sizeof *states, NVML_ERROR_INVALID_ARGUMENT);
    unsigned room = size / (unsigned)sizeof *states, used = 0;
    states[used++] = 0;
    if (view.facts->idle_memory && view.facts->idle_memory != view.facts->max_memory &&
        used < room)
        states[used++] = 8;
    while (used < room)
        states[used++] = 32; /* NVML_PSTATE_UNKNOWN fills the rest. */
    return NVML_SUCCESS;
}

static nvmlReturn_t utilization(const struct view *view, unsigned engine, unsigned int *percent)
{
    NEED(!sim_lacks(view->facts, SIM_F_UTILIZATION), NVML_ERROR_NOT_SUPPORTED);
    NEED(!view->state.mig_current, NVML_ERROR_NOT_SUPPORTED);
    NEED_POINTER(percent);
    *percent = card_utilization(view, engine);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    ENTER(device, WHOLE);
    NEED_POINTER(rates);
    nvmlReturn_t result = utilization(&view, 0, &rates->gpu);
    return result == NVML_SUCCESS ? utilization(&view, 1, &rates->memory) : result;
}

#define ENGINE(function, engine)                                                                   \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *percent, unsigned int *period) \
    {                                                                                              \
        ENTER(device, WHOLE);                                                                      \
        NEED_POINTER(period);                                                                      \
        *period = 167000; /* microseconds, as captures show */                                     \
        return utilization(&view, engine, percent);                                                \
    }

ENGINE(nvmlDeviceGetEncoderUtilization, 2)
ENGINE(nvmlDeviceGetDecoderUtilization, 3)
ENGINE(nvmlDeviceGetJpgUtilization, 4)
ENGINE(nvmlDeviceGetOfaUtilization, 5)

EXPORT nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device,
                                                    nvmlGpuDynamicPstatesInfo_t *info)
{
    unsigned gpu, memory;
    ENTER(device, WHOLE);
    NEED_POINTER(info);
    nvmlReturn_t result = utilization(&view, 0, &gpu);
    if (result == NVML_SUCCESS)
        result = utilization(&view, 1, &memory);
    if (result != NVML_SUCCESS)
        return result;
    memset(info, 0, sizeof *info);
    info->utilization[0].present = info->utilization[1].present = 1;
    info->utilization[0].percentage = gpu;
    info->utilization[1].percentage = memory;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderCapacity(nvmlDevice_t device, unsigned int type,
                                                 unsigned int *capacity)
{
    ENTER(device, WHOLE);
    NEED(capacity && type < 3, NVML_ERROR_INVALID_ARGUMENT);
    *capacity = 100 - card_utilization(&view, 2);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessions,
                                              unsigned int *fps, unsigned int *latency)
{
    ENTER(device, WHOLE);
    NEED(sessions && fps && latency, NVML_ERROR_INVALID_ARGUMENT);
    *sessions = *fps = *latency = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, unsigned int *stats)
{
    ENTER(device, WHOLE);
    NEED_POINTER(stats);
    stats[0] = stats[1] = stats[2] = 0; /* sessions, average fps, average latency */
    return NVML_SUCCESS;
}

static nvmlReturn_t no_sessions(nvmlDevice_t device, unsigned int *count, const char *function)
{
    struct view view;
    nvmlReturn_t result = view_device(device, WHOLE, function, &view);
    NEED(result == NVML_SUCCESS, result);
    NEED_POINTER(count);
    *count = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *count,
                                                 void *sessions)
{
    (void)sessions;
    return no_sessions(device, count, __func__);
}

EXPORT nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *count,
                                             void *sessions)
{
    (void)sessions;
    return no_sessions(device, count, __func__);
}

EXPORT nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *count)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(FAN);
    NEED_POINTER(count);
    *count = view.facts->fans;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan,
                                             unsigned int *percent)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(FAN);
    NEED(percent && fan < view.facts->fans, NVML_ERROR_INVALID_ARGUMENT);
    *percent = view.state.fan_percent != SIM_ANY ? view.state.fan_percent
                                                 : 30 + card_utilization(&view, 0) / 2;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent)
{
    return nvmlDeviceGetFanSpeed_v2(device, 0, percent);
}

EXPORT nvmlReturn_t nvmlDeviceGetTargetFanSpeed(nvmlDevice_t device, unsigned int fan,
                                                unsigned int *percent)
{
    return nvmlDeviceGetFanSpeed_v2(device, fan, percent);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinMaxFanSpeed(nvmlDevice_t device, unsigned int *low,
                                                unsigned int *high)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(FAN);
    NEED(low && high, NVML_ERROR_INVALID_ARGUMENT);
    *low = 30;
    *high = 100;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetFanControlPolicy_v2(nvmlDevice_t device, unsigned int fan,
                                                     unsigned int *policy)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(FAN);
    NEED(policy && fan < view.facts->fans, NVML_ERROR_INVALID_ARGUMENT);
    *policy = view.state.fan_percent != SIM_ANY;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t device, unsigned int *source)
{
    ENTER(device, WHOLE);
    NEED_POINTER(source);
    *source = 0; /* NVML_POWER_SOURCE_AC */
    return NVML_SUCCESS;
}
