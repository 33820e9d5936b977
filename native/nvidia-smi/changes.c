/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options that change a card, and compute-policy.
 *
 * Each ends in "All done." or in "Terminating early due to previous errors." and NVML's code.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "smi.h"

static const char *const PERSISTENCE_WARNING =
    "Warning: persistence mode is disabled on device %s. See the Known Issues section of the "
    "nvidia-smi(1) man page for more information. Run with [--help | -h] switch to get more "
    "information on how to enable persistence mode.\n";

static int stop(nvmlReturn_t code)
{
    printf("Terminating early due to previous errors.\n");
    return exit_code(code);
}

static u32 parse_switch(const char *text, const char *option)
{
    if (!strcmp(text, "0") || !strcasecmp(text, "DISABLED"))
        return 0;
    if (!strcmp(text, "1") || !strcasecmp(text, "ENABLED"))
        return 1;
    fail(EXIT_ARGUMENT, "Invalid value \"%s\" for option %s: 0/DISABLED or 1/ENABLED.\n", text,
         option);
}

static void warn_persistence(const struct card *card)
{
    u32 on = 1;
    if (nvml.nvmlDeviceGetPersistenceMode(card->handle, &on) == NVML_SUCCESS && !on)
        printf(PERSISTENCE_WARNING, card->bus_id);
}

static int change_mig(const struct card *card, const char *text)
{
    u32 on = parse_switch(text, "-mig");
    nvmlReturn_t activation = NVML_SUCCESS;
    const char *verb = on ? "enable" : "disable";
    nvmlReturn_t code = nvml.nvmlDeviceSetMigMode(card->handle, on, &activation);
    if (code == NVML_ERROR_NOT_SUPPORTED) {
        printf("Unable to %s MIG Mode for GPU %s: Not Supported\n"
               "Treating as warning and moving on.\n",
               verb, card->bus_id);
        return 0;
    }
    if (code != NVML_SUCCESS) {
        printf("Unable to %s MIG Mode for GPU %s: %s\n", verb, card->bus_id, error_text(code));
        return stop(code);
    }
    if (activation == NVML_SUCCESS) {
        if (on)
            warn_persistence(card);
        printf("%s MIG Mode for GPU %s\n", on ? "Enabled" : "Disabled", card->bus_id);
        return 0;
    }
    printf("Warning: MIG mode is in pending %s state for GPU %s:%s\n", verb, card->bus_id,
           activation == NVML_ERROR_RESET_REQUIRED ? "Not Supported" : error_text(activation));
    if (activation == NVML_ERROR_IN_USE)
        printf("%s is currently being used by one or more other processes (e.g. CUDA application "
               "or a monitoring application such as another instance of nvidia-smi). Please first "
               "kill all processes using the device and retry the command or reboot the system to "
               "make MIG mode effective.\n",
               card->bus_id);
    else
        printf("Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on "
               "GPU %s\n",
               card->bus_id);
    return 0;
}

static int change_persistence(const struct card *card, const char *text)
{
    u32 on = parse_switch(text, "-pm"), now = 0;
    const char *word = on ? "Enabled" : "Disabled";
    if (nvml.nvmlDeviceGetPersistenceMode(card->handle, &now) == NVML_SUCCESS && now == on) {
        printf("Persistence mode is already %s for GPU %s.\n", word, card->bus_id);
        return 0;
    }
    nvmlReturn_t code = nvml.nvmlDeviceSetPersistenceMode(card->handle, on);
    if (code != NVML_SUCCESS) {
        printf("Unable to set persistence mode for GPU %s: %s\n", card->bus_id, error_text(code));
        return stop(code);
    }
    printf("%s persistence mode for GPU %s.\n", word, card->bus_id);
    return 0;
}

static int change_compute_mode(const struct card *card, const char *text)
{
    static const char *const NAMES[] = {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED",
                                        "EXCLUSIVE_PROCESS"};
    u32 mode = 4, now = 4;
    if (!parse_number(text, &mode))
        for (mode = 0; mode < 4 && strcasecmp(text, NAMES[mode]); mode++)
            continue;
    if (mode > 3 || mode == 1)
        fail(EXIT_ARGUMENT, "Invalid compute mode \"%s\": 0/DEFAULT, 2/PROHIBITED or "
                            "3/EXCLUSIVE_PROCESS.\n", text);
    if (nvml.nvmlDeviceGetComputeMode(card->handle, &now) == NVML_SUCCESS && now == mode) {
        printf("Compute mode is already set to %s for GPU %s.\n", NAMES[mode], card->bus_id);
        return 0;
    }
    nvmlReturn_t code = nvml.nvmlDeviceSetComputeMode(card->handle, mode);
    if (code != NVML_SUCCESS) {
        printf("Unable to set the compute mode for GPU %s: %s\n", card->bus_id, error_text(code));
        return stop(code);
    }
    printf("Set compute mode to %s for GPU %s.\n", NAMES[mode], card->bus_id);
    return 0;
}

static int change_power_limit(const struct card *card, const char *text)
{
    char *end;
    double watts = strtod(text, &end);
    u32 least = 0, most = 0, now = 0;
    if (*end || watts <= 0 || watts > 100000)
        fail(EXIT_ARGUMENT, "Invalid power limit \"%s\".\n", text);
    nvml.nvmlDeviceGetPowerManagementLimit(card->handle, &now);
    nvmlReturn_t code = nvml.nvmlDeviceSetPowerManagementLimit(card->handle, (u32)(watts * 1000));
    if (code == NVML_ERROR_NOT_SUPPORTED) {
        printf("Changing power management limit is not supported for GPU: %s.\n"
               "Treating as warning and moving on.\n",
               card->bus_id);
        return 0;
    }
    if (code == NVML_ERROR_INVALID_ARGUMENT) {
        nvml.nvmlDeviceGetPowerManagementLimitConstraints(card->handle, &least, &most);
        printf("Provided power limit %.2f W is not a valid power limit which should be between "
               "%.2f W and %.2f W for GPU %s\n",
               watts, least / 1000.0, most / 1000.0, card->bus_id);
        return stop(code);
    }
    if (code != NVML_SUCCESS) {
        printf("Failed to set power management limit for GPU %s: %s\n", card->bus_id,
               error_text(code));
        return stop(code);
    }
    warn_persistence(card);
    printf("Power limit for GPU %s was set to %.2f W from %.2f W.\n", card->bus_id, watts,
           now / 1000.0);
    return 0;
}

static int change_ecc(const struct card *card, const char *text)
{
    u32 on = parse_switch(text, "-e");
    nvmlReturn_t code = nvml.nvmlDeviceSetEccMode(card->handle, on);
    if (code != NVML_SUCCESS) {
        printf("Unable to set ECC configuration for GPU %s: %s\n", card->bus_id,
               error_text(code));
        return stop(code);
    }
    printf("%s ECC support for GPU %s.\n", on ? "Enabled" : "Disabled", card->bus_id);
    return 0;
}

/* "LOW,HIGH" or one number for both. */
static void parse_pair(const char *text, u32 *first, u32 *second)
{
    char copy[64];
    snprintf(copy, sizeof copy, "%s", text);
    char *comma = strchr(copy, ',');
    if (comma)
        *comma = 0;
    if (!parse_number(copy, first) || !parse_number(comma ? comma + 1 : copy, second))
        fail(EXIT_ARGUMENT, "Invalid clocks \"%s\".\n", text);
}

static int report_clocks(const struct card *card, nvmlReturn_t code, const char *what)
{
    if (code == NVML_SUCCESS) {
        warn_persistence(card);
        printf("%s for GPU %s\n", what, card->bus_id);
        return 0;
    }
    printf("Setting clocks is refused for GPU %s: %s\n", card->bus_id, error_text(code));
    return stop(code);
}

static int change_clocks(const struct card *card, const struct changes *changes)
{
    char text[128];
    u32 first = 0, second = 0;
    if (changes->locked_clocks) {
        parse_pair(changes->locked_clocks, &first, &second);
        snprintf(text, sizeof text, "GPU clocks set to \"(gpuClkMin %u, gpuClkMax %u)\"", first,
                 second);
        return report_clocks(card, nvml.nvmlDeviceSetGpuLockedClocks(card->handle, first, second),
                             text);
    }
    if (changes->app_clocks) {
        parse_pair(changes->app_clocks, &first, &second);
        snprintf(text, sizeof text, "Applications clocks set to \"(MEM %u, SM %u)\"", first,
                 second);
        return report_clocks(
            card, nvml.nvmlDeviceSetApplicationsClocks(card->handle, first, second), text);
    }
    if (changes->reset_locked_clocks)
        return report_clocks(card, nvml.nvmlDeviceResetGpuLockedClocks(card->handle),
                             "GPU clocks reset to default");
    return report_clocks(card, nvml.nvmlDeviceResetApplicationsClocks(card->handle),
                         "Applications clocks reset to default");
}

/* A reset is refused for all when one card is in use, as the real program does. */
static int reset(const struct choice *choice)
{
    u32 busy = 0;
    for (u32 i = 0; i < choice->count; i++) {
        const struct card *card = &choice->cards[i];
        nvmlReturn_t code = nvml.simReset(card->handle);
        if (code == NVML_SUCCESS) {
            printf("GPU %s was successfully reset.\n", card->bus_id);
            continue;
        }
        if (code != NVML_ERROR_IN_USE) {
            printf("Unable to reset GPU %s: %s\n", card->bus_id, error_text(code));
            return stop(code);
        }
        if (!busy++)
            printf("The following GPUs could not be reset:\n");
        printf("  GPU %s: %s\n", card->bus_id, error_text(code));
    }
    if (!busy) {
        printf("All done.\n");
        return 0;
    }
    printf("\n%u device%s currently being used by one or more other processes (e.g., Fabric "
           "Manager, CUDA application, graphics application such as an X server, or a monitoring "
           "application such as another instance of nvidia-smi). Please first kill all processes "
           "using %s and all compute applications running in the system.\n",
           busy, busy == 1 ? " is" : "s are", busy == 1 ? "this device" : "these devices");
    return EXIT_OTHER;
}

bool any_change(const struct changes *changes)
{
    return changes->mig || changes->persistence || changes->compute_mode ||
           changes->power_limit || changes->ecc || changes->locked_clocks ||
           changes->app_clocks || changes->reset || changes->reset_locked_clocks ||
           changes->reset_app_clocks;
}

int apply_changes(const struct choice *choice, const struct changes *changes)
{
    if (changes->reset)
        return reset(choice);
    for (u32 i = 0; i < choice->count; i++) {
        const struct card *card = &choice->cards[i];
        int code = 0;
        if (changes->mig)
            code = change_mig(card, changes->mig);
        else if (changes->persistence)
            code = change_persistence(card, changes->persistence);
        else if (changes->compute_mode)
            code = change_compute_mode(card, changes->compute_mode);
        else if (changes->power_limit)
            code = change_power_limit(card, changes->power_limit);
        else if (changes->ecc)
            code = change_ecc(card, changes->ecc);
        else
            code = change_clocks(card, changes);
        if (code)
            return code;
    }
    printf("All done.\n");
    if (changes->ecc)
        printf("Reboot required.\n");
    return 0;
}

static const char *const SLICES[] = {"Default", "Short", "Medium", "Long"};

static int list_policies(const struct choice *choice)
{
    puts("+-------------------------------------------------------+");
    puts("| GPU compute policies:                                 |");
    puts("| GPU     Name             Value                        |");
    puts("|=======================================================|");
    for (u32 i = 0; i < choice->count; i++) {
        u32 slice = 0;
        nvmlReturn_t code = nvml.simGetTimeslice(choice->cards[i].handle, &slice);
        printf("|%4u     %-17s%-29s|\n", choice->cards[i].index, "Timeslice",
               code != NVML_SUCCESS ? "N/A" : SLICES[slice & 3]);
        puts("+-------------------------------------------------------+");
    }
    return 0;
}

static int set_timeslice(const struct choice *choice, u32 slice)
{
    for (u32 i = 0; i < choice->count; i++) {
        nvmlReturn_t code = nvml.simSetTimeslice(choice->cards[i].handle, slice);
        if (code != NVML_SUCCESS) {
            printf("Failed to set timeslice policy with value %s for GPU %s: %s\n", SLICES[slice],
                   choice->cards[i].bus_id, error_text(code));
            return exit_code(code);
        }
        printf("Successfully set timeslice policy to : %s for GPU %s\n", SLICES[slice],
               choice->cards[i].bus_id);
    }
    return 0;
}

int policy_command(int argc, char **argv)
{
    static struct choice choice;
    static const char SET[] = "--set-timeslice";
    const char *cards = NULL, *slice = NULL;
    bool list = false;
    for (int place = 0; place < argc; place++) {
        const char *given = argv[place];
        bool more = place + 1 < argc;
        if (!strcmp(given, "-l") || !strcmp(given, "--list"))
            list = true;
        else if ((!strcmp(given, "-i") || !strcmp(given, "--id")) && more)
            cards = argv[++place];
        else if (!strncmp(given, SET, sizeof SET - 1) && given[sizeof SET - 1] == '=')
            slice = given + sizeof SET;
        else if (!strcmp(given, SET) && more)
            slice = argv[++place];
        else
            fail(EXIT_ARGUMENT, "Option \"%s\" is not recognized.\n", given);
    }
    u32 number = 0;
    if (slice && (!parse_number(slice, &number) || number > 3))
        fail(EXIT_ARGUMENT, "Invalid timeslice \"%s\": 0 Default, 1 Short, 2 Medium, 3 Long.\n",
             slice);
    if (!slice && !list)
        fail(EXIT_ARGUMENT, "    compute-policy -- Control and query compute policies.\n\n"
                            "    -i  GPU; -l list; --set-timeslice=0|1|2|3\n");
    choose(cards, &choice);
    return slice ? set_timeslice(&choice, number) : list_policies(&choice);
}
