/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --query-gpu: one table of fields, each with the function that reads it.
 *
 * A reader writes the value without its unit and answers NVML's code; the code alone decides
 * between [N/A] and the other bracketed words.
 */
#include <string.h>
#include <strings.h>
#include <sys/time.h>
#include <time.h>

#include "smi.h"

struct cell {
    const struct card *card;
    u32 number; /* What the field table adds: a clock type, a location, a bit. */
    char text[128];
};

typedef nvmlReturn_t (*reader)(struct cell *cell);

#define PUT(...) snprintf(cell->text, sizeof cell->text, __VA_ARGS__)
#define HANDLE cell->card->handle

/* The writers take pointers: the call that fills the value is another argument of theirs, and C
 * leaves open which argument comes first. */
static nvmlReturn_t put_number(struct cell *cell, nvmlReturn_t code, const u32 *number)
{
    PUT("%u", *number);
    return code;
}

static nvmlReturn_t put_long(struct cell *cell, nvmlReturn_t code, const u64 *number)
{
    PUT("%llu", *number);
    return code;
}

static nvmlReturn_t put_switch(struct cell *cell, nvmlReturn_t code, const u32 *on)
{
    PUT("%s", *on ? "Enabled" : "Disabled");
    return code;
}

static nvmlReturn_t put_watts(struct cell *cell, nvmlReturn_t code, const u32 *milliwatts)
{
    PUT("%u.%02u", *milliwatts / 1000, *milliwatts % 1000 / 10);
    return code;
}

void query_timestamp(char *to, size_t size)
{
    struct timeval now;
    struct tm local;
    char seconds[32];
    gettimeofday(&now, NULL);
    strftime(seconds, sizeof seconds, "%Y/%m/%d %H:%M:%S", localtime_r(&now.tv_sec, &local));
    snprintf(to, size, "%s.%03d", seconds, (int)(now.tv_usec / 1000));
}

static nvmlReturn_t read_timestamp(struct cell *cell)
{
    query_timestamp(cell->text, sizeof cell->text);
    return NVML_SUCCESS;
}

static nvmlReturn_t read_driver(struct cell *cell)
{
    return nvml.nvmlSystemGetDriverVersion(cell->text, 80);
}

static nvmlReturn_t read_count(struct cell *cell)
{
    u32 count = 0;
    return put_number(cell, nvml.nvmlDeviceGetCount_v2(&count), &count);
}

static nvmlReturn_t read_name(struct cell *cell)
{
    return nvml.nvmlDeviceGetName(HANDLE, cell->text, 96);
}

static nvmlReturn_t read_serial(struct cell *cell)
{
    return nvml.nvmlDeviceGetSerial(HANDLE, cell->text, 30);
}

static nvmlReturn_t read_uuid(struct cell *cell)
{
    return nvml.nvmlDeviceGetUUID(HANDLE, cell->text, 96);
}

static nvmlReturn_t read_vbios(struct cell *cell)
{
    return nvml.nvmlDeviceGetVbiosVersion(HANDLE, cell->text, 32);
}

static nvmlReturn_t read_inforom_image(struct cell *cell)
{
    return nvml.nvmlDeviceGetInforomImageVersion(HANDLE, cell->text, 16);
}

static nvmlReturn_t read_inforom(struct cell *cell)
{
    return nvml.nvmlDeviceGetInforomVersion(HANDLE, cell->number, cell->text, 16);
}

static nvmlReturn_t read_index(struct cell *cell)
{
    u32 index = cell->card->index;
    return put_number(cell, nvml.nvmlDeviceGetIndex(HANDLE, &index), &index);
}

enum pci_part { BUS_ID, DOMAIN, BUS, SLOT, DEVICE_ID, SUBSYSTEM };

static nvmlReturn_t read_pci(struct cell *cell)
{
    nvmlPciInfo_t pci = {0};
    nvmlReturn_t code = nvml.nvmlDeviceGetPciInfo_v3(HANDLE, &pci);
    switch (cell->number) {
    case BUS_ID: PUT("%s", pci.busId); break;
    case DOMAIN: PUT("0x%04X", pci.domain); break;
    case BUS: PUT("0x%02X", pci.bus); break;
    case SLOT: PUT("0x%02X", pci.device); break;
    case DEVICE_ID: PUT("0x%08X", pci.pciDeviceId); break;
    default: PUT("0x%08X", pci.pciSubSystemId);
    }
    return code;
}

enum link { GEN_NOW, GEN_MAX, GEN_GPU_MAX, WIDTH_NOW, WIDTH_MAX, REPLAYS };

static nvmlReturn_t read_pcie(struct cell *cell)
{
    nvmlReturn_t (*const calls[])(dev, u32 *) = {
        nvml.nvmlDeviceGetCurrPcieLinkGeneration, nvml.nvmlDeviceGetMaxPcieLinkGeneration,
        nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration, nvml.nvmlDeviceGetCurrPcieLinkWidth,
        nvml.nvmlDeviceGetMaxPcieLinkWidth, nvml.nvmlDeviceGetPcieReplayCounter};
    u32 value = 0;
    return put_number(cell, calls[cell->number](HANDLE, &value), &value);
}

static nvmlReturn_t read_module(struct cell *cell)
{
    u32 value = 0;
    return put_number(cell, nvml.nvmlDeviceGetModuleId(HANDLE, &value), &value);
}

static nvmlReturn_t read_display(struct cell *cell)
{
    u32 value = 0;
    nvmlReturn_t code = (cell->number ? nvml.nvmlDeviceGetDisplayActive
                                      : nvml.nvmlDeviceGetDisplayMode)(HANDLE, &value);
    return put_switch(cell, code, &value);
}

static nvmlReturn_t read_persistence(struct cell *cell)
{
    u32 value = 0;
    return put_switch(cell, nvml.nvmlDeviceGetPersistenceMode(HANDLE, &value), &value);
}

static nvmlReturn_t read_addressing(struct cell *cell)
{
    nvmlVersioned_t mode = {.version = NVML_STRUCT(mode, 1)};
    nvmlReturn_t code = nvml.nvmlDeviceGetAddressingMode(HANDLE, &mode);
    PUT("%s", mode.value == 1 ? "HMM" : mode.value == 2 ? "ATS" : "None");
    return code;
}

static nvmlReturn_t read_accounting(struct cell *cell)
{
    u32 value = 0;
    if (cell->number)
        return put_number(cell, nvml.nvmlDeviceGetAccountingBufferSize(HANDLE, &value), &value);
    return put_switch(cell, nvml.nvmlDeviceGetAccountingMode(HANDLE, &value), &value);
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

static nvmlReturn_t read_compute_mode(struct cell *cell)
{
    u32 value = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetComputeMode(HANDLE, &value);
    PUT("%s", value == 0 ? "Default" : value == 2 ? "Prohibited" : "Exclusive_Process");
    return code;
}

static nvmlReturn_t read_capability(struct cell *cell)
{
    int major = 0, minor = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetCudaComputeCapability(HANDLE, &major, &minor);
    PUT("%d.%d", major, minor);
    return code;
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

static nvmlReturn_t read_ecc_mode(struct cell *cell)
{
    u32 current = 0, pending = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetEccMode(HANDLE, &current, &pending);
    return put_switch(cell, code, cell->number ? &pending : &current);
}

/* number: error kind, counter, location; location 0xf is the total. */
#define ECC(error, counter, location) ((error) << 8 | (counter) << 4 | (location))

static nvmlReturn_t read_ecc(struct cell *cell)
{
    u32 error = cell->number >> 8, counter = cell->number >> 4 & 0xf, where = cell->number & 0xf;
    u64 value = 0;
    nvmlReturn_t code =
        where == 0xf ? nvml.nvmlDeviceGetTotalEccErrors(HANDLE, error, counter, &value)
                     : nvml.nvmlDeviceGetMemoryErrorCounter(HANDLE, error, counter, where, &value);
    return put_long(cell, code, &value);
}

static nvmlReturn_t read_retired(struct cell *cell)
{
    u32 value = 0;
    nvmlReturn_t code;
    if (cell->number == 2) {
        code = nvml.nvmlDeviceGetRetiredPagesPendingStatus(HANDLE, &value);
        PUT("%s", value ? "Yes" : "No");
        return code;
    }
    code = nvml.nvmlDeviceGetRetiredPages(HANDLE, cell->number, &value, NULL);
    return put_number(cell, code == NVML_ERROR_INSUFFICIENT_SIZE ? NVML_SUCCESS : code, &value);
}

static nvmlReturn_t read_remapped(struct cell *cell)
{
    u32 rows[4] = {0};
    nvmlReturn_t code =
        nvml.nvmlDeviceGetRemappedRows(HANDLE, &rows[0], &rows[1], &rows[2], &rows[3]);
    return put_number(cell, code, &rows[cell->number]);
}

static nvmlReturn_t read_histogram(struct cell *cell)
{
    nvmlRowRemapperHistogram_t found = {0};
    nvmlReturn_t code = nvml.nvmlDeviceGetRowRemapperHistogram(HANDLE, &found);
    const u32 parts[] = {found.max, found.high, found.partial, found.low, found.none};
    return put_number(cell, code, &parts[cell->number]);
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

static nvmlReturn_t read_bar1(struct cell *cell)
{
    nvmlBAR1Memory_t memory = {0};
    nvmlReturn_t code = nvml.nvmlDeviceGetBAR1MemoryInfo(HANDLE, &memory);
    const u64 parts[] = {memory.bar1Total >> 20, memory.bar1Used >> 20, memory.bar1Free >> 20};
    return put_long(cell, code, &parts[cell->number]);
}

static nvmlReturn_t read_brand(struct cell *cell)
{
    u32 brand = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetBrand(HANDLE, &brand);
    PUT("%s", brand == 2 ? "Tesla" : brand == 13 ? "NVIDIA RTX" : brand == 14 ? "NVIDIA" : "Unknown");
    return code;
}

static nvmlReturn_t read_architecture(struct cell *cell)
{
    static const char *const NAMES[] = {"Unknown", "Unknown", "Kepler",       "Maxwell",
                                        "Pascal",  "Volta",   "Turing",       "Ampere",
                                        "Ada Lovelace", "Hopper", "Blackwell"};
    u32 value = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetArchitecture(HANDLE, &value);
    PUT("%s", value < sizeof NAMES / sizeof *NAMES ? NAMES[value] : "Unknown");
    return code;
}

static nvmlReturn_t read_minor(struct cell *cell)
{
    u32 value = 0;
    return put_number(cell, nvml.nvmlDeviceGetMinorNumber(HANDLE, &value), &value);
}

static nvmlReturn_t read_board_id(struct cell *cell)
{
    u32 value = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetBoardId(HANDLE, &value);
    PUT("0x%x", value);
    return code;
}

static nvmlReturn_t read_board_part(struct cell *cell)
{
    return nvml.nvmlDeviceGetBoardPartNumber(HANDLE, cell->text, 80);
}

static nvmlReturn_t read_gsp(struct cell *cell)
{
    return nvml.nvmlDeviceGetGspFirmwareVersion(HANDLE, cell->text);
}

static nvmlReturn_t read_virtualization(struct cell *cell)
{
    static const char *const MODES[] = {"None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA"};
    u32 value = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetVirtualizationMode(HANDLE, &value);
    PUT("%s", MODES[value < 5 ? value : 0]);
    return code;
}

/* Field 230 (driver 570 and later). */
static nvmlReturn_t read_recovery(struct cell *cell)
{
    static const char *const ACTIONS[] = {"None", "Reset", "Reboot", "Drain P2P",
                                          "Drain and Reset", "Recover IMEX Domain"};
    u64 value = 0;
    bool known = field_value(HANDLE, 230, 0, &value);
    PUT("%s", value < 6 ? ACTIONS[value] : "Unknown");
    return known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t read_throughput(struct cell *cell)
{
    u32 value = 0;
    return put_number(cell, nvml.nvmlDeviceGetPcieThroughput(HANDLE, cell->number, &value), &value);
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

static nvmlReturn_t read_mig(struct cell *cell)
{
    u32 current = 0, pending = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetMigMode(HANDLE, &current, &pending);
    return put_switch(cell, code, cell->number ? &pending : &current);
}

static nvmlReturn_t read_fabric(struct cell *cell)
{
    static const char *const STATES[] = {"N/A", "Not Started", "In Progress", "Completed"};
    nvmlGpuFabricInfo_v2_t fabric = {.version = NVML_STRUCT(fabric, 2)};
    nvmlReturn_t code = nvml.nvmlDeviceGetGpuFabricInfoV(HANDLE, &fabric);
    if (code == NVML_SUCCESS && fabric.state == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    PUT("%s", cell->number ? (fabric.status ? error_text(fabric.status) : "Success")
                           : STATES[fabric.state & 3]);
    return code;
}

static nvmlReturn_t read_none(struct cell *cell)
{
    (void)cell;
    return NVML_ERROR_NOT_SUPPORTED;
}

static const struct field {
    const char *name, *alias, *unit;
    reader read;
    u32 number;
    const char *help;
} FIELDS[] = {
    {"timestamp", NULL, NULL, read_timestamp, 0, "The timestamp of when the query was made."},
    {"driver_version", NULL, NULL, read_driver, 0, "The version of the installed driver."},
    {"count", NULL, NULL, read_count, 0, "The number of GPUs in the system."},
    {"name", "gpu_name", NULL, read_name, 0, "The official product name of the GPU."},
    {"serial", "gpu_serial", NULL, read_serial, 0, "The serial number printed on the board."},
    {"uuid", "gpu_uuid", NULL, read_uuid, 0, "The globally unique identifier of the GPU."},
    {"pci.bus_id", "gpu_bus_id", NULL, read_pci, BUS_ID, "domain:bus:device.function, in hex."},
    {"pci.domain", NULL, NULL, read_pci, DOMAIN, "PCI domain number, in hex."},
    {"pci.bus", NULL, NULL, read_pci, BUS, "PCI bus number, in hex."},
    {"pci.device", NULL, NULL, read_pci, SLOT, "PCI device number, in hex."},
    {"pci.device_id", NULL, NULL, read_pci, DEVICE_ID, "PCI vendor device id, in hex."},
    {"pci.sub_device_id", NULL, NULL, read_pci, SUBSYSTEM, "PCI Sub System id, in hex."},
    {"vgpu_driver_capability.heterogenous_multivGPU", NULL, NULL, read_none, 0,
     "Whether heterogeneous multi-vGPU is supported by the driver."},
    {"pcie.link.gen.current", "pcie.link.gen.gpucurrent", NULL, read_pcie, GEN_NOW,
     "The current PCI-E link generation."},
    {"pcie.link.gen.max", NULL, NULL, read_pcie, GEN_MAX,
     "The maximum PCI-E link generation possible with this GPU and system."},
    {"pcie.link.gen.gpumax", NULL, NULL, read_pcie, GEN_GPU_MAX,
     "The maximum PCI-E link generation supported by this GPU."},
    {"pcie.link.width.current", NULL, NULL, read_pcie, WIDTH_NOW, "The current PCI-E link width."},
    {"pcie.link.width.max", NULL, NULL, read_pcie, WIDTH_MAX, "The maximum PCI-E link width."},
    {"pcie.replays_since_reset", NULL, NULL, read_pcie, REPLAYS, "PCIe replays since reset."},
    {"index", NULL, NULL, read_index, 0, "Zero based index of the GPU."},
    {"module_id", NULL, NULL, read_module, 0, "Module id of the GPU on its baseboard."},
    {"display_mode", NULL, NULL, read_display, 0, "Whether a display is connected."},
    {"display_active", NULL, NULL, read_display, 1, "Whether a display is initialised."},
    {"persistence_mode", NULL, NULL, read_persistence, 0, "Whether persistence mode is enabled."},
    {"addressing_mode", NULL, NULL, read_addressing, 0, "The addressing mode: HMM, ATS or None."},
    {"accounting.mode", NULL, NULL, read_accounting, 0, "Whether accounting mode is enabled."},
    {"accounting.buffer_size", NULL, NULL, read_accounting, 1, "Size of the accounting buffer."},
    {"driver_model.current", NULL, NULL, read_none, 0, "The driver model; Windows only."},
    {"driver_model.pending", NULL, NULL, read_none, 0, "The driver model; Windows only."},
    {"vbios_version", NULL, NULL, read_vbios, 0, "The BIOS of the GPU board."},
    {"inforom.img", "inforom.image", NULL, read_inforom_image, 0, "Version of the infoROM image."},
    {"inforom.oem", NULL, NULL, read_inforom, 0, "Version for the OEM configuration data."},
    {"inforom.ecc", NULL, NULL, read_inforom, 1, "Version for the ECC recording data."},
    {"inforom.pwr", "inforom.power", NULL, read_inforom, 2, "Version for the power data."},
    {"gom.current", NULL, NULL, read_none, 0, "The GOM currently in use."},
    {"gom.pending", NULL, NULL, read_none, 0, "The GOM that will be used on the next reboot."},
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
    {"compute_mode", NULL, NULL, read_compute_mode, 0,
     "Default, Exclusive_Process or Prohibited."},
    {"compute_cap", NULL, NULL, read_capability, 0, "The CUDA Compute Capability."},
    {"utilization.gpu", NULL, "%", read_utilization, 0, "Time with a kernel running."},
    {"utilization.memory", NULL, "%", read_utilization, 1, "Time with memory read or written."},
    {"utilization.encoder", NULL, "%", read_utilization, 2, "Encoder utilization."},
    {"utilization.decoder", NULL, "%", read_utilization, 3, "Decoder utilization."},
    {"utilization.jpeg", NULL, "%", read_utilization, 4, "JPEG utilization."},
    {"utilization.ofa", NULL, "%", read_utilization, 5, "Optical flow utilization."},
    {"encoder.stats.sessionCount", NULL, NULL, read_none, 0, "Encoder sessions."},
    {"encoder.stats.averageFps", NULL, NULL, read_none, 0, "Average FPS of encoder sessions."},
    {"encoder.stats.averageLatency", NULL, NULL, read_none, 0, "Average latency of sessions."},
    {"ecc.mode.current", NULL, NULL, read_ecc_mode, 0, "The ECC mode the GPU operates under."},
    {"ecc.mode.pending", NULL, NULL, read_ecc_mode, 1, "The ECC mode after the next reboot."},
#define ECC_ROWS(kind, error, period, counter)                                                     \
    {"ecc.errors." kind "." period ".device_memory", NULL, NULL, read_ecc,                         \
     ECC(error, counter, 2), "Errors detected in global device memory."},                          \
        {"ecc.errors." kind "." period ".dram", NULL, NULL, read_ecc, ECC(error, counter, 2),      \
         "Errors detected in DRAM."},                                                              \
        {"ecc.errors." kind "." period ".register_file", NULL, NULL, read_ecc,                     \
         ECC(error, counter, 3), "Errors detected in register file memory."},                      \
        {"ecc.errors." kind "." period ".l1_cache", NULL, NULL, read_ecc, ECC(error, counter, 0),  \
         "Errors detected in the L1 cache."},                                                      \
        {"ecc.errors." kind "." period ".l2_cache", NULL, NULL, read_ecc, ECC(error, counter, 1),  \
         "Errors detected in the L2 cache."},                                                      \
        {"ecc.errors." kind "." period ".sram", NULL, NULL, read_ecc, ECC(error, counter, 7),      \
         "Errors detected in SRAM."},                                                              \
        {"ecc.errors." kind "." period ".total", NULL, NULL, read_ecc, ECC(error, counter, 0xfu),  \
         "Total errors detected across entire chip."}
    ECC_ROWS("corrected", CORRECTED, "volatile", VOLATILE),
    ECC_ROWS("corrected", CORRECTED, "aggregate", AGGREGATE),
    ECC_ROWS("uncorrected", UNCORRECTED, "volatile", VOLATILE),
    ECC_ROWS("uncorrected", UNCORRECTED, "aggregate", AGGREGATE),
    {"retired_pages.single_bit_ecc.count", "retired_pages.sbe", NULL, read_retired, 0,
     "Pages retired due to multiple single bit ECC errors."},
    {"retired_pages.double_bit.count", "retired_pages.dbe", NULL, read_retired, 1,
     "Pages retired due to one double bit ECC error."},
    {"retired_pages.pending", NULL, NULL, read_retired, 2, "Whether pages wait for a reboot."},
    {"remapped_rows.correctable", NULL, NULL, read_remapped, 0, "Rows remapped: corrected."},
    {"remapped_rows.uncorrectable", NULL, NULL, read_remapped, 1, "Rows remapped: uncorrected."},
    {"remapped_rows.pending", NULL, NULL, read_remapped, 2, "Whether rows wait for a reset."},
    {"remapped_rows.failure", NULL, NULL, read_remapped, 3, "Whether a remapping failed."},
    {"remapped_rows.histogram.max", NULL, NULL, read_histogram, 0, "Banks with all spares."},
    {"remapped_rows.histogram.high", NULL, NULL, read_histogram, 1, "Banks with most spares."},
    {"remapped_rows.histogram.partial", NULL, NULL, read_histogram, 2, "Banks with some spares."},
    {"remapped_rows.histogram.low", NULL, NULL, read_histogram, 3, "Banks with one spare."},
    {"remapped_rows.histogram.none", NULL, NULL, read_histogram, 4, "Banks without spares."},
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
    {"mig.mode.current", NULL, NULL, read_mig, 0, "The MIG mode the GPU operates under."},
    {"mig.mode.pending", NULL, NULL, read_mig, 1, "The MIG mode after the next reset."},
    {"gsp.mode.current", NULL, NULL, read_none, 0, "The GSP firmware mode."},
    {"fabric.state", NULL, NULL, read_fabric, 0, "State of GPU fabric registration."},
    {"fabric.status", NULL, NULL, read_fabric, 1, "Status of GPU fabric registration."},
    {"gpu_recovery_action", NULL, NULL, read_recovery, 0, "What would make the GPU whole again."},
};

/* What only -q prints; a name here is no field of --query-gpu. */
static const struct field DETAILS[] = {
    {"brand", NULL, NULL, read_brand, 0, ""},
    {"architecture", NULL, NULL, read_architecture, 0, ""},
    {"minor", NULL, NULL, read_minor, 0, ""},
    {"board_id", NULL, NULL, read_board_id, 0, ""},
    {"board_part", NULL, NULL, read_board_part, 0, ""},
    {"gsp", NULL, NULL, read_gsp, 0, ""},
    {"virtualization", NULL, NULL, read_virtualization, 0, ""},
    {"pcie.tx", NULL, "KB/s", read_throughput, 0, ""},
    {"pcie.rx", NULL, "KB/s", read_throughput, 1, ""},
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
};

enum {
    FIELD_COUNT = sizeof FIELDS / sizeof *FIELDS,
    DETAIL_COUNT = sizeof DETAILS / sizeof *DETAILS,
    MOST = 128
};

int help_query_cards(void)
{
    printf("List of valid properties to query for the switch \"--query-gpu=\":\n\n");
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (FIELDS[i].alias)
            printf("\"%s\" or \"%s\"\n%s\n\n", FIELDS[i].name, FIELDS[i].alias, FIELDS[i].help);
        else
            printf("\"%s\"\n%s\n\n", FIELDS[i].name, FIELDS[i].help);
    }
    return 0;
}

bool query_text(const struct card *card, const char *name, char *to, size_t size)
{
    const struct field *field = NULL;
    for (size_t i = 0; i < DETAIL_COUNT && !field; i++)
        if (!strcmp(DETAILS[i].name, name))
            field = &DETAILS[i];
    for (size_t i = 0; i < FIELD_COUNT && !field; i++)
        if (!strcmp(FIELDS[i].name, name))
            field = &FIELDS[i];
    struct cell cell = {.card = card, .number = field ? field->number : 0};
    nvmlReturn_t code = field ? field->read(&cell) : NVML_ERROR_NOT_SUPPORTED;
    if (code == NVML_SUCCESS)
        snprintf(to, size, "%s%s%s", cell.text, field->unit ? " " : "",
                 field->unit ? field->unit : "");
    else if (code == NVML_ERROR_NOT_SUPPORTED || code == NVML_ERROR_FUNCTION_NOT_FOUND)
        snprintf(to, size, "N/A");
    else
        snprintf(to, size, "%s", error_text(code));
    return code == NVML_SUCCESS;
}

static const struct field *find_field(const char *name)
{
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (!strcasecmp(FIELDS[i].name, name) ||
            (FIELDS[i].alias && !strcasecmp(FIELDS[i].alias, name)))
            return &FIELDS[i];
    fail(EXIT_ARGUMENT, "Field \"%s\" is not a valid field to query.\n\n", name);
}

static void print_value(const struct field *field, struct cell *cell, bool units)
{
    nvmlReturn_t code = field->read(cell);
    switch (code) {
    case NVML_SUCCESS:
        printf("%s%s%s", cell->text, units && field->unit ? " " : "",
               units && field->unit ? field->unit : "");
        break;
    case NVML_ERROR_NOT_SUPPORTED:
    case NVML_ERROR_FUNCTION_NOT_FOUND: printf("[N/A]"); break;
    default: printf("[%s]", error_text(code));
    }
}

int query_cards(const struct choice *choice, const char *names, const char *format)
{
    const struct field *fields[MOST];
    size_t count = 0;
    char copy[4096], *rest = copy, *word, asked[MOST][64];
    snprintf(copy, sizeof copy, "%s", names);
    while ((word = strsep(&rest, ",")) && count < MOST) {
        word += strspn(word, " ");
        word[strcspn(word, " ")] = 0;
        fields[count] = find_field(word);
        snprintf(asked[count++], sizeof *asked, "%s", word);
    }
    for (size_t i = 0; i < count && !strstr(format, "noheader"); i++)
        printf("%s%s%s%s%s", asked[i], fields[i]->unit ? " [" : "",
               fields[i]->unit ? fields[i]->unit : "", fields[i]->unit ? "]" : "",
               i + 1 < count ? ", " : "\n");
    for (u32 i = 0; i < choice->count; i++)
        for (size_t j = 0; j < count; j++) {
            struct cell cell = {.card = &choice->cards[i], .number = fields[j]->number};
            print_value(fields[j], &cell, !strstr(format, "nounits"));
            printf("%s", j + 1 < count ? ", " : "\n");
        }
    return 0;
}
