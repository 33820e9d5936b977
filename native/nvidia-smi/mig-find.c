/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding MIG profiles and instances by what people type.
 */
#include "mig.h"

#include <string.h>

/* Profiles as nvidia-smi lists them: the smallest first. */
u32 mig_profiles(dev handle, struct mig_profile *profiles)
{
    static const u32 ORDER[GI_PROFILES] = {0, 7, 10, 15, 13, 9, 1, 8, 11, 16,
                                           14, 2, 17, 3, 12, 6, 4, 5};
    u32 count = 0;
    for (u32 i = 0; i < GI_PROFILES; i++) {
        struct mig_profile *profile = &profiles[count];
        profile->index = ORDER[i];
        profile->info = (nvmlGpuInstanceProfileInfo_v2_t){.version = 0};
        profile->info.version = NVML_STRUCT(profile->info, 2);
        if (nvml.nvmlDeviceGetGpuInstanceProfileInfoV(handle, ORDER[i], &profile->info) ==
            NVML_SUCCESS)
            count++;
    }
    return count;
}

bool mig_mode(dev handle, u32 *current)
{
    u32 pending;
    return nvml.nvmlDeviceGetMigMode(handle, current, &pending) == NVML_SUCCESS;
}

bool mig_listed(const char *list, u32 number)
{
    char copy[512], *rest = copy, *word;
    u32 value;
    if (!list)
        return true;
    snprintf(copy, sizeof copy, "%s", list);
    while ((word = strsep(&rest, ",")))
        if (parse_number(word, &value) && value == number)
            return true;
    return false;
}

/* The GPU instances of a card that the request is about, by id. */
u32 mig_instances(dev handle, const char *wanted, gi_t *found)
{
    u32 count = 0;
    for (u32 id = 0; id < GI_MAX; id++) {
        if (mig_listed(wanted, id) &&
            nvml.nvmlDeviceGetGpuInstanceById(handle, id, &found[count]) == NVML_SUCCESS)
            count++;
    }
    return count;
}

u32 mig_compute_instances(gi_t instance, const char *wanted, ci_t *found)
{
    u32 count = 0;
    for (u32 id = 0; id < CI_MAX; id++) {
        if (mig_listed(wanted, id) &&
            nvml.nvmlGpuInstanceGetComputeInstanceById(instance, id, &found[count]) ==
                NVML_SUCCESS)
            count++;
    }
    return count;
}

const char *mig_profile_name(dev handle, u32 id)
{
    static struct mig_profile profiles[GI_PROFILES];
    u32 count = mig_profiles(handle, profiles);
    for (u32 i = 0; i < count; i++)
        if (profiles[i].info.id == id)
            return profiles[i].info.name;
    return "N/A";
}

/* Looks a compute profile up by its id; answers NVML's enum or SMI_ANY. */
u32 mig_compute_profile(gi_t instance, u32 id, nvmlComputeInstanceProfileInfo_v2_t *info)
{
    for (u32 index = 0; index < CI_PROFILES; index++) {
        *info = (nvmlComputeInstanceProfileInfo_v2_t){.version = 0};
        info->version = NVML_STRUCT(*info, 2);
        if (nvml.nvmlGpuInstanceGetComputeInstanceProfileInfoV(instance, index, 0, info) ==
                NVML_SUCCESS &&
            info->info.id == id)
            return index;
    }
    return SMI_ANY;
}

/* The full-size profile of a GPU instance: the one with the most slices. */
u32 mig_default_profile(gi_t instance)
{
    u32 most = 0, id = SMI_ANY;
    for (u32 index = 0; index < CI_PROFILES; index++) {
        nvmlComputeInstanceProfileInfo_v2_t info = {.version = NVML_STRUCT(info, 2)};
        if (nvml.nvmlGpuInstanceGetComputeInstanceProfileInfoV(instance, index, 0, &info) ==
                NVML_SUCCESS &&
            info.info.sliceCount > most) {
            most = info.info.sliceCount;
            id = info.info.id;
        }
    }
    return id;
}

bool mig_any_enabled(const struct choice *choice)
{
    u32 current = 0;
    for (u32 i = 0; i < choice->count; i++)
        if (mig_mode(choice->cards[i].handle, &current) && current)
            return true;
    return false;
}

