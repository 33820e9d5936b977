/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvidia-smi of a simulated host: arguments in, one command out, the maker's texts and exit codes.
 */
#include "smi.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

struct smi_calls nvml;

static nvmlReturn_t absent(void)
{
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static void no_bus_id(u32 index, char *to, u32 size)
{
    (void)index;
    snprintf(to, size, "%s", "");
}

const char *error_text(nvmlReturn_t code)
{
    switch (code) {
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
    case NVML_ERROR_OPERATING_SYSTEM: return "GPU access blocked by the operating system";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case NVML_ERROR_IN_USE: return "In use by another client";
    case NVML_ERROR_MEMORY: return "Insufficient Memory";
    case NVML_ERROR_NO_DATA: return "No data";
    case NVML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    case NVML_ERROR_DEPRECATED: return "Requested functionality has been deprecated";
    case NVML_ERROR_INVALID_STATE: return "Invalid State";
    default: return "Unknown Error";
    }
}

int exit_code(nvmlReturn_t code)
{
    return code > 254 ? EXIT_OTHER : (int)code;
}

void fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    fflush(stdout);
    exit(code);
}

static void load_library(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library)
        fail(12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make "
                 "sure that the NVIDIA Display Driver is properly installed and present in your "
                 "system.\nPlease also try adding directory that contains libnvidia-ml.so to "
                 "your system PATH.\n");
#define X(name, parameters)                                                                        \
    *(void **)&nvml.name = dlsym(library, #name);                                                  \
    if (!nvml.name)                                                                                \
        *(void **)&nvml.name = (void *)absent;
    SMI_CALLS(X)
#undef X
    *(void **)&nvml.simBusId = dlsym(library, "simBusId");
    if (!nvml.simBusId)
        nvml.simBusId = no_bus_id;
}

/* The first two numbers of a version: 580.105 of 580.105.08. */
static size_t release_length(const char *version)
{
    size_t first = strcspn(version, ".");
    return version[first] ? first + 1 + strcspn(version + first + 1, ".") : first;
}

/* NVML's own version is the CUDA major before the driver's: 13.580.105.08. */
static void print_library_version(const char *version)
{
    const char *release = version + strcspn(version, ".");
    release += *release == '.';
    printf("NVML library version: %.*s\n", (int)release_length(release), release);
}

static void initialise(void)
{
    load_library();
    nvmlReturn_t code = nvml.nvmlInit_v2();
    if (code == NVML_ERROR_DRIVER_NOT_LOADED)
        fail(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
                "Make sure that the latest NVIDIA driver is installed and running.\n\n");
    if (code == NVML_SUCCESS)
        return;
    char version[80] = "";
    printf("Failed to initialize NVML: %s\n", error_text(code));
    if (code == NVML_ERROR_LIB_RM_VERSION_MISMATCH &&
        nvml.nvmlSystemGetNVMLVersion(version, sizeof version) == NVML_SUCCESS)
        print_library_version(version);
    fail(exit_code(code), "%s", "");
}

static void describe_card(struct card *card)
{
    nvmlPciInfo_t pci;
    snprintf(card->bus_id, sizeof card->bus_id, "%s", "");
    if (nvml.nvmlDeviceGetPciInfo_v3(card->handle, &pci) == NVML_SUCCESS)
        snprintf(card->bus_id, sizeof card->bus_id, "%s", pci.busId);
    if (nvml.nvmlDeviceGetName(card->handle, card->name, sizeof card->name) != NVML_SUCCESS)
        snprintf(card->name, sizeof card->name, "%s", "Unknown Error");
}

/* A lost card has no handle; the real program names it by bus id from the driver's list. */
static void report_lost(u32 index, nvmlReturn_t code)
{
    char bus_id[32] = "";
    nvml.simBusId(index, bus_id, sizeof bus_id);
    const char *shown = strlen(bus_id) > 4 ? bus_id + 4 : bus_id;
    printf("Unable to determine the device handle for GPU%u: %s%s%s\n", index, shown,
           *shown ? ": " : "", error_text(code));
}

static bool same_bus_id(const char *wanted, const char *bus_id)
{
    unsigned domain = 0, bus, device, own_domain, own_bus, own_device;
    if (sscanf(bus_id, "%x:%x:%x", &own_domain, &own_bus, &own_device) != 3)
        return false;
    if (sscanf(wanted, "%x:%x:%x", &domain, &bus, &device) != 3) {
        domain = 0;
        if (sscanf(wanted, "%x:%x", &bus, &device) != 2)
            return false;
    }
    return domain == own_domain && bus == own_bus && device == own_device;
}

bool parse_number(const char *text, u32 *number)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value > UINT32_MAX - 1)
        return false;
    *number = (u32)value;
    return true;
}

static bool is_wanted(const struct card *card, const char *list)
{
    char copy[4096], own[96], *rest = copy, *word;
    if (!list)
        return true;
    snprintf(copy, sizeof copy, "%s", list);
    while ((word = strsep(&rest, ","))) {
        u32 index;
        if (parse_number(word, &index) && index == card->index)
            return true;
        if (card->status != NVML_SUCCESS)
            continue;
        if (nvml.nvmlDeviceGetUUID(card->handle, own, sizeof own) == NVML_SUCCESS &&
            !strcasecmp(own, word))
            return true;
        if (nvml.nvmlDeviceGetSerial(card->handle, own, sizeof own) == NVML_SUCCESS &&
            !strcmp(own, word))
            return true;
        if (strchr(word, ':') && same_bus_id(word, card->bus_id))
            return true;
    }
    return false;
}

void choose(const char *list, struct choice *choice)
{
    u32 count = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetCount_v2(&count);
    if (code != NVML_SUCCESS)
        fail(exit_code(code), "Unable to determine the number of GPUs: %s\n", error_text(code));
    for (u32 index = 0; index < count && choice->count < SMI_CARDS; index++) {
        struct card card = {.index = index};
        card.status = nvml.nvmlDeviceGetHandleByIndex_v2(index, &card.handle);
        if (card.status == NVML_SUCCESS)
            describe_card(&card);
        if (!is_wanted(&card, list))
            continue;
        if (card.status != NVML_SUCCESS) {
            report_lost(index, card.status);
            choice->lost = true;
            code = card.status;
            continue;
        }
        choice->cards[choice->count++] = card;
    }
    if (choice->count == 0)
        fail(choice->lost ? exit_code(code) : EXIT_NO_DEVICES, "No devices were found\n");
}

bool field_value(dev handle, u32 field, u32 scope, u64 *value)
{
    nvmlFieldValue_t asked = {.fieldId = field, .scopeId = scope};
    if (nvml.nvmlDeviceGetFieldValues(handle, 1, &asked) != NVML_SUCCESS ||
        asked.nvmlReturn != NVML_SUCCESS)
        return false;
    switch (asked.valueType) {
    case NVML_UINT: *value = asked.value.uiVal; break;
    case NVML_INT: *value = (u64)(long long)asked.value.siVal; break;
    case NVML_DOUBLE: *value = (u64)asked.value.dVal; break;
    default: *value = asked.value.ullVal; break;
    }
    return true;
}

struct arguments {
    const char *cards, *query, *processes, *format, *sections;
    bool list, list_excluded, details;
    long loop_ms;
    struct changes changes;
};

/* Returns the value of an option that is written `--name=value`, `--name value` or `-n value`. */
static const char *value_of(const char *name, int *place, int argc, char **argv)
{
    size_t length = strlen(name);
    const char *given = argv[*place];
    if (strncmp(given, name, length))
        return NULL;
    if (given[length] == '=')
        return given + length + 1;
    if (given[length])
        return NULL;
    if (*place + 1 >= argc)
        fail(EXIT_ARGUMENT, "Option \"%s\" is missing its value.\n", name);
    return argv[++*place];
}

static bool take_value(struct arguments *arguments, int *place, int argc, char **argv)
{
    struct changes *changes = &arguments->changes;
    const struct {
        const char *name, **to;
    } options[] = {
        {"-i", &arguments->cards},
        {"--id", &arguments->cards},
        {"--query-gpu", &arguments->query},
        {"--query-compute-apps", &arguments->processes},
        {"--format", &arguments->format},
        {"-d", &arguments->sections},
        {"--display", &arguments->sections},
        {"-mig", &changes->mig},
        {"--multi-instance-gpu", &changes->mig},
        {"-pm", &changes->persistence},
        {"--persistence-mode", &changes->persistence},
        {"-c", &changes->compute_mode},
        {"--compute-mode", &changes->compute_mode},
        {"-pl", &changes->power_limit},
        {"--power-limit", &changes->power_limit},
        {"-e", &changes->ecc},
        {"--ecc-config", &changes->ecc},
        {"-lgc", &changes->locked_clocks},
        {"--lock-gpu-clocks", &changes->locked_clocks},
        {"-ac", &changes->app_clocks},
        {"--applications-clocks", &changes->app_clocks},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const char *value = value_of(options[i].name, place, argc, argv);
        if (value) {
            *options[i].to = value;
            return true;
        }
    }
    return false;
}

static bool take_flag(struct arguments *arguments, const char *given)
{
    const struct {
        const char *brief, *name;
        bool *to;
    } flags[] = {
        {"-L", "--list-gpus", &arguments->list},
        {"-B", "--list-excluded-gpus", &arguments->list_excluded},
        {"-q", "--query", &arguments->details},
        {"-r", "--gpu-reset", &arguments->changes.reset},
        {"-rgc", "--reset-gpu-clocks", &arguments->changes.reset_locked_clocks},
        {"-rac", "--reset-applications-clocks", &arguments->changes.reset_app_clocks},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(given, flags[i].brief) || !strcmp(given, flags[i].name))
            return *flags[i].to = true;
    return false;
}

/* -l and -lms may stand without a value (5 seconds, 5000 milliseconds). */
static bool take_loop(struct arguments *arguments, int *place, int argc, char **argv)
{
    const char *given = argv[*place];
    const struct {
        const char *name;
        long unit;
    } options[] = {{"-lms", 1}, {"--loop-ms", 1}, {"-l", 1000}, {"--loop", 1000}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        size_t length = strlen(options[i].name);
        u32 number;
        if (strncmp(given, options[i].name, length) || (given[length] && given[length] != '='))
            continue;
        if (given[length] == '=') {
            if (!parse_number(given + length + 1, &number))
                fail(EXIT_ARGUMENT, "Invalid loop interval \"%s\".\n", given + length + 1);
            arguments->loop_ms = (long)number * options[i].unit;
        } else if (*place + 1 < argc && parse_number(argv[*place + 1], &number)) {
            ++*place;
            arguments->loop_ms = (long)number * options[i].unit;
        } else {
            arguments->loop_ms = 5000;
        }
        return true;
    }
    return false;
}

static void print_version(void)
{
    char driver[80] = "N/A", library[80] = "N/A";
    int cuda = 0;
    nvml.nvmlSystemGetDriverVersion(driver, sizeof driver);
    nvml.nvmlSystemGetNVMLVersion(library, sizeof library);
    nvml.nvmlSystemGetCudaDriverVersion(&cuda);
    printf("NVIDIA-SMI version  : %s\nNVML version        : %.*s\nDRIVER version      : %s\n"
           "CUDA Version        : %d.%d\n",
           driver, (int)release_length(driver), driver, driver, cuda / 1000, cuda % 1000 / 10);
}

static const char *const HELP =
    "NVIDIA System Management Interface -- of a simulated host\n\n"
    "    nvidia-smi [OPTION1 [ARG1]] [OPTION2 [ARG2]] ...\n\n"
    "    -h,   --help                Print usage information and exit.\n"
    "          --version             Print version information and exit.\n"
    "    -L,   --list-gpus           Display a list of GPUs connected to the system.\n"
    "    -i,   --id=                 Target a specific GPU: index, UUID, serial or PCI bus ID.\n"
    "    -l,   --loop=               Probe until Ctrl+C at specified second interval.\n"
    "    -lms, --loop-ms=            Probe until Ctrl+C at specified millisecond interval.\n"
    "    -q,   --query               Display GPU info.\n"
    "    -d,   --display=            Display only selected information with -q.\n"
    "    --query-gpu=                Information about GPU; see --help-query-gpu.\n"
    "    --query-compute-apps=       List of currently active compute processes.\n"
    "    --format=                   csv[,noheader][,nounits]\n"
    "    -pm,  --persistence-mode=   Set persistence mode: 0/DISABLED, 1/ENABLED\n"
    "    -e,   --ecc-config=         Toggle ECC support: 0/DISABLED, 1/ENABLED\n"
    "    -c,   --compute-mode=       0/DEFAULT, 2/PROHIBITED, 3/EXCLUSIVE_PROCESS\n"
    "    -r    --gpu-reset           Trigger reset of the GPU.\n"
    "    -lgc  --lock-gpu-clocks=    Specifies <minGpuClock,maxGpuClock> clocks.\n"
    "    -rgc  --reset-gpu-clocks    Resets the Gpu clocks to the default values.\n"
    "    -ac   --applications-clocks= Specifies <memory,graphics> clocks.\n"
    "    -rac  --reset-applications-clocks\n"
    "    -pl   --power-limit=        Specifies maximum power management limit in watts.\n"
    "    -mig  --multi-instance-gpu= Enable or disable Multi Instance GPU: 0, 1\n"
    "    topo                        Displays device/system topology. \"nvidia-smi topo -h\"\n"
    "    mig                         Provides controls for MIG management. \"nvidia-smi mig -h\"\n"
    "    compute-policy              Control and query compute policies.\n";

static struct arguments parse(int argc, char **argv)
{
    struct arguments arguments = {0};
    for (int place = 1; place < argc; place++) {
        const char *given = argv[place];
        if (!strcmp(given, "-h") || !strcmp(given, "--help"))
            fail(0, "%s", HELP);
        if (!strcmp(given, "--help-query-gpu"))
            exit(help_query_cards());
        if (!strcmp(given, "--help-query-compute-apps"))
            exit(help_query_processes());
        if (take_flag(&arguments, given) || take_loop(&arguments, &place, argc, argv) ||
            take_value(&arguments, &place, argc, argv))
            continue;
        if (!strcmp(given, "--version")) {
            initialise();
            print_version();
            exit(0);
        }
        fail(EXIT_ARGUMENT,
             "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
    }
    return arguments;
}

static int once(const struct arguments *arguments, bool first)
{
    static struct choice choice;
    char format[256];
    choice = (struct choice){0};
    choose(arguments->cards, &choice);
    /* A repeated query prints its header once. */
    snprintf(format, sizeof format, "%s%s", arguments->format ? arguments->format : "",
             first ? "" : ",noheader");
    if (any_change(&arguments->changes))
        return apply_changes(&choice, &arguments->changes);
    if (arguments->list)
        return list_cards(&choice, true);
    if (arguments->query)
        return query_cards(&choice, arguments->query, format);
    if (arguments->processes)
        return query_processes(&choice, arguments->processes, format);
    if (arguments->details)
        return print_details(&choice, arguments->sections);
    return print_table(&choice);
}

static int run(const struct arguments *arguments)
{
    if (arguments->list_excluded)
        fail(0, "No excluded devices found\n");
    if ((arguments->query || arguments->processes) &&
        (!arguments->format || strncmp(arguments->format, "csv", 3)))
        fail(EXIT_ARGUMENT, "\"--format=\" option with csv is required with a query. Please run "
                            "'nvidia-smi -h' for help.\n");
    int code = once(arguments, true);
    while (arguments->loop_ms > 0) {
        struct timespec pause = {arguments->loop_ms / 1000, arguments->loop_ms % 1000 * 1000000};
        fflush(stdout);
        nanosleep(&pause, NULL);
        code = once(arguments, false);
    }
    return code;
}

int main(int argc, char **argv)
{
    int code;
    const char *command = argc > 1 ? argv[1] : "";
    signal(SIGPIPE, SIG_DFL);
    bool is_command = *command && *command != '-';
    struct arguments arguments = is_command ? (struct arguments){0} : parse(argc, argv);
    initialise();
    if (!strcmp(command, "mig"))
        code = mig_command(argc - 2, argv + 2);
    else if (!strcmp(command, "topo"))
        code = topology_command(argc - 2, argv + 2);
    else if (!strcmp(command, "compute-policy"))
        code = policy_command(argc - 2, argv + 2);
    else if (is_command)
        fail(EXIT_ARGUMENT,
             "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
    else
        code = run(&arguments);
    fflush(stdout);
    nvml.nvmlShutdown();
    return code;
}
