/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmlDeviceSetMemoryLimits_v1 and nvmlDeviceGetMemoryLimits_v1, which came with CUDA 13.4.
 *
 * The name space is the full path of a cgroup folder. The hard limit is what libcuda refuses to
 * pass; the soft one is kept and told, for nothing here comes under pressure below it. Soft 0 with
 * the greatest hard limit means none.
 */
#include "library.h"

#define CUDA_WITH_LIMITS 13040u

static nvmlReturn_t allowed(const struct view *view, const char *path, uint64_t *group)
{
    NEED(!sim_lacks(view->facts, SIM_F_MEMORY_LIMITS), NVML_ERROR_NOT_SUPPORTED);
    NEED(sim_host->cuda_version >= CUDA_WITH_LIMITS, NVML_ERROR_NOT_SUPPORTED);
    NEED_ADMINISTRATOR();
    NEED_POINTER(path);
    *group = sim_group(path);
    NEED(*group, NVML_ERROR_OPERATING_SYSTEM);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
    uint64_t group;
    ENTER(device, WHOLE);
    NEED_POINTER(limits);
    nvmlReturn_t result = allowed(&view, limits->nameSpace, &group);
    NEED(result == NVML_SUCCESS, result);
    uint64_t total = view.facts->memory_mib * SIM_MIB;
    NEED(limits->softLimit <= limits->hardLimit && limits->softLimit <= total &&
             (limits->hardLimit <= total || limits->hardLimit == SIM_UNLIMITED),
         NVML_ERROR_INVALID_ARGUMENT);
    NEED(sim_lock() == SIM_OK, NVML_ERROR_NO_PERMISSION);
    bool set = sim_limit_set(view.card, limits->nameSpace, limits->softLimit, limits->hardLimit);
    sim_unlock();
    return set ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    uint64_t group;
    ENTER(device, WHOLE);
    NEED_POINTER(limits);
    nvmlReturn_t result = allowed(&view, limits->nameSpace, &group);
    NEED(result == NVML_SUCCESS, result);
    NEED(sim_lock() == SIM_OK, NVML_ERROR_NO_PERMISSION);
    const struct sim_limit *limit = sim_limit_of(view.card, group);
    if (limit) {
        limits->softLimit = limit->soft;
        limits->hardLimit = limit->hard;
        limits->currentUsed = sim_group_used(view.card, group);
    }
    sim_unlock();
    return limit ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
