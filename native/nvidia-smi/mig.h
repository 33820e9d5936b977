/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of nvidia-smi mig share: the request, and finding profiles and instances.
 *
 * Profile ids (19, 14, ...) are what people type; NVML's queries want its own enum, so every
 * look-up walks the enum and compares ids.
 */
#ifndef SMI_MIG_H
#define SMI_MIG_H

#include "smi.h"

struct mig_profile {
    u32 index; /* NVML's enum. */
    nvmlGpuInstanceProfileInfo_v2_t info;
};

struct mig_request {
    const char *cards, *gpu_instances, *compute_instances, *create, *create_compute;
    bool list_profiles, list_placements, list, list_compute, list_compute_profiles;
    bool and_compute, compute_default, destroy, destroy_compute;
};

/* mig-find.c */
bool mig_mode(dev handle, u32 *current);
bool mig_any_enabled(const struct choice *choice);
bool mig_listed(const char *list, u32 number);
u32 mig_profiles(dev handle, struct mig_profile *profiles);
const char *mig_profile_name(dev handle, u32 id);
u32 mig_instances(dev handle, const char *wanted, gi_t *found);
u32 mig_compute_instances(gi_t instance, const char *wanted, ci_t *found);
u32 mig_compute_profile(gi_t instance, u32 id, nvmlComputeInstanceProfileInfo_v2_t *info);
u32 mig_default_profile(gi_t instance);

/* mig-lists.c: one table a function; each returns the exit code. */
int mig_list_profiles(const struct choice *choice);
int mig_list_placements(const struct choice *choice);
int mig_list_instances(const struct choice *choice, const struct mig_request *request);
int mig_list_compute(const struct choice *choice, const struct mig_request *request);
int mig_list_compute_profiles(const struct choice *choice, const struct mig_request *request);

#endif
