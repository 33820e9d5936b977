/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvidia-smi mig: arguments, creating and destroying.
 */
#include "mig.h"

#include <string.h>

static const char *const NO_MIG = "No MIG-enabled devices found.\n";

static int create_compute(const struct card *card, gi_t instance, u32 id, bool was_given)
{
    nvmlGpuInstanceInfo_t outer = {0};
    nvmlComputeInstanceProfileInfo_v2_t profile;
    nvmlComputeInstanceInfo_t made = {0};
    ci_t compute;
    nvml.nvmlGpuInstanceGetInfo(instance, &outer);
    if (!was_given)
        id = mig_default_profile(instance);
    nvmlReturn_t code = mig_compute_profile(instance, id, &profile) == SMI_ANY
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
    struct mig_profile profiles[GI_PROFILES];
    u32 count = mig_profiles(handle, profiles), wanted;
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

static int create_one(const struct card *card, char *word, const struct mig_request *request)
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
           made.id, card->index, mig_profile_name(card->handle, id), id);
    return request->and_compute ? create_compute(card, instance, 0, false) : 0;
}

static int create(const struct choice *choice, const struct mig_request *request)
{
    if (!mig_any_enabled(choice))
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

static int create_computes(const struct choice *choice, const struct mig_request *request)
{
    gi_t outer[GI_MAX];
    bool any = false;
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = mig_instances(choice->cards[i].handle, request->gpu_instances, outer);
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

static int destroy(const struct choice *choice, const struct mig_request *request)
{
    gi_t outer[GI_MAX];
    bool any = false;
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = mig_instances(choice->cards[i].handle, request->gpu_instances, outer);
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

static int destroy_compute(const struct choice *choice, const struct mig_request *request)
{
    gi_t outer[GI_MAX];
    ci_t found[CI_MAX];
    bool any = false;
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = mig_instances(choice->cards[i].handle, request->gpu_instances, outer);
        for (u32 j = 0; j < count; j++) {
            u32 inner = mig_compute_instances(outer[j], request->compute_instances, found);
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

static bool take_flag(struct mig_request *request, const char *given)
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

static struct mig_request parse(int argc, char **argv)
{
    struct mig_request request = {0};
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
    struct mig_request request = parse(argc, argv);
    choose(request.cards, &choice);
    if (request.list_profiles)
        return mig_list_profiles(&choice);
    if (request.list_placements)
        return mig_list_placements(&choice);
    if (request.create)
        return create(&choice, &request);
    if (!mig_any_enabled(&choice))
        fail(EXIT_NO_DEVICES, "%s", NO_MIG);
    if (request.compute_default)
        return create_computes(&choice, &request);
    if (request.destroy_compute)
        return destroy_compute(&choice, &request);
    if (request.destroy)
        return destroy(&choice, &request);
    if (request.list)
        return mig_list_instances(&choice, &request);
    if (request.list_compute)
        return mig_list_compute(&choice, &request);
    if (request.list_compute_profiles)
        return mig_list_compute_profiles(&choice, &request);
    fail(EXIT_ARGUMENT, "%s", HELP);
}
