/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a card sits: PCIe link, nearness to other cards, CPUs and memory nodes, NVLink fabric.
 */
#define _GNU_SOURCE
#include "library.h"

#include <sched.h>
#include <string.h>

#define LINK_FACT(function, value)                                                                 \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *number)                        \
    {                                                                                              \
        ENTER(device, WHOLE);                                                                      \
        NEED_POINTER(number);                                                                      \
        *number = (value);                                                                         \
        return NVML_SUCCESS;                                                                       \
    }

LINK_FACT(nvmlDeviceGetCurrPcieLinkGeneration, view.state.pcie_gen)
LINK_FACT(nvmlDeviceGetCurrPcieLinkWidth, view.state.pcie_width)
LINK_FACT(nvmlDeviceGetMaxPcieLinkGeneration, view.facts->pcie_max_gen)
LINK_FACT(nvmlDeviceGetMaxPcieLinkWidth, view.facts->pcie_max_width)
LINK_FACT(nvmlDeviceGetGpuMaxPcieLinkGeneration, view.facts->pcie_gpu_max_gen)
LINK_FACT(nvmlDeviceGetPcieLinkMaxSpeed, view.facts->pcie_max_gen)
LINK_FACT(nvmlDeviceGetPcieReplayCounter, view.state.pcie_replays)
LINK_FACT(nvmlDeviceGetPcieSpeed, view.state.pcie_gen > 2 ? 4000u << (view.state.pcie_gen - 2)
                                                          : 2500u * view.state.pcie_gen)

EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned int counter,
                                                unsigned int *kib)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(PCIE_THROUGHPUT);
    NEED(kib && counter < 2, NVML_ERROR_INVALID_ARGUMENT);
    *kib = counter ? view.state.pcie_rx_kib : view.state.pcie_tx_kib;
    return NVML_SUCCESS;
}

/* Levels of NVML: 0 same board, 10 one switch, 20 switches, 30 host bridge, 40 node, 50 system. */
static unsigned common_level(const struct sim_facts *a, const struct sim_facts *b)
{
    if (a->board && a->board == b->board)
        return 0;
    if (a->pcie_switch && a->pcie_switch == b->pcie_switch)
        return 10;
    if (a->pcie_tree && a->pcie_tree == b->pcie_tree)
        return 20;
    if (a->host_bridge && a->host_bridge == b->host_bridge)
        return 30;
    return a->cpu_node == b->cpu_node ? 40 : 50;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other,
                                                        unsigned int *level)
{
    ENTER(device, WHOLE);
    NEED_POINTER(level);
    struct view second;
    nvmlReturn_t result = view_device(other, WHOLE, __func__, &second);
    NEED(result == NVML_SUCCESS, result);
    *level = view.card == second.card ? 0 : common_level(view.facts, second.facts);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned int level,
                                                     unsigned int *count, nvmlDevice_t *devices)
{
    ENTER(device, WHOLE);
    NEED_POINTER(count);
    unsigned room = *count, found = 0;
    for (unsigned i = 0; i < visible_count(); i++) {
        unsigned card = visible_card(i);
        if (card == view.card ||
            common_level(view.facts, &sim_host->cards[card].facts) != level)
            continue;
        if (devices && found < room)
            devices[found] = handle_of_card(card);
        found++;
    }
    *count = devices && found > room ? room : found;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *count,
                                                nvmlDevice_t *devices)
{
    ENTER_LIBRARY();
    NEED(count && cpu < SIM_CPU_WORDS * 64, NVML_ERROR_INVALID_ARGUMENT);
    unsigned room = *count, found = 0;
    for (unsigned i = 0; i < visible_count(); i++) {
        unsigned card = visible_card(i);
        if (!(sim_host->cards[card].facts.cpus[cpu / 64] >> cpu % 64 & 1))
            continue;
        if (devices && found < room)
            devices[found] = handle_of_card(card);
        found++;
    }
    *count = devices && found > room ? room : found;
    return NVML_SUCCESS;
}

static nvmlReturn_t cpu_words(const struct view *view, unsigned size, unsigned long *words)
{
    NEED(words && size, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < size; i++)
        words[i] = i < SIM_CPU_WORDS ? view->facts->cpus[i] : 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int size,
                                             unsigned long *words)
{
    ENTER(device, WHOLE);
    return cpu_words(&view, size, words);
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int size,
                                                        unsigned long *words, unsigned int scope)
{
    ENTER(device, WHOLE);
    NEED(scope < 2, NVML_ERROR_INVALID_ARGUMENT);
    return cpu_words(&view, size, words);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int size,
                                                unsigned long *words, unsigned int scope)
{
    ENTER(device, WHOLE);
    NEED(words && size && scope < 2, NVML_ERROR_INVALID_ARGUMENT);
    memset(words, 0, size * sizeof *words);
    unsigned node = view.facts->numa_node == SIM_ANY ? 0 : view.facts->numa_node;
    if (node / 64 < size)
        words[node / 64] |= 1ul << node % 64;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetCpuAffinity(nvmlDevice_t device)
{
    ENTER(device, WHOLE);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (unsigned cpu = 0; cpu < SIM_CPU_WORDS * 64 && cpu < CPU_SETSIZE; cpu++)
        if (view.facts->cpus[cpu / 64] >> cpu % 64 & 1)
            CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

EXPORT nvmlReturn_t nvmlDeviceClearCpuAffinity(nvmlDevice_t device)
{
    ENTER(device, WHOLE);
    cpu_set_t set;
    memset(&set, 0xff, sizeof set);
    return sched_setaffinity(0, sizeof set, &set) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    ENTER(device, WHOLE);
    NEED_POINTER(node);
    NEED(view.facts->gpu_numa_id != SIM_ANY, NVML_ERROR_NOT_SUPPORTED);
    *node = view.facts->gpu_numa_id;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    ENTER(device, WHOLE);
    NEED_POINTER(info);
    NEED_FEATURE(FABRIC);
    memset(info, 0, sizeof *info);
    memcpy(info->clusterUuid, view.facts->fabric_cluster, sizeof info->clusterUuid);
    info->cliqueId = view.facts->fabric_clique;
    info->state = view.state.fabric_state;
    return NVML_SUCCESS;
}

/* Health summary: 1 healthy, 2 unhealthy; bits 0-1 of the mask are "degraded bandwidth: 1 yes". */
static unsigned char fabric_summary(const struct view *view)
{
    unsigned mask = view->state.fabric_health;
    if (mask == 0)
        return 0;
    return (mask & 3) == 1 || (mask >> 4 & 3) == 1 || (mask >> 8 & 0xf) > 1 ? 2 : 1;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *info)
{
    nvmlGpuFabricInfo_t plain;
    ENTER(device, WHOLE);
    NEED_POINTER(info);
    bool second = info->version == NVML_STRUCT(nvmlGpuFabricInfo_v2_t, 2);
    bool third = info->version == NVML_STRUCT(nvmlGpuFabricInfo_v3_t, 3);
    NEED(second || third, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    nvmlReturn_t result = nvmlDeviceGetGpuFabricInfo(device, &plain);
    NEED(result == NVML_SUCCESS, result);
    memcpy(info->clusterUuid, plain.clusterUuid, sizeof info->clusterUuid);
    info->status = plain.status;
    info->cliqueId = plain.cliqueId;
    info->state = plain.state;
    info->healthMask = view.state.fabric_health;
    if (third)
        info->healthSummary = fabric_summary(&view);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other,
                                           unsigned int index, unsigned int *status)
{
    ENTER(device, WHOLE);
    NEED(status && index < 5, NVML_ERROR_INVALID_ARGUMENT);
    struct view second;
    nvmlReturn_t result = view_device(other, WHOLE, __func__, &second);
    NEED(result == NVML_SUCCESS, result);
    bool linked = view.facts->nvlink_count && second.facts->nvlink_count;
    bool near = common_level(view.facts, second.facts) < 50;
    *status = linked || (index != 2 && near) ? 0 : 5; /* OK, or not supported */
    return NVML_SUCCESS;
}
