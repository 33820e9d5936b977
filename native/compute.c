/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compute instances: the parts of a GPU instance that become MIG devices.
 */
#include "library.h"
#include "placement.h"

#include <stdio.h>
#include <string.h>

static const struct sim_profile *profile_in(const struct view *view)
{
    return &view->facts->profiles[view->state.instances[view->gpu_instance].profile];
}

static nvmlReturn_t find(const struct view *view, unsigned index, unsigned engine,
                         const struct sim_ci_profile **compute)
{
    NEED(index < SIM_CI_PROFILES && engine == 0, NVML_ERROR_INVALID_ARGUMENT);
    *compute = &profile_in(view)->compute[index];
    return (*compute)->present ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static void fill(const struct view *view, const struct sim_ci_profile *compute,
                 nvmlComputeInstanceProfileInfo_t *info)
{
    const struct sim_profile *profile = profile_in(view);
    info->id = compute->id;
    info->sliceCount = compute->slices;
    info->instanceCount = compute->max;
    info->multiprocessorCount = compute->multiprocessors;
    info->sharedCopyEngineCount = profile->copy;
    info->sharedDecoderCount = profile->decoder;
    info->sharedEncoderCount = profile->encoder;
    info->sharedJpegCount = profile->jpeg;
    info->sharedOfaCount = profile->ofa;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t instance, unsigned int index, unsigned int engine,
    nvmlComputeInstanceProfileInfo_t *info)
{
    const struct sim_ci_profile *compute;
    ENTER_INSTANCE(instance);
    NEED_POINTER(info);
    nvmlReturn_t result = find(&view, index, engine, &compute);
    if (result == NVML_SUCCESS)
        fill(&view, compute, info);
    return result;
}

static void name_profile(const struct view *view, const struct sim_ci_profile *compute, char *to)
{
    const struct sim_profile *profile = profile_in(view);
    const char *name = strncmp(profile->name, "MIG ", 4) == 0 ? profile->name + 4 : profile->name;
    if (compute->slices == profile->slices)
        snprintf(to, 96, "MIG %.90s", name);
    else
        snprintf(to, 96, "MIG %uc.%.80s", compute->slices, name);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance,
                                                                  unsigned int index,
                                                                  unsigned int engine, void *to)
{
    const struct sim_ci_profile *compute;
    nvmlComputeInstanceProfileInfo_v2_t *second = to;
    nvmlComputeInstanceProfileInfo_v3_t *third = to;
    ENTER_INSTANCE(instance);
    NEED_POINTER(to);
    nvmlReturn_t result = find(&view, index, engine, &compute);
    NEED(result == NVML_SUCCESS, result);
    bool newest = third->version == NVML_STRUCT(*third, 3);
    NEED(newest || second->version == NVML_STRUCT(*second, 2),
         NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    fill(&view, compute, &second->info);
    name_profile(&view, compute, second->name);
    if (newest)
        third->capabilities = 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t known(const struct view *view, unsigned id, uint32_t *index)
{
    *index = ci_profile_by_id(profile_in(view), id);
    return *index == SIM_ANY ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance,
                                                                       unsigned int id,
                                                                       unsigned int *count)
{
    uint32_t index;
    ENTER_INSTANCE(instance);
    NEED_POINTER(count);
    nvmlReturn_t result = known(&view, id, &index);
    NEED(result == NVML_SUCCESS, result);
    *count = compute_capacity(profile_in(&view), &view.state.instances[view.gpu_instance], index);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    nvmlGpuInstance_t instance, unsigned int id, nvmlPlacement_t *placements, unsigned int *count)
{
    uint32_t index;
    ENTER_INSTANCE(instance);
    NEED_POINTER(count);
    nvmlReturn_t result = known(&view, id, &index);
    NEED(result == NVML_SUCCESS, result);
    const struct sim_profile *profile = profile_in(&view);
    unsigned size = profile->compute[index].slices, room = *count;
    *count = profile->slices - size + 1;
    if (*count > profile->compute[index].max)
        *count = profile->compute[index].max;
    if (!placements)
        return NVML_SUCCESS;
    NEED(room >= *count, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < *count; i++) {
        placements[i].start = i * size;
        placements[i].size = size;
    }
    return NVML_SUCCESS;
}

/* A wanted start of SIM_ANY leaves the choice to the driver. */
static nvmlReturn_t create(const struct view *view, uint32_t index, uint32_t wanted,
                           nvmlComputeInstance_t *compute)
{
    NEED(is_administrator() && capability_open(CAPABILITY_CONFIG), NVML_ERROR_NO_PERMISSION);
    struct sim_state *state = sim_begin(view->card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    struct sim_instance *instance = &state->instances[view->gpu_instance];
    const struct sim_profile *profile = &view->facts->profiles[instance->profile];
    uint32_t ci = SIM_ANY, start = wanted;
    if (instance->present && wanted == SIM_ANY)
        start = compute_choose(profile, instance, index);
    if (instance->present && start != SIM_ANY && compute_fits(profile, instance, index, start))
        ci = compute_put(profile, instance, index, start);
    if (ci == SIM_ANY) {
        sim_abort(view->card);
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    }
    sim_end(view->card);
    capability_sync(view->card);
    sim_raise(view->card, NVML_EVENT_MIG_CONFIG, 1, view->gpu_instance, ci);
    *compute = handle_of_compute_instance(view->card, view->gpu_instance, ci);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance,
                                                         unsigned int id,
                                                         nvmlComputeInstance_t *compute)
{
    uint32_t index;
    ENTER_INSTANCE(instance);
    NEED_POINTER(compute);
    nvmlReturn_t result = known(&view, id, &index);
    NEED(result == NVML_SUCCESS, result);
    return create(&view, index, SIM_ANY, compute);
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    nvmlGpuInstance_t instance, unsigned int id, const nvmlPlacement_t *placement,
    nvmlComputeInstance_t *compute)
{
    uint32_t index;
    ENTER_INSTANCE(instance);
    NEED(compute && placement, NVML_ERROR_INVALID_ARGUMENT);
    nvmlReturn_t result = known(&view, id, &index);
    NEED(result == NVML_SUCCESS, result);
    const struct sim_profile *profile = profile_in(&view);
    NEED(placement->size == profile->compute[index].slices &&
             placement->start + placement->size <= profile->slices,
         NVML_ERROR_INVALID_ARGUMENT);
    return create(&view, index, placement->start, compute);
}

EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute)
{
    struct view view;
    nvmlReturn_t result = view_compute_instance(compute, __func__, &view);
    NEED(result == NVML_SUCCESS, result);
    NEED(is_administrator() && capability_open(CAPABILITY_CONFIG), NVML_ERROR_NO_PERMISSION);
    NEED(!sim_busy(view.card, view.gpu_instance, view.compute_instance), NVML_ERROR_IN_USE);
    struct sim_state *state = sim_begin(view.card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    struct sim_compute_instance *gone =
        &state->instances[view.gpu_instance].compute[view.compute_instance];
    memset(gone, 0, sizeof *gone);
    sim_end(view.card);
    capability_sync(view.card);
    sim_raise(view.card, NVML_EVENT_MIG_CONFIG, 0, view.gpu_instance, view.compute_instance);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int id,
                                                       nvmlComputeInstance_t *computes,
                                                       unsigned int *count)
{
    uint32_t index;
    ENTER_INSTANCE(instance);
    NEED(computes && count, NVML_ERROR_INVALID_ARGUMENT);
    nvmlReturn_t result = known(&view, id, &index);
    NEED(result == NVML_SUCCESS, result);
    *count = 0;
    for (unsigned ci = 0; ci < SIM_COMPUTE; ci++) {
        const struct sim_compute_instance *other =
            &view.state.instances[view.gpu_instance].compute[ci];
        if (other->present && other->profile == index)
            computes[(*count)++] = handle_of_compute_instance(view.card, view.gpu_instance, ci);
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance,
                                                          unsigned int id,
                                                          nvmlComputeInstance_t *compute)
{
    ENTER_INSTANCE(instance);
    NEED_POINTER(compute);
    NEED(id < SIM_COMPUTE && view.state.instances[view.gpu_instance].compute[id].present,
         NVML_ERROR_NOT_FOUND);
    *compute = handle_of_compute_instance(view.card, view.gpu_instance, id);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute,
                                                  nvmlComputeInstanceInfo_t *info)
{
    struct view view;
    nvmlReturn_t result = view_compute_instance(compute, __func__, &view);
    NEED(result == NVML_SUCCESS, result);
    NEED_POINTER(info);
    const struct sim_compute_instance *state =
        &view.state.instances[view.gpu_instance].compute[view.compute_instance];
    info->device = handle_of_card(view.card);
    info->gpuInstance = handle_of_gpu_instance(view.card, view.gpu_instance);
    info->id = view.compute_instance;
    info->profileId = profile_in(&view)->compute[state->profile].id;
    info->placement.start = state->start;
    info->placement.size = state->size;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t compute,
                                               nvmlComputeInstanceInfo_t *info)
{
    return nvmlComputeInstanceGetInfo_v2(compute, info);
}
