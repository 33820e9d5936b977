/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who uses a card, and the CSV of --query-compute-apps.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "smi.h"

#define ROOM 512

typedef nvmlReturn_t (*lister)(dev, u32 *, nvmlProcessInfo_t *);

static void add(struct use *uses, u32 *count, u32 room, const nvmlProcessInfo_t *process,
                const char *type)
{
    for (u32 i = 0; i < *count; i++)
        if (uses[i].pid == process->pid && uses[i].gi == process->gpuInstanceId &&
            uses[i].ci == process->computeInstanceId) {
            if (*type == 'G' && *uses[i].type == 'C')
                snprintf(uses[i].type, sizeof uses[i].type, "C+G");
            return;
        }
    if (*count == room)
        return;
    struct use *use = &uses[(*count)++];
    *use = (struct use){process->pid, process->gpuInstanceId, process->computeInstanceId,
                        process->usedGpuMemory, "", ""};
    snprintf(use->type, sizeof use->type, "%s", type);
    if (nvml.nvmlSystemGetProcessName(use->pid, use->name, sizeof use->name) != NVML_SUCCESS)
        snprintf(use->name, sizeof use->name, "[Not Found]");
}

static int by_place(const void *left, const void *right)
{
    const struct use *a = left, *b = right;
    if (a->gi != b->gi)
        return a->gi < b->gi ? -1 : 1;
    if (a->ci != b->ci)
        return a->ci < b->ci ? -1 : 1;
    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

u32 list_uses(dev handle, struct use *uses, u32 room)
{
    const struct {
        lister list;
        const char *type;
    } lists[] = {{nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, "M+C"},
                 {nvml.nvmlDeviceGetComputeRunningProcesses_v3, "C"},
                 {nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, "G"}};
    static nvmlProcessInfo_t found[ROOM];
    u32 count = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        u32 number = ROOM;
        if (lists[i].list(handle, &number, found) != NVML_SUCCESS)
            continue;
        for (u32 j = 0; j < number; j++)
            add(uses, &count, room, &found[j], lists[i].type);
    }
    qsort(uses, count, sizeof *uses, by_place);
    return count;
}

enum column { TIMESTAMP, GPU_NAME, GPU_BUS_ID, GPU_SERIAL, GPU_UUID, PID, PROCESS_NAME, USED };

static const struct {
    const char *name, *header, *help;
    enum column column;
} COLUMNS[] = {
    {"timestamp", "timestamp", "The timestamp of when the query was made.", TIMESTAMP},
    {"gpu_name", "gpu_name", "The official product name of the GPU.", GPU_NAME},
    {"gpu_bus_id", "gpu_bus_id", "PCI bus id as \"domain:bus:device.function\", in hex.",
     GPU_BUS_ID},
    {"gpu_serial", "gpu_serial", "The serial number printed on each board.", GPU_SERIAL},
    {"gpu_uuid", "gpu_uuid", "The globally unique identifier of the GPU.", GPU_UUID},
    {"pid", "pid", "Process ID of the compute application.", PID},
    {"process_name", "process_name", "Process Name", PROCESS_NAME},
    {"name", "process_name", "Process Name", PROCESS_NAME},
    {"used_gpu_memory", "used_gpu_memory [MiB]", "Amount memory used on the device.", USED},
    {"used_memory", "used_gpu_memory [MiB]", "Amount memory used on the device.", USED},
};

enum { COLUMN_COUNT = sizeof COLUMNS / sizeof *COLUMNS };

int help_query_processes(void)
{
    printf("List of valid properties to query for the switch \"--query-compute-apps=\":\n\n");
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        printf("\"%s\"\n%s\n\n", COLUMNS[i].name, COLUMNS[i].help);
    return 0;
}

static void print_cell(const struct card *card, const struct use *use, enum column column,
                       bool units)
{
    char text[96];
    switch (column) {
    case TIMESTAMP: query_timestamp(text, sizeof text); printf("%s", text); break;
    case GPU_NAME: printf("%s", card->name); break;
    case GPU_BUS_ID: printf("%s", card->bus_id); break;
    case GPU_SERIAL:
        printf("%s", nvml.nvmlDeviceGetSerial(card->handle, text, sizeof text) ? "[N/A]" : text);
        break;
    case GPU_UUID:
        printf("%s", nvml.nvmlDeviceGetUUID(card->handle, text, sizeof text) ? "[N/A]" : text);
        break;
    case PID: printf("%u", use->pid); break;
    case PROCESS_NAME: printf("%s", use->name); break;
    case USED:
        if (use->bytes == ~0ULL)
            printf("[N/A]");
        else
            printf("%llu%s", use->bytes >> 20, units ? " MiB" : "");
    }
}

int query_processes(const struct choice *choice, const char *fields, const char *format)
{
    enum column columns[64];
    const char *headers[64];
    size_t count = 0;
    char copy[1024], *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", fields);
    while ((word = strsep(&rest, ",")) && count < 64) {
        size_t i = 0;
        word += strspn(word, " ");
        while (i < COLUMN_COUNT && strcasecmp(COLUMNS[i].name, word))
            i++;
        if (i == COLUMN_COUNT)
            fail(EXIT_ARGUMENT, "Field \"%s\" is not a valid field to query.\n\n", word);
        headers[count] = COLUMNS[i].header;
        columns[count++] = COLUMNS[i].column;
    }
    bool units = !strstr(format, "nounits");
    for (size_t i = 0; i < count && !strstr(format, "noheader"); i++)
        printf("%s%s", headers[i], i + 1 < count ? ", " : "\n");
    static struct use uses[ROOM];
    for (u32 i = 0; i < choice->count; i++) {
        u32 used = list_uses(choice->cards[i].handle, uses, ROOM);
        for (u32 j = 0; j < used; j++) {
            if (*uses[j].type == 'G')
                continue;
            for (size_t k = 0; k < count; k++) {
                print_cell(&choice->cards[i], &uses[j], columns[k], units);
                printf("%s", k + 1 < count ? ", " : "\n");
            }
        }
    }
    return 0;
}
