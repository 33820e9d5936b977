/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of nvidia-smi mig, in the layouts of drivers from 570 on.
 */
#include "mig.h"

static void rule(u32 width, char fill)
{
    putchar(fill == '=' ? '|' : '+');
    for (u32 i = 2; i < width; i++)
        putchar(fill);
    puts(fill == '=' ? "|" : "+");
}

int mig_list_profiles(const struct choice *choice)
{
    struct mig_profile profiles[GI_PROFILES];
    bool any = false;
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = mig_profiles(choice->cards[i].handle, profiles);
        if (count && !any) {
            rule(81, '-');
            printf("| %-77s |\n", "GPU instance profiles:");
            puts("| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC"
                 "  |");
            puts("|                                Free/Total   GiB              CE    JPEG  OFA"
                 "  |");
            rule(81, '=');
        }
        for (u32 j = 0; j < count; j++, any = true) {
            const nvmlGpuInstanceProfileInfo_v2_t *info = &profiles[j].info;
            char share[16], memory[16];
            u32 room = 0;
            nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(choice->cards[i].handle, info->id,
                                                           &room);
            snprintf(share, sizeof share, "%u/%u", room, info->instanceCount);
            snprintf(memory, sizeof memory, "%.2f", (double)info->memorySizeMB / 1024);
            printf("|%4u  %-20s%2u     %-11s%-11s%s%7u%6u%6u   |\n", choice->cards[i].index,
                   info->name, info->id, share, memory, info->isP2pSupported ? "Yes" : "No",
                   info->multiprocessorCount, info->decoderCount, info->encoderCount);
            printf("|%64u%6u%6u   |\n", info->copyEngineCount, info->jpegCount, info->ofaCount);
            rule(81, '-');
        }
    }
    if (!any)
        fail(EXIT_NO_DEVICES, "No MIG-supported devices found.\n");
    return 0;
}

int mig_list_placements(const struct choice *choice)
{
    struct mig_profile profiles[GI_PROFILES];
    bool any = false;
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = mig_profiles(choice->cards[i].handle, profiles);
        for (u32 j = 0; j < count; j++, any = true) {
            nvmlPlacement_t places[GI_MAX];
            u32 number = GI_MAX;
            if (nvml.nvmlDeviceGetGpuInstancePossiblePlacements_v2(
                    choice->cards[i].handle, profiles[j].info.id, places, &number) !=
                NVML_SUCCESS)
                continue;
            printf("GPU %2u Profile ID %2u %s: {", choice->cards[i].index, profiles[j].info.id,
                   number == 1 ? "Placement " : "Placements");
            for (u32 k = 0; k < number; k++)
                printf("%s%u", k ? "," : "", places[k].start);
            printf("}:%u\n", number ? places[0].size : 0);
        }
    }
    if (!any)
        fail(EXIT_NO_DEVICES, "No MIG-supported devices found.\n");
    return 0;
}

int mig_list_instances(const struct choice *choice, const struct mig_request *request)
{
    bool any = false;
    gi_t found[GI_MAX];
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = mig_instances(choice->cards[i].handle, request->gpu_instances, found);
        for (u32 j = 0; j < count; j++) {
            nvmlGpuInstanceInfo_t info;
            if (nvml.nvmlGpuInstanceGetInfo(found[j], &info) != NVML_SUCCESS)
                continue;
            if (!any) {
                rule(57, '-');
                printf("| %-53s |\n", "GPU instances:");
                puts("| GPU   Name             Profile  Instance   Placement  |");
                puts("|                          ID       ID       Start:Size |");
                rule(57, '=');
            }
            any = true;
            printf("|%4u  %-20s%2u%9u%11u:%u     |\n", choice->cards[i].index,
                   mig_profile_name(choice->cards[i].handle, info.profileId), info.profileId,
                   info.id, info.placement.start, info.placement.size);
            rule(57, '-');
        }
    }
    if (!any)
        fail(EXIT_NO_DEVICES, "No GPU instances found: Not Found\n");
    return 0;
}

static void print_compute_instance(const struct card *card, gi_t instance, ci_t compute)
{
    nvmlGpuInstanceInfo_t outer;
    nvmlComputeInstanceInfo_t info;
    nvmlComputeInstanceProfileInfo_v2_t profile = {.name = "N/A"};
    if (nvml.nvmlGpuInstanceGetInfo(instance, &outer) != NVML_SUCCESS ||
        nvml.nvmlComputeInstanceGetInfo_v2(compute, &info) != NVML_SUCCESS)
        return;
    mig_compute_profile(instance, info.profileId, &profile);
    printf("|%4u%7u       %-20s%2u%10u%11u:%u     |\n", card->index, outer.id, profile.name,
           info.profileId, info.id, info.placement.start, info.placement.size);
    rule(70, '-');
}

int mig_list_compute(const struct choice *choice, const struct mig_request *request)
{
    bool any = false;
    gi_t outer[GI_MAX];
    ci_t found[CI_MAX];
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = mig_instances(choice->cards[i].handle, request->gpu_instances, outer);
        for (u32 j = 0; j < count; j++) {
            u32 inner = mig_compute_instances(outer[j], request->compute_instances, found);
            if (inner && !any) {
                rule(70, '-');
                printf("| %-66s |\n", "Compute instances:");
                puts("| GPU     GPU       Name             Profile   Instance   Placement  |");
                puts("|       Instance                       ID        ID       Start:Size |");
                puts("|         ID                                                         |");
                rule(70, '=');
            }
            for (u32 k = 0; k < inner; k++, any = true)
                print_compute_instance(&choice->cards[i], outer[j], found[k]);
        }
    }
    if (!any)
        fail(EXIT_NO_DEVICES, "No compute instances found: Not Found\n");
    return 0;
}

static void print_compute_profile(const struct card *card, gi_t instance, u32 gi,
                                  const nvmlComputeInstanceProfileInfo_v2_t *profile)
{
    const nvmlComputeInstanceProfileInfo_t *info = &profile->info;
    u32 room = 0;
    char share[16];
    nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, info->id, &room);
    snprintf(share, sizeof share, "%u/%u", room, info->instanceCount);
    printf("|%4u%7u       %-20s%2u%c     %-3s%13u%9u%6u%6u   |\n", card->index, gi, profile->name,
           info->id, info->id == mig_default_profile(instance) ? '*' : ' ', share,
           info->multiprocessorCount, info->sharedDecoderCount, info->sharedEncoderCount,
           info->sharedOfaCount);
    printf("|%71u%6u         |\n", info->sharedCopyEngineCount, info->sharedJpegCount);
    rule(88, '-');
}

int mig_list_compute_profiles(const struct choice *choice, const struct mig_request *request)
{
    bool any = false;
    gi_t outer[GI_MAX];
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = mig_instances(choice->cards[i].handle, request->gpu_instances, outer);
        for (u32 j = 0; j < count; j++) {
            nvmlGpuInstanceInfo_t info;
            if (nvml.nvmlGpuInstanceGetInfo(outer[j], &info) != NVML_SUCCESS)
                continue;
            if (!any) {
                rule(88, '-');
                printf("| %-84s |\n", "Compute instance profiles:");
                puts("| GPU     GPU       Name             Profile  Instances   Exclusive       "
                     "Shared       |");
                puts("|       Instance                       ID     Free/Total     SM       DEC   "
                     "ENC   OFA  |");
                puts("|         ID                                                          CE    "
                     "JPEG       |");
                rule(88, '=');
            }
            any = true;
            for (u32 index = 0; index < CI_PROFILES; index++) {
                nvmlComputeInstanceProfileInfo_v2_t profile = {
                    .version = NVML_STRUCT(profile, 2)};
                if (nvml.nvmlGpuInstanceGetComputeInstanceProfileInfoV(outer[j], index, 0,
                                                                       &profile) == NVML_SUCCESS)
                    print_compute_profile(&choice->cards[i], outer[j], info.id, &profile);
            }
        }
    }
    if (!any)
        fail(EXIT_NO_DEVICES, "No GPU instances found: Not Found\n");
    return 0;
}

