/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MIG on the card: mode, GPU instance profiles, GPU instances, and the handles of MIG devices.
 */
#include "library.h"
#include "placement.h"

#include <stdio.h>
#include <string.h>

const struct sim_profile *profile_of(const struct view *view)
{
    return &view->facts->profiles[view->state.instances[view->gpu_instance].profile];
}

const struct sim_ci_profile *ci_profile_of(const struct view *view)
{
    const struct sim_instance *instance = &view->state.instances[view->gpu_instance];
    return &profile_of(view)->compute[instance->compute[view->compute_instance].profile];
}

/* "MIG 1g.10gb", or "MIG 1c.3g.40gb" when the compute instance is a part of its GPU instance. */
static void compute_name(const struct sim_profile *profile, const struct sim_ci_profile *compute,
                         char *to, size_t size)
{
    const char *name = strncmp(profile->name, "MIG ", 4) == 0 ? profile->name + 4 : profile->name;
    if (compute->slices == profile->slices)
        snprintf(to, size, "MIG %s", name);
    else
        snprintf(to, size, "MIG %uc.%s", compute->slices, name);
}

void mig_profile_name(const struct view *view, char *to, size_t size)
{
    compute_name(profile_of(view), ci_profile_of(view), to, size);
}

#define NEED_MIG() NEED(view.facts->mig_slices, NVML_ERROR_NOT_SUPPORTED)
#define NEED_MIG_ON() NEED(view.state.mig_current, NVML_ERROR_NOT_SUPPORTED)
#define NEED_CONFIG()                                                                              \
    NEED(is_administrator() && capability_open(CAPABILITY_CONFIG), NVML_ERROR_NO_PERMISSION)

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                         unsigned int *pending)
{
    ENTER(device, WHOLE);
    NEED_MIG();
    NEED(current && pending, NVML_ERROR_INVALID_ARGUMENT);
    *current = view.state.mig_current;
    *pending = view.state.mig_pending;
    return NVML_SUCCESS;
}

static bool has_instances(const struct sim_state *state)
{
    for (unsigned gi = 0; gi < SIM_INSTANCES; gi++)
        if (state->instances[gi].present)
            return true;
    return false;
}

/* The mode is asked for; whether it holds at once depends on the model and on who uses the card. */
static nvmlReturn_t apply_mode(const struct view *view, struct sim_state *state, unsigned mode)
{
    state->mig_pending = mode;
    if (state->mig_current == mode)
        return NVML_SUCCESS;
    if (has_instances(state) || sim_busy(view->card, SIM_ANY, SIM_ANY))
        return NVML_ERROR_IN_USE;
    if (view->facts->mig_change == SIM_MIG_PENDING)
        return NVML_ERROR_RESET_REQUIRED;
    if (view->facts->mig_change == SIM_MIG_BY_RESET) {
        sim_reset(view->facts, state);
        sim_restart_energy(view->card);
    }
    state->mig_current = mode;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode,
                                         nvmlReturn_t *activation)
{
    ENTER(device, WHOLE);
    NEED(activation && mode <= 1, NVML_ERROR_INVALID_ARGUMENT);
    NEED_MIG();
    NEED_ADMINISTRATOR();
    struct sim_state *state = sim_begin(view.card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    unsigned before = state->mig_current;
    *activation = apply_mode(&view, state, mode);
    bool changed = state->mig_current != before;
    sim_end(view.card);
    if (changed) {
        capability_sync(view.card);
        sim_raise(view.card, NVML_EVENT_MIG_CONFIG, mode, SIM_ANY, SIM_ANY);
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    ENTER(device, WHOLE);
    NEED_POINTER(count);
    *count = view.state.mig_current ? view.facts->mig_devices : 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t find_profile(const struct view *view, unsigned index,
                                 const struct sim_profile **profile)
{
    NEED(view->facts->mig_slices, NVML_ERROR_NOT_SUPPORTED);
    NEED(index < SIM_PROFILES, NVML_ERROR_INVALID_ARGUMENT);
    *profile = &view->facts->profiles[index];
    return (*profile)->present ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int index,
                                                        nvmlGpuInstanceProfileInfo_t *info)
{
    const struct sim_profile *profile;
    ENTER(device, WHOLE);
    NEED_POINTER(info);
    nvmlReturn_t result = find_profile(&view, index, &profile);
    NEED(result == NVML_SUCCESS, result);
    info->id = profile->id;
    info->isP2pSupported = 0;
    info->sliceCount = profile->slices;
    info->instanceCount = profile->max;
    info->multiprocessorCount = profile->multiprocessors;
    info->copyEngineCount = profile->copy;
    info->decoderCount = profile->decoder;
    info->encoderCount = profile->encoder;
    info->jpegCount = profile->jpeg;
    info->ofaCount = profile->ofa;
    info->memorySizeMB = profile->memory_mib;
    return NVML_SUCCESS;
}

static nvmlReturn_t versioned_info(const struct sim_profile *profile, void *to)
{
    nvmlGpuInstanceProfileInfo_v2_t *second = to;
    nvmlGpuInstanceProfileInfo_v3_t *third = to;
    if (second->version == NVML_STRUCT(*second, 2)) {
        *second = (nvmlGpuInstanceProfileInfo_v2_t){
            second->version, profile->id, 0, profile->slices, profile->max,
            profile->multiprocessors, profile->copy, profile->decoder, profile->encoder,
            profile->jpeg, profile->ofa, profile->memory_mib, ""};
        memcpy(second->name, profile->name, sizeof second->name);
        return NVML_SUCCESS;
    }
    NEED(third->version == NVML_STRUCT(*third, 3), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    *third = (nvmlGpuInstanceProfileInfo_v3_t){
        third->version, profile->id, profile->slices, profile->max, profile->multiprocessors,
        profile->copy, profile->decoder, profile->encoder, profile->jpeg, profile->ofa,
        profile->memory_mib, "", profile->capabilities};
    memcpy(third->name, profile->name, sizeof third->name);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int index,
                                                         void *info)
{
    const struct sim_profile *profile;
    ENTER(device, WHOLE);
    NEED_POINTER(info);
    nvmlReturn_t result = find_profile(&view, index, &profile);
    return result == NVML_SUCCESS ? versioned_info(profile, info) : result;
}

/* Profile by the id that nvidia-smi prints; what is not there is an invalid argument. */
static nvmlReturn_t known_profile(const struct view *view, unsigned id, uint32_t *index)
{
    NEED(view->facts->mig_slices, NVML_ERROR_NOT_SUPPORTED);
    *index = profile_by_id(view->facts, id);
    return *index == SIM_ANY ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id,
                                                             void *info)
{
    uint32_t index;
    ENTER(device, WHOLE);
    NEED_POINTER(info);
    nvmlReturn_t result = known_profile(&view, id, &index);
    NEED(result == NVML_SUCCESS, result);
    return versioned_info(&view.facts->profiles[index], info);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device,
                                                                  unsigned int id,
                                                                  nvmlPlacement_t *placements,
                                                                  unsigned int *count)
{
    uint32_t index;
    ENTER(device, WHOLE);
    NEED_POINTER(count);
    nvmlReturn_t result = known_profile(&view, id, &index);
    NEED(result == NVML_SUCCESS, result);
    const struct sim_profile *profile = &view.facts->profiles[index];
    unsigned room = *count;
    *count = profile->placement_count;
    if (!placements)
        return NVML_SUCCESS;
    NEED(room >= *count, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < *count; i++) {
        placements[i].start = profile->placements[i].start;
        placements[i].size = profile->placements[i].size;
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device,
                                                               unsigned int id,
                                                               nvmlPlacement_t *placements,
                                                               unsigned int *count)
{
    return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, placements, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id,
                                                              unsigned int *count)
{
    uint32_t index;
    ENTER(device, WHOLE);
    NEED_POINTER(count);
    nvmlReturn_t result = known_profile(&view, id, &index);
    NEED(result == NVML_SUCCESS, result);
    NEED_MIG_ON();
    *count = placement_capacity(view.facts, &view.state, index);
    return NVML_SUCCESS;
}

/* A wanted placement of NULL leaves the choice to the driver. */
static nvmlReturn_t create(const struct view *view, uint32_t profile,
                           const nvmlPlacement_t *wanted, nvmlGpuInstance_t *instance)
{
    struct sim_state *state = sim_begin(view->card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    const struct sim_profile *kind = &view->facts->profiles[profile];
    const struct sim_placement *place = NULL;
    if (!wanted)
        place = placement_choose(view->facts, state, profile);
    for (unsigned i = 0; wanted && i < kind->placement_count; i++)
        if (kind->placements[i].start == wanted->start &&
            placement_fits(view->facts, state, profile, wanted->start))
            place = &kind->placements[i];
    uint32_t gi = place ? placement_put(view->facts, state, profile, place) : SIM_ANY;
    if (gi == SIM_ANY || !state->mig_current) {
        bool on = state->mig_current;
        sim_abort(view->card);
        return on ? NVML_ERROR_INSUFFICIENT_RESOURCES : NVML_ERROR_NOT_SUPPORTED;
    }
    sim_end(view->card);
    capability_sync(view->card);
    sim_raise(view->card, NVML_EVENT_MIG_CONFIG, 1, gi, SIM_ANY);
    *instance = handle_of_gpu_instance(view->card, gi);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id,
                                                nvmlGpuInstance_t *instance)
{
    uint32_t index;
    ENTER(device, WHOLE);
    NEED_POINTER(instance);
    NEED_MIG_ON();
    nvmlReturn_t result = known_profile(&view, id, &index);
    NEED(result == NVML_SUCCESS, result);
    NEED_CONFIG();
    return create(&view, index, NULL, instance);
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id,
                                                             const nvmlPlacement_t *placement,
                                                             nvmlGpuInstance_t *instance)
{
    uint32_t index;
    bool listed = false;
    ENTER(device, WHOLE);
    NEED(instance && placement, NVML_ERROR_INVALID_ARGUMENT);
    NEED_MIG_ON();
    nvmlReturn_t result = known_profile(&view, id, &index);
    NEED(result == NVML_SUCCESS, result);
    const struct sim_profile *profile = &view.facts->profiles[index];
    for (unsigned i = 0; i < profile->placement_count; i++)
        listed |= profile->placements[i].start == placement->start &&
                  profile->placements[i].size == placement->size;
    NEED(listed, NVML_ERROR_INVALID_ARGUMENT);
    NEED_CONFIG();
    return create(&view, index, placement, instance);
}

EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    ENTER_INSTANCE(instance);
    NEED_CONFIG();
    struct sim_state *state = sim_begin(view.card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    struct sim_instance *gone = &state->instances[view.gpu_instance];
    bool used = !gone->present;
    for (unsigned ci = 0; ci < SIM_COMPUTE; ci++)
        used |= gone->compute[ci].present;
    if (used) {
        sim_abort(view.card);
        return NVML_ERROR_IN_USE;
    }
    memset(gone, 0, sizeof *gone);
    sim_end(view.card);
    capability_sync(view.card);
    sim_raise(view.card, NVML_EVENT_MIG_CONFIG, 0, view.gpu_instance, SIM_ANY);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id,
                                              nvmlGpuInstance_t *instances, unsigned int *count)
{
    uint32_t index;
    ENTER(device, WHOLE);
    NEED(instances && count, NVML_ERROR_INVALID_ARGUMENT);
    NEED_MIG_ON();
    nvmlReturn_t result = known_profile(&view, id, &index);
    NEED(result == NVML_SUCCESS, result);
    *count = 0;
    for (unsigned gi = 0; gi < SIM_INSTANCES; gi++)
        if (view.state.instances[gi].present && view.state.instances[gi].profile == index)
            instances[(*count)++] = handle_of_gpu_instance(view.card, gi);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                                 nvmlGpuInstance_t *instance)
{
    ENTER(device, WHOLE);
    NEED_POINTER(instance);
    NEED_MIG_ON();
    NEED(id < SIM_INSTANCES && view.state.instances[id].present, NVML_ERROR_NOT_FOUND);
    *instance = handle_of_gpu_instance(view.card, id);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    ENTER_INSTANCE(instance);
    NEED_POINTER(info);
    const struct sim_instance *state = &view.state.instances[view.gpu_instance];
    info->device = handle_of_card(view.card);
    info->id = view.gpu_instance;
    info->profileId = view.facts->profiles[state->profile].id;
    info->placement.start = state->start;
    info->placement.size = state->size;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    ENTER(device, EITHER);
    NEED_POINTER(is_mig);
    *is_mig = view.gpu_instance != SIM_ANY;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    ENTER(device, MIG);
    NEED_POINTER(id);
    *id = view.gpu_instance;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    ENTER(device, MIG);
    NEED_POINTER(id);
    *id = view.compute_instance;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                        nvmlDevice_t *mig)
{
    ENTER(device, WHOLE);
    NEED_POINTER(mig);
    NEED_MIG_ON();
    NEED(index < view.facts->mig_devices, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned gi = 0; gi < SIM_INSTANCES; gi++)
        for (unsigned ci = 0; ci < SIM_COMPUTE && view.state.instances[gi].present; ci++)
            if (view.state.instances[gi].compute[ci].present &&
                capability_visible(view.card, gi, ci) && index-- == 0) {
                *mig = handle_of_mig(view.card, gi, ci);
                return NVML_SUCCESS;
            }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig,
                                                                 nvmlDevice_t *device)
{
    ENTER(mig, MIG);
    NEED_POINTER(device);
    *device = handle_of_card(view.card);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device,
                                               nvmlDeviceAttributes_t *attributes)
{
    ENTER(device, MIG);
    NEED_POINTER(attributes);
    const struct sim_profile *profile = profile_of(&view);
    const struct sim_ci_profile *compute = ci_profile_of(&view);
    attributes->multiprocessorCount = compute->multiprocessors;
    attributes->sharedCopyEngineCount = profile->copy;
    attributes->sharedDecoderCount = profile->decoder;
    attributes->sharedEncoderCount = profile->encoder;
    attributes->sharedJpegCount = profile->jpeg;
    attributes->sharedOfaCount = profile->ofa;
    attributes->gpuInstanceSliceCount = profile->slices;
    attributes->computeInstanceSliceCount = compute->slices;
    attributes->memorySizeMB = profile->memory_mib;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device,
                                            nvmlDeviceAttributes_t *attributes)
{
    return nvmlDeviceGetAttributes_v2(device, attributes);
}
