/* SPDX-License-Identifier: Apache-2.0 */
/*
 * -q: the long listing, a table of labels over the fields of query.c (label column as from 580 on).
 */
#include <string.h>
#include <strings.h>
#include <time.h>

#include "smi.h"

#define LABEL_COLUMN 55

/* A row without a field opens a group; ALWAYS rows stand in no section of -d. */
enum section {
    ALWAYS = 0, MEMORY = 1, UTILIZATION = 2, ECC = 4, TEMPERATURE = 8, POWER = 16, CLOCK = 32,
    COMPUTE = 64, PIDS = 128, PERFORMANCE = 256, PAGE_RETIREMENT = 512, ROW_REMAPPER = 1024
};

static const struct {
    const char *name;
    enum section section;
} SECTIONS[] = {
    {"MEMORY", MEMORY},   {"UTILIZATION", UTILIZATION}, {"ECC", ECC},
    {"TEMPERATURE", TEMPERATURE}, {"POWER", POWER},     {"CLOCK", CLOCK},
    {"COMPUTE", COMPUTE}, {"PIDS", PIDS},               {"PERFORMANCE", PERFORMANCE},
    {"PAGE_RETIREMENT", PAGE_RETIREMENT},               {"ROW_REMAPPER", ROW_REMAPPER},
};

static const struct row {
    int level;
    const char *label, *field;
    enum section section;
} ROWS[] = {
    {1, "Product Name", "name", ALWAYS},
    {1, "Product Brand", "brand", ALWAYS},
    {1, "Product Architecture", "architecture", ALWAYS},
    {1, "Display Active", "display_active", ALWAYS},
    {1, "Persistence Mode", "persistence_mode", ALWAYS},
    {1, "Addressing Mode", "addressing_mode", ALWAYS},
    {1, "MIG Mode", NULL, ALWAYS},
    {2, "Current", "mig.mode.current", ALWAYS},
    {2, "Pending", "mig.mode.pending", ALWAYS},
    {1, "Accounting Mode", "accounting.mode", ALWAYS},
    {1, "Accounting Mode Buffer Size", "accounting.buffer_size", ALWAYS},
    {1, "Serial Number", "serial", ALWAYS},
    {1, "GPU UUID", "uuid", ALWAYS},
    {1, "Minor Number", "minor", ALWAYS},
    {1, "VBIOS Version", "vbios_version", ALWAYS},
    {1, "Board ID", "board_id", ALWAYS},
    {1, "Board Part Number", "board_part", ALWAYS},
    {1, "Module ID", "module_id", ALWAYS},
    {1, "Inforom Version", NULL, ALWAYS},
    {2, "Image Version", "inforom.img", ALWAYS},
    {2, "OEM Object", "inforom.oem", ALWAYS},
    {2, "ECC Object", "inforom.ecc", ALWAYS},
    {2, "Power Management Object", "inforom.pwr", ALWAYS},
    {1, "GSP Firmware Version", "gsp", ALWAYS},
    {1, "GPU Virtualization Mode", NULL, ALWAYS},
    {2, "Virtualization Mode", "virtualization", ALWAYS},
    {1, "GPU Recovery Action", "gpu_recovery_action", ALWAYS},
    {1, "PCI", NULL, ALWAYS},
    {2, "Bus", "pci.bus", ALWAYS},
    {2, "Device", "pci.device", ALWAYS},
    {2, "Domain", "pci.domain", ALWAYS},
    {2, "Device Id", "pci.device_id", ALWAYS},
    {2, "Bus Id", "pci.bus_id", ALWAYS},
    {2, "Sub System Id", "pci.sub_device_id", ALWAYS},
    {2, "GPU Link Info", NULL, ALWAYS},
    {3, "PCIe Generation", NULL, ALWAYS},
    {4, "Max", "pcie.link.gen.max", ALWAYS},
    {4, "Current", "pcie.link.gen.current", ALWAYS},
    {4, "Device Max", "pcie.link.gen.gpumax", ALWAYS},
    {3, "Link Width", NULL, ALWAYS},
    {4, "Max", "pcie.link.width.max", ALWAYS},
    {4, "Current", "pcie.link.width.current", ALWAYS},
    {2, "Replays Since Reset", "pcie.replays_since_reset", ALWAYS},
    {2, "Tx Throughput", "pcie.tx", ALWAYS},
    {2, "Rx Throughput", "pcie.rx", ALWAYS},
    {1, "Fan Speed", "fan.speed", ALWAYS},
    {1, "Performance State", "pstate", PERFORMANCE},
    {1, "Clocks Event Reasons", NULL, PERFORMANCE},
    {2, "Idle", "clocks_event_reasons.gpu_idle", PERFORMANCE},
    {2, "Applications Clocks Setting", "clocks_event_reasons.applications_clocks_setting",
     PERFORMANCE},
    {2, "SW Power Cap", "clocks_event_reasons.sw_power_cap", PERFORMANCE},
    {2, "HW Slowdown", "clocks_event_reasons.hw_slowdown", PERFORMANCE},
    {3, "HW Thermal Slowdown", "clocks_event_reasons.hw_thermal_slowdown", PERFORMANCE},
    {3, "HW Power Brake Slowdown", "clocks_event_reasons.hw_power_brake_slowdown", PERFORMANCE},
    {2, "Sync Boost", "clocks_event_reasons.sync_boost", PERFORMANCE},
    {2, "SW Thermal Slowdown", "clocks_event_reasons.sw_thermal_slowdown", PERFORMANCE},
    {1, "FB Memory Usage", NULL, MEMORY},
    {2, "Total", "memory.total", MEMORY},
    {2, "Reserved", "memory.reserved", MEMORY},
    {2, "Used", "memory.used", MEMORY},
    {2, "Free", "memory.free", MEMORY},
    {1, "BAR1 Memory Usage", NULL, MEMORY},
    {2, "Total", "bar1.total", MEMORY},
    {2, "Used", "bar1.used", MEMORY},
    {2, "Free", "bar1.free", MEMORY},
    {1, "Compute Mode", "compute_mode", COMPUTE},
    {1, "Utilization", NULL, UTILIZATION},
    {2, "GPU", "utilization.gpu", UTILIZATION},
    {2, "Memory", "utilization.memory", UTILIZATION},
    {2, "Encoder", "utilization.encoder", UTILIZATION},
    {2, "Decoder", "utilization.decoder", UTILIZATION},
    {2, "JPEG", "utilization.jpeg", UTILIZATION},
    {2, "OFA", "utilization.ofa", UTILIZATION},
    {1, "ECC Mode", NULL, ECC},
    {2, "Current", "ecc.mode.current", ECC},
    {2, "Pending", "ecc.mode.pending", ECC},
    {1, "ECC Errors", NULL, ECC},
    {2, "Volatile", NULL, ECC},
    {3, "SRAM Correctable", "ecc.errors.corrected.volatile.sram", ECC},
    {3, "SRAM Uncorrectable", "ecc.errors.uncorrected.volatile.sram", ECC},
    {3, "DRAM Correctable", "ecc.errors.corrected.volatile.dram", ECC},
    {3, "DRAM Uncorrectable", "ecc.errors.uncorrected.volatile.dram", ECC},
    {2, "Aggregate", NULL, ECC},
    {3, "SRAM Correctable", "ecc.errors.corrected.aggregate.sram", ECC},
    {3, "SRAM Uncorrectable", "ecc.errors.uncorrected.aggregate.sram", ECC},
    {3, "DRAM Correctable", "ecc.errors.corrected.aggregate.dram", ECC},
    {3, "DRAM Uncorrectable", "ecc.errors.uncorrected.aggregate.dram", ECC},
    {1, "Retired Pages", NULL, PAGE_RETIREMENT},
    {2, "Single Bit ECC", "retired_pages.single_bit_ecc.count", PAGE_RETIREMENT},
    {2, "Double Bit ECC", "retired_pages.double_bit.count", PAGE_RETIREMENT},
    {2, "Pending Page Blacklist", "retired_pages.pending", PAGE_RETIREMENT},
    {1, "Remapped Rows", NULL, ROW_REMAPPER},
    {2, "Correctable Error", "remapped_rows.correctable", ROW_REMAPPER},
    {2, "Uncorrectable Error", "remapped_rows.uncorrectable", ROW_REMAPPER},
    {2, "Pending", "remapped_rows.pending", ROW_REMAPPER},
    {2, "Remapping Failure Occurred", "remapped_rows.failure", ROW_REMAPPER},
    {2, "Bank Remap Availability Histogram", NULL, ROW_REMAPPER},
    {3, "Max", "remapped_rows.histogram.max", ROW_REMAPPER},
    {3, "High", "remapped_rows.histogram.high", ROW_REMAPPER},
    {3, "Partial", "remapped_rows.histogram.partial", ROW_REMAPPER},
    {3, "Low", "remapped_rows.histogram.low", ROW_REMAPPER},
    {3, "None", "remapped_rows.histogram.none", ROW_REMAPPER},
    {1, "Temperature", NULL, TEMPERATURE},
    {2, "GPU Current Temp", "gpu.now", TEMPERATURE},
    {2, "GPU T.Limit Temp", "temperature.gpu.tlimit", TEMPERATURE},
    {2, "GPU Shutdown Temp", "shutdown", TEMPERATURE},
    {2, "GPU Slowdown Temp", "slowdown", TEMPERATURE},
    {2, "GPU Max Operating Temp", "gpu.max", TEMPERATURE},
    {2, "Memory Max Operating Temp", "memory.max", TEMPERATURE},
    {2, "GPU Shutdown T.Limit Temp", "shutdown.tlimit", TEMPERATURE},
    {2, "GPU Slowdown T.Limit Temp", "slowdown.tlimit", TEMPERATURE},
    {2, "GPU Max Operating T.Limit Temp", "gpu.max.tlimit", TEMPERATURE},
    {2, "Memory Max Operating T.Limit Temp", "memory.max.tlimit", TEMPERATURE},
    {2, "Memory Current Temp", "memory.now", TEMPERATURE},
    {1, "GPU Power Readings", NULL, POWER},
    {2, "Average Power Draw", "power.draw.average", POWER},
    {2, "Instantaneous Power Draw", "power.draw.instant", POWER},
    {2, "Current Power Limit", "enforced.power.limit", POWER},
    {2, "Requested Power Limit", "power.limit", POWER},
    {2, "Default Power Limit", "power.default_limit", POWER},
    {2, "Min Power Limit", "power.min_limit", POWER},
    {2, "Max Power Limit", "power.max_limit", POWER},
    {1, "Clocks", NULL, CLOCK},
    {2, "Graphics", "clocks.current.graphics", CLOCK},
    {2, "SM", "clocks.current.sm", CLOCK},
    {2, "Memory", "clocks.current.memory", CLOCK},
    {2, "Video", "clocks.current.video", CLOCK},
    {1, "Applications Clocks", NULL, CLOCK},
    {2, "Graphics", "clocks.applications.graphics", CLOCK},
    {2, "Memory", "clocks.applications.memory", CLOCK},
    {1, "Max Clocks", NULL, CLOCK},
    {2, "Graphics", "clocks.max.graphics", CLOCK},
    {2, "SM", "clocks.max.sm", CLOCK},
    {2, "Memory", "clocks.max.memory", CLOCK},
    {2, "Video", "clocks.max.video", CLOCK},
    {1, "Fabric", NULL, ALWAYS},
    {2, "State", "fabric.state", ALWAYS},
    {2, "Status", "fabric.status", ALWAYS},
};

static void print_row(int level, const char *label, const char *value)
{
    if (value)
        printf("%*s%-*s: %s\n", level * 4, "", LABEL_COLUMN - level * 4, label, value);
    else
        printf("%*s%s\n", level * 4, "", label);
}

static unsigned wanted(const char *list)
{
    unsigned sections = 0;
    char copy[512], *rest = copy, *word;
    if (!list)
        return ~0u;
    snprintf(copy, sizeof copy, "%s", list);
    while ((word = strsep(&rest, ","))) {
        size_t i = 0, count = sizeof SECTIONS / sizeof *SECTIONS;
        while (i < count && strcasecmp(SECTIONS[i].name, word))
            i++;
        if (i == count)
            fail(EXIT_ARGUMENT, "Invalid display type \"%s\". Please run 'nvidia-smi -h'.\n",
                 word);
        sections |= SECTIONS[i].section;
    }
    return sections;
}

static void print_processes(const struct card *card)
{
    static struct use uses[512];
    u32 count = list_uses(card->handle, uses, 512);
    if (count == 0)
        print_row(1, "Processes", "None");
    else
        print_row(1, "Processes", NULL);
    for (u32 i = 0; i < count; i++) {
        char text[64];
        snprintf(text, sizeof text, "%u", uses[i].gi);
        print_row(2, "GPU instance ID", uses[i].gi == SMI_ANY ? "N/A" : text);
        snprintf(text, sizeof text, "%u", uses[i].ci);
        print_row(2, "Compute instance ID", uses[i].ci == SMI_ANY ? "N/A" : text);
        snprintf(text, sizeof text, "%u", uses[i].pid);
        print_row(2, "Process ID", text);
        print_row(3, "Type", uses[i].type);
        print_row(3, "Name", uses[i].name);
        snprintf(text, sizeof text, "%llu MiB", uses[i].bytes >> 20);
        print_row(3, "Used GPU Memory", uses[i].bytes == ~0ULL ? "N/A" : text);
    }
}

static void print_mig_devices(const struct card *card)
{
    u32 most = 0, gi, ci;
    bool any = false;
    nvml.nvmlDeviceGetMaxMigDeviceCount(card->handle, &most);
    for (u32 index = 0; index < most; index++) {
        dev mig;
        char text[96];
        if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(card->handle, index, &mig) != NVML_SUCCESS)
            continue;
        if (!any)
            print_row(1, "MIG Device", NULL);
        any = true;
        snprintf(text, sizeof text, "%u", index);
        print_row(2, "Index", text);
        if (nvml.nvmlDeviceGetUUID(mig, text, sizeof text) == NVML_SUCCESS)
            print_row(2, "MIG UUID", text);
        if (nvml.nvmlDeviceGetGpuInstanceId(mig, &gi) == NVML_SUCCESS) {
            snprintf(text, sizeof text, "%u", gi);
            print_row(2, "GPU Instance ID", text);
        }
        if (nvml.nvmlDeviceGetComputeInstanceId(mig, &ci) == NVML_SUCCESS) {
            snprintf(text, sizeof text, "%u", ci);
            print_row(2, "Compute Instance ID", text);
        }
    }
    if (!any)
        print_row(1, "MIG Device", "None");
}

int print_details(const struct choice *choice, const char *list)
{
    unsigned sections = wanted(list);
    char text[128], stamp[64];
    time_t now = time(NULL);
    struct tm local;
    u32 count = choice->count;
    strftime(stamp, sizeof stamp, "%a %b %e %H:%M:%S %Y", localtime_r(&now, &local));
    printf("\n==============NVSMI LOG==============\n\n");
    print_row(0, "Timestamp", stamp);
    query_text(&choice->cards[0], "driver_version", text, sizeof text);
    print_row(0, "Driver Version", text);
    int cuda = 0;
    nvml.nvmlSystemGetCudaDriverVersion(&cuda);
    snprintf(text, sizeof text, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    print_row(0, "CUDA Version", text);
    nvml.nvmlDeviceGetCount_v2(&count);
    snprintf(text, sizeof text, "%u", count);
    printf("\n");
    print_row(0, "Attached GPUs", text);
    for (u32 i = 0; i < choice->count; i++) {
        const struct card *card = &choice->cards[i];
        printf("GPU %s\n", card->bus_id);
        for (size_t j = 0; j < sizeof ROWS / sizeof *ROWS; j++) {
            const struct row *row = &ROWS[j];
            if (list && !(row->section & sections))
                continue;
            if (row->field)
                query_text(card, row->field, text, sizeof text);
            print_row(row->level, row->label, row->field ? text : NULL);
        }
        if (!list)
            print_mig_devices(card);
        if (sections & PIDS)
            print_processes(card);
        printf("\n");
    }
    return 0;
}
