/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who uses a card: process lists of every version, utilisation by process, accounting.
 *
 * A process outside the caller's pid namespace is not listed, though its memory counts.
 */
#define _GNU_SOURCE
#include "library.h"

#include <stdio.h>
#include <string.h>

struct seen {
    unsigned pid;
    const struct sim_client *client;
    const struct sim_use *use;
};

/* Fills `found` (SIM_CLIENTS places) with the processes of the view that have such a context. */
static unsigned look_up(const struct view *view, unsigned contexts, struct seen *found)
{
    unsigned count = 0;
    for (unsigned i = 0; i < SIM_CLIENTS; i++) {
        const struct sim_client *client = &sim_host->clients[i];
        const struct sim_use *use = &client->uses[view->card];
        if (!client->taken || !(use->contexts & contexts))
            continue;
        if (view->gpu_instance != SIM_ANY && (use->gpu_instance != view->gpu_instance ||
                                              use->compute_instance != view->compute_instance))
            continue;
        pid_t pid = sim_client_pid(i);
        if (pid > 0)
            found[count++] = (struct seen){(unsigned)pid, client, use};
    }
    return count;
}

static unsigned long long memory_of(const struct view *view, const struct sim_use *use)
{
    return sim_lacks(view->facts, SIM_F_PROCESS_MEMORY) ? ~0ull : use->bytes;
}

/* Versions 2 and 3 of the entry are one; version 1 has no instance ids. */
static nvmlReturn_t list(nvmlDevice_t device, unsigned contexts, unsigned int *count, void *to,
                         unsigned version, const char *function)
{
    struct view view;
    struct seen found[SIM_CLIENTS];
    nvmlReturn_t result = view_device(device, EITHER, function, &view);
    NEED(result == NVML_SUCCESS, result);
    NEED_POINTER(count);
    unsigned total = look_up(&view, contexts, found), room = *count;
    *count = total;
    NEED(total <= room, NVML_ERROR_INSUFFICIENT_SIZE);
    NEED(to || !total, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < total; i++) {
        unsigned long long memory = memory_of(&view, found[i].use);
        if (version == 1)
            ((nvmlProcessInfo_v1_t *)to)[i] = (nvmlProcessInfo_v1_t){found[i].pid, memory};
        else
            ((nvmlProcessInfo_t *)to)[i] =
                (nvmlProcessInfo_t){found[i].pid, memory, found[i].use->gpu_instance,
                                    found[i].use->compute_instance};
    }
    return NVML_SUCCESS;
}

#define PROCESSES(kind, contexts)                                                                  \
    EXPORT nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses(nvmlDevice_t device,                 \
                                                              unsigned int *count, void *to)       \
    {                                                                                              \
        return list(device, contexts, count, to, 1, __func__);                                     \
    }                                                                                              \
    EXPORT nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses_v2(nvmlDevice_t device,              \
                                                                 unsigned int *count, void *to)    \
    {                                                                                              \
        return list(device, contexts, count, to, 2, __func__);                                     \
    }                                                                                              \
    EXPORT nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses_v3(nvmlDevice_t device,              \
                                                                 unsigned int *count, void *to)    \
    {                                                                                              \
        return list(device, contexts, count, to, 3, __func__);                                     \
    }

PROCESSES(Compute, SIM_COMPUTE_CONTEXT)
PROCESSES(Graphics, SIM_GRAPHICS_CONTEXT)
PROCESSES(MPSCompute, SIM_MPS_CONTEXT)

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                          nvmlProcessDetailList_t *details)
{
    static const unsigned modes[] = {SIM_COMPUTE_CONTEXT, SIM_GRAPHICS_CONTEXT, SIM_MPS_CONTEXT, 7};
    struct seen found[SIM_CLIENTS];
    ENTER(device, EITHER);
    NEED_VERSION(details, 1);
    NEED(details->mode < 4, NVML_ERROR_INVALID_ARGUMENT);
    unsigned total = look_up(&view, modes[details->mode], found), room = details->count;
    details->count = total;
    NEED(total <= room && (details->entries || !total), NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < total; i++)
        details->entries[i] = (nvmlProcessDetail_t){
            found[i].pid, memory_of(&view, found[i].use), found[i].use->gpu_instance,
            found[i].use->compute_instance, 0};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    nvmlProcessUtilizationSample_t *samples,
                                                    unsigned int *count,
                                                    unsigned long long last_seen)
{
    struct seen found[SIM_CLIENTS];
    ENTER(device, WHOLE);
    NEED_FEATURE(UTILIZATION);
    NEED_POINTER(count);
    NEED(!view.state.mig_current, NVML_ERROR_NOT_SUPPORTED);
    unsigned total = look_up(&view, 7, found), room = *count;
    uint64_t now = sim_time_us();
    *count = total;
    NEED(total && now > last_seen, NVML_ERROR_NOT_FOUND);
    NEED(samples && room >= total, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < total; i++)
        samples[i] = (nvmlProcessUtilizationSample_t){
            found[i].pid, now, found[i].use->sm, found[i].use->memory_utilization,
            found[i].use->encoder, found[i].use->decoder};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                          nvmlProcessesUtilizationInfo_t *info)
{
    struct seen found[SIM_CLIENTS];
    ENTER(device, WHOLE);
    NEED_VERSION(info, 1);
    NEED_FEATURE(UTILIZATION);
    NEED(!view.state.mig_current, NVML_ERROR_NOT_SUPPORTED);
    unsigned total = look_up(&view, 7, found), room = info->count;
    uint64_t now = sim_time_us();
    info->count = total;
    NEED(total && now > info->lastSeenTimeStamp, NVML_ERROR_NOT_FOUND);
    NEED(info->entries && room >= total, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < total; i++)
        info->entries[i] = (nvmlProcessUtilizationInfo_t){
            now, found[i].pid, found[i].use->sm, found[i].use->memory_utilization,
            found[i].use->encoder, found[i].use->decoder, 0, 0};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *size)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(ACCOUNTING);
    NEED_POINTER(size);
    *size = 4000;
    return NVML_SUCCESS;
}

static bool accounts(const struct view *view)
{
    return !sim_lacks(view->facts, SIM_F_ACCOUNTING) && view->state.accounting &&
           !view->state.mig_current;
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                                unsigned int *pids)
{
    struct seen found[SIM_CLIENTS];
    ENTER(device, WHOLE);
    NEED_POINTER(count);
    NEED(accounts(&view), NVML_ERROR_NOT_SUPPORTED);
    unsigned total = look_up(&view, 7, found), room = *count;
    *count = total;
    NEED(total <= room && (pids || !total), NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < total; i++)
        pids[i] = found[i].pid;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                                 nvmlAccountingStats_t *stats)
{
    struct seen found[SIM_CLIENTS];
    ENTER(device, WHOLE);
    NEED_POINTER(stats);
    NEED(accounts(&view), NVML_ERROR_NOT_SUPPORTED);
    unsigned total = look_up(&view, 7, found);
    for (unsigned i = 0; i < total; i++)
        if (found[i].pid == pid) {
            uint64_t age = sim_now_ns() - found[i].use->since_ns;
            memset(stats, 0, sizeof *stats);
            stats->gpuUtilization = found[i].use->sm;
            stats->memoryUtilization = found[i].use->memory_utilization;
            stats->maxMemoryUsage = found[i].use->peak_bytes;
            stats->startTime = sim_time_us() - age / 1000;
            stats->isRunning = 1; /* `time` stays 0 until the process has ended. */
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceClearAccountingPids(nvmlDevice_t device)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(ACCOUNTING);
    NEED_ADMINISTRATOR();
    return NVML_SUCCESS; /* Running processes stay; ended ones are not kept. */
}

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    char path[40], text[1024];
    ENTER_LIBRARY();
    NEED(name && length, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < SIM_CLIENTS; i++)
        if (sim_host->clients[i].taken && sim_client_pid(i) == (pid_t)pid) {
            snprintf(name, length, "%s", sim_host->clients[i].name);
            return NVML_SUCCESS;
        }
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    NEED(file, NVML_ERROR_NOT_FOUND);
    size_t read = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[read] = 0;
    snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}
