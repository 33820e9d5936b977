/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a card does now: memory, load, heat, power, clocks.
 */
#include "fields.h"

static nvmlReturn_t put_watts(struct cell *cell, nvmlReturn_t code, const u32 *milliwatts)
{
    PUT("%u.%02u", *milliwatts / 1000, *milliwatts % 1000 / 10);
    return code;
}

static nvmlReturn_t read_fan(struct cell *cell)
{
    u32 value = 0;
    return put_number(cell, nvml.nvmlDeviceGetFanSpeed(HANDLE, &value), &value);
}

static nvmlReturn_t read_pstate(struct cell *cell)
{
    u32 value = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetPerformanceState(HANDLE, &value);
    PUT("P%u", value);
    return code;
}

static nvmlReturn_t read_reasons(struct cell *cell)
{
    u64 reasons = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetCurrentClocksEventReasons(HANDLE, &reasons);
    PUT("0x%016llX", reasons);
    return code;
}

static nvmlReturn_t read_reason(struct cell *cell)
{
    u64 reasons = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetCurrentClocksEventReasons(HANDLE, &reasons);
    PUT("%s", reasons & cell->number ? "Active" : "Not Active");
    return code;
}

enum memory_part { TOTAL, RESERVED, USED, FREE };

static nvmlReturn_t read_memory(struct cell *cell)
{
    nvmlMemory_v2_t memory = {.version = NVML_STRUCT(memory, 2)};
    nvmlReturn_t code = nvml.nvmlDeviceGetMemoryInfo_v2(HANDLE, &memory);
    const u64 parts[] = {memory.total >> 20, memory.reserved >> 20, memory.used >> 20,
                         memory.free >> 20};
    return put_long(cell, code, &parts[cell->number]);
}

static nvmlReturn_t read_bar1(struct cell *cell)
{
    nvmlBAR1Memory_t memory = {0};
    nvmlReturn_t code = nvml.nvmlDeviceGetBAR1MemoryInfo(HANDLE, &memory);
    const u64 parts[] = {memory.bar1Total >> 20, memory.bar1Used >> 20, memory.bar1Free >> 20};
    return put_long(cell, code, &parts[cell->number]);
}

static nvmlReturn_t read_utilization(struct cell *cell)
{
    nvmlUtilization_t rates = {0, 0};
    u32 value = 0, period;
    if (cell->number < 2) {
        nvmlReturn_t code = nvml.nvmlDeviceGetUtilizationRates(HANDLE, &rates);
        return put_number(cell, code, cell->number ? &rates.memory : &rates.gpu);
    }
    nvmlReturn_t (*const calls[])(dev, u32 *, u32 *) = {
        nvml.nvmlDeviceGetEncoderUtilization, nvml.nvmlDeviceGetDecoderUtilization,
        nvml.nvmlDeviceGetJpgUtilization, nvml.nvmlDeviceGetOfaUtilization};
    return put_number(cell, calls[cell->number - 2](HANDLE, &value, &period), &value);
}

static nvmlReturn_t read_temperature(struct cell *cell)
{
    u32 value = 0;
    return put_number(cell, nvml.nvmlDeviceGetTemperature(HANDLE, 0, &value), &value);
}

static nvmlReturn_t read_margin(struct cell *cell)
{
    nvmlMarginTemperature_t margin = {.version = NVML_STRUCT(margin, 1)};
    nvmlReturn_t code = nvml.nvmlDeviceGetMarginTemperature(HANDLE, &margin);
    PUT("%d", margin.value);
    return code;
}

/* A threshold up to Ampere, or the field of its T.Limit offset from Ada on. */
static nvmlReturn_t read_threshold(struct cell *cell)
{
    u32 value = 0;
    return put_number(cell, nvml.nvmlDeviceGetTemperatureThreshold(HANDLE, cell->number, &value),
                      &value);
}

static nvmlReturn_t read_limit(struct cell *cell)
{
    u64 value = 0;
    bool known = field_value(HANDLE, cell->number, 0, &value);
    PUT("%lld", (long long)value);
    return known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t read_field(struct cell *cell)
{
    u64 value = 0;
    bool known = field_value(HANDLE, cell->number, 0, &value);
    return put_long(cell, known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED, &value);
}

enum power { DRAW, LIMIT, ENFORCED, DEFAULT_LIMIT, MIN_LIMIT, MAX_LIMIT };

static nvmlReturn_t read_power(struct cell *cell)
{
    u32 value = 0, most = 0;
    switch (cell->number) {
    case DRAW: return put_watts(cell, nvml.nvmlDeviceGetPowerUsage(HANDLE, &value), &value);
    case LIMIT:
        return put_watts(cell, nvml.nvmlDeviceGetPowerManagementLimit(HANDLE, &value), &value);
    case ENFORCED:
        return put_watts(cell, nvml.nvmlDeviceGetEnforcedPowerLimit(HANDLE, &value), &value);
    case DEFAULT_LIMIT:
        return put_watts(cell, nvml.nvmlDeviceGetPowerManagementDefaultLimit(HANDLE, &value),
                         &value);
    default: break;
    }
    nvmlReturn_t code =
        nvml.nvmlDeviceGetPowerManagementLimitConstraints(HANDLE, &value, &most);
    return put_watts(cell, code, cell->number == MIN_LIMIT ? &value : &most);
}

/* Fields 185 and 186: average and instant power in milliwatts. */
static nvmlReturn_t read_power_field(struct cell *cell)
{
    u64 value = 0;
    bool known = field_value(HANDLE, cell->number, 0, &value);
    u32 milliwatts = (u32)value;
    return put_watts(cell, known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED, &milliwatts);
}

static nvmlReturn_t read_power_management(struct cell *cell)
{
    u32 value = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetPowerManagementLimit(HANDLE, &value);
    PUT("Enabled");
    return code;
}

static nvmlReturn_t read_clock(struct cell *cell)
{
    u32 value = 0;
    return put_number(cell, nvml.nvmlDeviceGetClockInfo(HANDLE, cell->number, &value), &value);
}

static nvmlReturn_t read_max_clock(struct cell *cell)
{
    u32 value = 0;
    return put_number(cell, nvml.nvmlDeviceGetMaxClockInfo(HANDLE, cell->number, &value), &value);
}

static nvmlReturn_t read_app_clock(struct cell *cell)
{
    u32 value = 0;
    return put_number(cell, nvml.nvmlDeviceGetApplicationsClock(HANDLE, cell->number, &value),
                      &value);
}

const struct field readings_fields[] = {
    {"fan.speed", NULL, "%", read_fan, 0, "The intended speed of the device's fan."},
    {"pstate", NULL, NULL, read_pstate, 0, "The current performance state, P0 to P12."},
    {"clocks_event_reasons.supported", "clocks_throttle_reasons.supported", NULL, read_reasons, 0,
     "Bitmask of supported clock event reasons."},
    {"clocks_event_reasons.active", "clocks_throttle_reasons.active", NULL, read_reasons, 0,
     "Bitmask of active clock event reasons."},
    {"clocks_event_reasons.gpu_idle", "clocks_throttle_reasons.gpu_idle", NULL, read_reason, 1,
     "Nothing is running on the GPU."},
    {"clocks_event_reasons.applications_clocks_setting",
     "clocks_throttle_reasons.applications_clocks_setting", NULL, read_reason, 2,
     "GPU clocks are limited by the applications clocks."},
    {"clocks_event_reasons.sw_power_cap", "clocks_throttle_reasons.sw_power_cap", NULL,
     read_reason, 4, "SW Power Scaling reduces the clocks."},
    {"clocks_event_reasons.hw_slowdown", "clocks_throttle_reasons.hw_slowdown", NULL, read_reason,
     8, "HW Slowdown reduces the clocks."},
    {"clocks_event_reasons.sync_boost", "clocks_throttle_reasons.sync_boost", NULL, read_reason,
     0x10, "The GPU is in a sync boost group."},
    {"clocks_event_reasons.sw_thermal_slowdown", "clocks_throttle_reasons.sw_thermal_slowdown",
     NULL, read_reason, 0x20, "SW Thermal Slowdown reduces the clocks."},
    {"clocks_event_reasons.hw_thermal_slowdown", "clocks_throttle_reasons.hw_thermal_slowdown",
     NULL, read_reason, 0x40, "HW Thermal Slowdown reduces the clocks."},
    {"clocks_event_reasons.hw_power_brake_slowdown",
     "clocks_throttle_reasons.hw_power_brake_slowdown", NULL, read_reason, 0x80,
     "HW Power Brake Slowdown reduces the clocks."},
    {"memory.total", NULL, "MiB", read_memory, TOTAL, "Total installed GPU memory."},
    {"memory.reserved", NULL, "MiB", read_memory, RESERVED,
     "Memory reserved by the driver and firmware."},
    {"memory.used", NULL, "MiB", read_memory, USED, "Memory allocated by active contexts."},
    {"memory.free", NULL, "MiB", read_memory, FREE, "Total free memory."},
    {"utilization.gpu", NULL, "%", read_utilization, 0, "Time with a kernel running."},
    {"utilization.memory", NULL, "%", read_utilization, 1, "Time with memory read or written."},
    {"utilization.encoder", NULL, "%", read_utilization, 2, "Encoder utilization."},
    {"utilization.decoder", NULL, "%", read_utilization, 3, "Decoder utilization."},
    {"utilization.jpeg", NULL, "%", read_utilization, 4, "JPEG utilization."},
    {"utilization.ofa", NULL, "%", read_utilization, 5, "Optical flow utilization."},
    {"temperature.gpu", NULL, NULL, read_temperature, 0, "Core GPU temperature in degrees C."},
    {"temperature.gpu.tlimit", NULL, NULL, read_margin, 0, "GPU T.Limit temperature."},
    {"temperature.memory", NULL, NULL, read_field, 82, "Memory temperature in degrees C."},
    {"power.management", NULL, NULL, read_power_management, 0,
     "Whether power management is enabled."},
    {"power.draw", NULL, "W", read_power, DRAW, "The last measured power draw of the board."},
    {"power.draw.average", NULL, "W", read_power_field, 185, "Average power draw."},
    {"power.draw.instant", NULL, "W", read_power_field, 186, "Instantaneous power draw."},
    {"power.limit", NULL, "W", read_power, LIMIT, "The software power limit."},
    {"enforced.power.limit", NULL, "W", read_power, ENFORCED, "The power limit in force."},
    {"power.default_limit", NULL, "W", read_power, DEFAULT_LIMIT, "The default power limit."},
    {"power.min_limit", NULL, "W", read_power, MIN_LIMIT, "The minimum power limit."},
    {"power.max_limit", NULL, "W", read_power, MAX_LIMIT, "The maximum power limit."},
    {"clocks.current.graphics", "clocks.gr", "MHz", read_clock, CLOCK_GRAPHICS,
     "Current frequency of graphics (shader) clock."},
    {"clocks.current.sm", "clocks.sm", "MHz", read_clock, CLOCK_SM, "Current SM clock."},
    {"clocks.current.memory", "clocks.mem", "MHz", read_clock, CLOCK_MEMORY,
     "Current memory clock."},
    {"clocks.current.video", "clocks.video", "MHz", read_clock, CLOCK_VIDEO,
     "Current encoder/decoder clock."},
    {"clocks.applications.graphics", "clocks.applications.gr", "MHz", read_app_clock,
     CLOCK_GRAPHICS, "User specified frequency of graphics clock."},
    {"clocks.applications.memory", "clocks.applications.mem", "MHz", read_app_clock, CLOCK_MEMORY,
     "User specified frequency of memory clock."},
    {"clocks.max.graphics", "clocks.max.gr", "MHz", read_max_clock, CLOCK_GRAPHICS,
     "Maximum graphics clock."},
    {"clocks.max.sm", NULL, "MHz", read_max_clock, CLOCK_SM, "Maximum SM clock."},
    {"clocks.max.memory", "clocks.max.mem", "MHz", read_max_clock, CLOCK_MEMORY,
     "Maximum memory clock."},
    {"bar1.total", NULL, "MiB", read_bar1, 0, ""},
    {"bar1.used", NULL, "MiB", read_bar1, 1, ""},
    {"bar1.free", NULL, "MiB", read_bar1, 2, ""},
    {"shutdown", NULL, "C", read_threshold, 0, ""},
    {"slowdown", NULL, "C", read_threshold, 1, ""},
    {"memory.max", NULL, "C", read_threshold, 2, ""},
    {"gpu.max", NULL, "C", read_threshold, 3, ""},
    {"shutdown.tlimit", NULL, "C", read_limit, 193, ""},
    {"slowdown.tlimit", NULL, "C", read_limit, 194, ""},
    {"memory.max.tlimit", NULL, "C", read_limit, 195, ""},
    {"gpu.max.tlimit", NULL, "C", read_limit, 196, ""},
    {"gpu.now", NULL, "C", read_temperature, 0, ""},
    {"memory.now", NULL, "C", read_field, 82, ""},
    {"clocks.max.video", NULL, "MHz", read_max_clock, CLOCK_VIDEO, ""},
    END_OF_FIELDS,
};
