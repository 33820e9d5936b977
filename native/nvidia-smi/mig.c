/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvidia-smi mig: profiles, placements, instances; create and destroy.
 *
 * Profile ids (19, 14, …) are what people type; NVML's queries want its own enum, so every look-up
 * walks the enum and compares ids. Layouts are those of drivers from 570 on.
 */
#include <stdlib.h>
#include <string.h>

#include "smi.h"

struct profile {
    u32 index; /* NVML's enum. */
    nvmlGpuInstanceProfileInfo_v2_t info;
};

struct request {
    const char *cards, *gpu_instances, *compute_instances, *create, *create_compute;
    bool list_profiles, list_placements, list, list_compute, list_compute_profiles;
    bool and_compute, compute_default, destroy, destroy_compute;
};

static const char *const NO_MIG = "No MIG-enabled devices found.\n";

static void rule(u32 width, char fill)
{
    putchar(fill == '=' ? '|' : '+');
    for (u32 i = 2; i < width; i++)
        putchar(fill);
    puts(fill == '=' ? "|" : "+");
}

/* Profiles as nvidia-smi lists them: the smallest first. */
static u32 profiles_of(dev handle, struct profile *profiles)
{
    static const u32 ORDER[GI_PROFILES] = {0, 7, 10, 15, 13, 9, 1, 8, 11, 16,
                                           14, 2, 17, 3, 12, 6, 4, 5};
    u32 count = 0;
    for (u32 i = 0; i < GI_PROFILES; i++) {
        struct profile *profile = &profiles[count];
        profile->index = ORDER[i];
        profile->info = (nvmlGpuInstanceProfileInfo_v2_t){.version = 0};
        profile->info.version = NVML_STRUCT(profile->info, 2);
        if (nvml.nvmlDeviceGetGpuInstanceProfileInfoV(handle, ORDER[i], &profile->info) ==
            NVML_SUCCESS)
            count++;
    }
    return count;
}

static bool mig_mode(dev handle, u32 *current)
{
    u32 pending;
    return nvml.nvmlDeviceGetMigMode(handle, current, &pending) == NVML_SUCCESS;
}

static bool listed(const char *list, u32 number)
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

static int list_profiles(const struct choice *choice)
{
    struct profile profiles[GI_PROFILES];
    bool any = false;
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = profiles_of(choice->cards[i].handle, profiles);
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

static int list_placements(const struct choice *choice)
{
    struct profile profiles[GI_PROFILES];
    bool any = false;
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = profiles_of(choice->cards[i].handle, profiles);
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

/* The GPU instances of a card that the request is about, by id. */
static u32 instances_of(dev handle, const char *wanted, gi_t *found)
{
    u32 count = 0;
    for (u32 id = 0; id < GI_MAX; id++) {
        if (listed(wanted, id) &&
            nvml.nvmlDeviceGetGpuInstanceById(handle, id, &found[count]) == NVML_SUCCESS)
            count++;
    }
    return count;
}

static u32 compute_instances_of(gi_t instance, const char *wanted, ci_t *found)
{
    u32 count = 0;
    for (u32 id = 0; id < CI_MAX; id++) {
        if (listed(wanted, id) &&
            nvml.nvmlGpuInstanceGetComputeInstanceById(instance, id, &found[count]) ==
                NVML_SUCCESS)
            count++;
    }
    return count;
}

static const char *profile_name(dev handle, u32 id)
{
    static struct profile profiles[GI_PROFILES];
    u32 count = profiles_of(handle, profiles);
    for (u32 i = 0; i < count; i++)
        if (profiles[i].info.id == id)
            return profiles[i].info.name;
    return "N/A";
}

/* Looks a compute profile up by its id; answers NVML's enum or SMI_ANY. */
static u32 compute_profile(gi_t instance, u32 id, nvmlComputeInstanceProfileInfo_v2_t *info)
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
static u32 default_profile(gi_t instance)
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

static bool any_enabled(const struct choice *choice)
{
    u32 current = 0;
    for (u32 i = 0; i < choice->count; i++)
        if (mig_mode(choice->cards[i].handle, &current) && current)
            return true;
    return false;
}

static int list_instances(const struct choice *choice, const struct request *request)
{
    bool any = false;
    gi_t found[GI_MAX];
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = instances_of(choice->cards[i].handle, request->gpu_instances, found);
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
                   profile_name(choice->cards[i].handle, info.profileId), info.profileId, info.id,
                   info.placement.start, info.placement.size);
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
    compute_profile(instance, info.profileId, &profile);
    printf("|%4u%7u       %-20s%2u%10u%11u:%u     |\n", card->index, outer.id, profile.name,
           info.profileId, info.id, info.placement.start, info.placement.size);
    rule(70, '-');
}

static int list_compute(const struct choice *choice, const struct request *request)
{
    bool any = false;
    gi_t outer[GI_MAX];
    ci_t found[CI_MAX];
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = instances_of(choice->cards[i].handle, request->gpu_instances, outer);
        for (u32 j = 0; j < count; j++) {
            u32 inner = compute_instances_of(outer[j], request->compute_instances, found);
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
           info->id, info->id == default_profile(instance) ? '*' : ' ', share,
           info->multiprocessorCount, info->sharedDecoderCount, info->sharedEncoderCount,
           info->sharedOfaCount);
    printf("|%71u%6u         |\n", info->sharedCopyEngineCount, info->sharedJpegCount);
    rule(88, '-');
}

static int list_compute_profiles(const struct choice *choice, const struct request *request)
{
    bool any = false;
    gi_t outer[GI_MAX];
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = instances_of(choice->cards[i].handle, request->gpu_instances, outer);
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

static int create_compute(const struct card *card, gi_t instance, u32 id, bool was_given)
{
    nvmlGpuInstanceInfo_t outer = {0};
    nvmlComputeInstanceProfileInfo_v2_t profile;
    nvmlComputeInstanceInfo_t made = {0};
    ci_t compute;
    nvml.nvmlGpuInstanceGetInfo(instance, &outer);
    if (!was_given)
        id = default_profile(instance);
    nvmlReturn_t code = compute_profile(instance, id, &profile) == SMI_ANY
                            ? NVML_ERROR_NOT_SUPPORTED
                            : nvml.nvmlGpuInstanceCreateComputeInstance(instance, id, &compute);
    if (code != NVML_SUCCESS) {
        printf("Unable to create a compute instance on GPU %2u GPU instance ID %2u using profile "
               "%u: %s\nFailed to create compute instances: %s\n",
               card->index, outer.id, id, error_text(code), error_text(code));
        return exit_code(code);
    }
    nvml.nvmlComputeInstanceGetInfo_v2(compute, &made);
    printf("Successfully created compute instance ID %2u on GPU %2u GPU instance ID %2u using "
           "profile %s (ID %2u)\n",
           made.id, card->index, outer.id, profile.name, id);
    return 0;
}

/* A profile is given as an id or a name, with the start of its placement after a colon. */
static bool parse_profile(dev handle, char *word, u32 *id, nvmlPlacement_t *place)
{
    struct profile profiles[GI_PROFILES];
    u32 count = profiles_of(handle, profiles), wanted;
    char *colon = strrchr(word, ':');
    place->size = 0;
    if (colon) {
        if (!parse_number(colon + 1, &place->start))
            return false;
        *colon = 0;
        place->size = 1;
    }
    bool by_id = parse_number(word, &wanted);
    for (u32 i = 0; i < count; i++) {
        const char *name = profiles[i].info.name;
        const char *brief = strncmp(name, "MIG ", 4) ? name : name + 4;
        if (by_id ? profiles[i].info.id != wanted : strcmp(name, word) && strcmp(brief, word))
            continue;
        nvmlPlacement_t places[GI_MAX];
        u32 number = GI_MAX;
        *id = profiles[i].info.id;
        if (place->size &&
            nvml.nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle, *id, places, &number) ==
                NVML_SUCCESS &&
            number)
            place->size = places[0].size;
        return true;
    }
    return false;
}

static int create_one(const struct card *card, char *word, const struct request *request)
{
    u32 id;
    nvmlPlacement_t place = {0, 0};
    gi_t instance;
    nvmlGpuInstanceInfo_t made = {0};
    char asked[96];
    snprintf(asked, sizeof asked, "%s", word);
    nvmlReturn_t code = NVML_ERROR_INVALID_ARGUMENT;
    if (parse_profile(card->handle, word, &id, &place))
        code = place.size ? nvml.nvmlDeviceCreateGpuInstanceWithPlacement(card->handle, id,
                                                                          &place, &instance)
                          : nvml.nvmlDeviceCreateGpuInstance(card->handle, id, &instance);
    if (code != NVML_SUCCESS) {
        printf("Unable to create a GPU instance on GPU %2u using profile %s: %s\n"
               "Failed to create GPU instances: %s\n",
               card->index, asked, error_text(code), error_text(code));
        return exit_code(code);
    }
    nvml.nvmlGpuInstanceGetInfo(instance, &made);
    printf("Successfully created GPU instance ID %2u on GPU %2u using profile %s (ID %2u)\n",
           made.id, card->index, profile_name(card->handle, id), id);
    return request->and_compute ? create_compute(card, instance, 0, false) : 0;
}

static int create(const struct choice *choice, const struct request *request)
{
    if (!any_enabled(choice))
        fail(EXIT_NO_DEVICES, "%s", NO_MIG);
    for (u32 i = 0; i < choice->count; i++) {
        u32 current = 0;
        char copy[1024], *rest = copy, *word;
        if (!mig_mode(choice->cards[i].handle, &current) || !current)
            continue;
        snprintf(copy, sizeof copy, "%s", request->create);
        while ((word = strsep(&rest, ","))) {
            int code = create_one(&choice->cards[i], word, request);
            if (code)
                return code;
        }
    }
    return 0;
}

static int create_computes(const struct choice *choice, const struct request *request)
{
    gi_t outer[GI_MAX];
    bool any = false;
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = instances_of(choice->cards[i].handle, request->gpu_instances, outer);
        for (u32 j = 0; j < count; j++, any = true) {
            char copy[1024], *rest = copy, *word;
            snprintf(copy, sizeof copy, "%s",
                     request->create_compute ? request->create_compute : "");
            while ((word = strsep(&rest, ","))) {
                u32 id = 0;
                bool given = *word != 0;
                if (given && !parse_number(word, &id))
                    fail(EXIT_ARGUMENT, "Invalid compute instance profile \"%s\".\n", word);
                int code = create_compute(&choice->cards[i], outer[j], id, given);
                if (code)
                    return code;
            }
        }
    }
    if (!any)
        fail(EXIT_NO_DEVICES, "No GPU instances found: Not Found\n");
    return 0;
}

static int destroy(const struct choice *choice, const struct request *request)
{
    gi_t outer[GI_MAX];
    bool any = false;
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = instances_of(choice->cards[i].handle, request->gpu_instances, outer);
        for (u32 j = 0; j < count; j++, any = true) {
            nvmlGpuInstanceInfo_t info = {0};
            nvml.nvmlGpuInstanceGetInfo(outer[j], &info);
            nvmlReturn_t code = nvml.nvmlGpuInstanceDestroy(outer[j]);
            if (code != NVML_SUCCESS) {
                printf("Unable to destroy GPU instance ID %2u from GPU %2u: %s\n"
                       "Failed to destroy GPU instances: %s\n",
                       info.id, choice->cards[i].index, error_text(code), error_text(code));
                return exit_code(code);
            }
            printf("Successfully destroyed GPU instance ID %2u from GPU %2u\n", info.id,
                   choice->cards[i].index);
        }
    }
    if (!any)
        fail(EXIT_NO_DEVICES, "No GPU instances found: Not Found\n");
    return 0;
}

static int destroy_compute(const struct choice *choice, const struct request *request)
{
    gi_t outer[GI_MAX];
    ci_t found[CI_MAX];
    bool any = false;
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = instances_of(choice->cards[i].handle, request->gpu_instances, outer);
        for (u32 j = 0; j < count; j++) {
            u32 inner = compute_instances_of(outer[j], request->compute_instances, found);
            nvmlGpuInstanceInfo_t own = {0};
            nvml.nvmlGpuInstanceGetInfo(outer[j], &own);
            for (u32 k = 0; k < inner; k++, any = true) {
                nvmlComputeInstanceInfo_t info = {0};
                nvml.nvmlComputeInstanceGetInfo_v2(found[k], &info);
                nvmlReturn_t code = nvml.nvmlComputeInstanceDestroy(found[k]);
                if (code != NVML_SUCCESS) {
                    printf("Unable to destroy compute instance ID %2u from GPU %2u GPU instance "
                           "ID %2u: %s\nFailed to destroy compute instances: %s\n",
                           info.id, choice->cards[i].index, own.id, error_text(code),
                           error_text(code));
                    return exit_code(code);
                }
                printf("Successfully destroyed compute instance ID %2u from GPU %2u GPU instance "
                       "ID %2u\n",
                       info.id, choice->cards[i].index, own.id);
            }
        }
    }
    if (!any)
        fail(EXIT_NO_DEVICES, "No compute instances found: Not Found\n");
    return 0;
}

static const char *const HELP =
    "    mig -- Multi Instance GPU management.\n\n"
    "    Usage: nvidia-smi mig [options]\n\n"
    "    -i    Enumeration index, PCI bus ID or UUID; comma separated for more than one device\n"
    "    -gi   GPU instance ID, comma separated\n"
    "    -ci   Compute instance ID, comma separated\n"
    "    -lgip List supported GPU instance profiles\n"
    "    -lgipp List possible GPU instance placements: {start}:size\n"
    "    -C    Create compute instances too, with -cgi\n"
    "    -cgi  Create GPU instances: profile ids or names, with :start for a placement\n"
    "    -dgi  Destroy GPU instances\n"
    "    -lgi  List GPU instances\n"
    "    -lcip List supported compute instance profiles\n"
    "    -cci  Create compute instances: profile ids; without any the full size\n"
    "    -dci  Destroy compute instances\n"
    "    -lci  List compute instances\n";

static bool take_flag(struct request *request, const char *given)
{
    const struct {
        const char *brief, *name;
        bool *to;
    } flags[] = {
        {"-lgip", "--list-gpu-instance-profiles", &request->list_profiles},
        {"-lgipp", "--list-gpu-instance-possible-placements", &request->list_placements},
        {"-lgi", "--list-gpu-instances", &request->list},
        {"-lci", "--list-compute-instances", &request->list_compute},
        {"-lcip", "--list-compute-instance-profiles", &request->list_compute_profiles},
        {"-C", "--default-compute-instance", &request->and_compute},
        {"-dgi", "--destroy-gpu-instance", &request->destroy},
        {"-dci", "--destroy-compute-instance", &request->destroy_compute},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(given, flags[i].brief) || !strcmp(given, flags[i].name))
            return *flags[i].to = true;
    return false;
}

static struct request parse(int argc, char **argv)
{
    struct request request = {0};
    for (int place = 0; place < argc; place++) {
        const struct {
            const char *brief, *name, **to;
            bool optional;
        } values[] = {
            {"-i", "--id", &request.cards, false},
            {"-gi", "--gpu-instance-id", &request.gpu_instances, false},
            {"-ci", "--compute-instance-id", &request.compute_instances, false},
            {"-cgi", "--create-gpu-instance", &request.create, false},
            {"-cci", "--create-compute-instance", &request.create_compute, true},
        };
        bool known = take_flag(&request, argv[place]);
        if (!strcmp(argv[place], "-h") || !strcmp(argv[place], "--help"))
            fail(0, "%s", HELP);
        for (size_t i = 0; i < sizeof values / sizeof *values && !known; i++) {
            if (strcmp(argv[place], values[i].brief) && strcmp(argv[place], values[i].name))
                continue;
            known = true;
            if (values[i].optional)
                request.compute_default = true;
            if (place + 1 < argc && argv[place + 1][0] != '-')
                *values[i].to = argv[++place];
            else if (!values[i].optional)
                fail(EXIT_ARGUMENT, "Option \"%s\" is missing its value.\n", argv[place]);
        }
        if (!known)
            fail(EXIT_ARGUMENT, "Option \"%s\" is not recognized. Please run 'nvidia-smi mig "
                                "-h'.\n", argv[place]);
    }
    return request;
}

int mig_command(int argc, char **argv)
{
    static struct choice choice;
    struct request request = parse(argc, argv);
    choose(request.cards, &choice);
    if (request.list_profiles)
        return list_profiles(&choice);
    if (request.list_placements)
        return list_placements(&choice);
    if (request.create)
        return create(&choice, &request);
    if (!any_enabled(&choice))
        fail(EXIT_NO_DEVICES, "%s", NO_MIG);
    if (request.compute_default)
        return create_computes(&choice, &request);
    if (request.destroy_compute)
        return destroy_compute(&choice, &request);
    if (request.destroy)
        return destroy(&choice, &request);
    if (request.list)
        return list_instances(&choice, &request);
    if (request.list_compute)
        return list_compute(&choice, &request);
    if (request.list_compute_profiles)
        return list_compute_profiles(&choice, &request);
    fail(EXIT_ARGUMENT, "%s", HELP);
}
