/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The default table (91 columns, as 550 to 595 print it) and the list of -L.
 */
#include <string.h>
#include <strings.h>
#include <time.h>

#include "smi.h"

#define NAME_WIDTH 27
#define PROCESS_WIDTH 36

static const char *const RULE =
    "+-----------------------------------------+------------------------+----------------------+";
static const char *const LINE =
    "+-----------------------------------------------------------------------------------------+";
static const char *const MIG_RULE =
    "+------------------+----------------------------------+-----------+-----------------------+";

static bool mig_enabled(dev handle)
{
    u32 current = 0, pending = 0;
    return nvml.nvmlDeviceGetMigMode(handle, &current, &pending) == NVML_SUCCESS && current;
}

/* A MIG device's profile is the end of its name, after the board's. */
static void profile_name(dev mig, char *to, size_t size)
{
    char name[96];
    if (nvml.nvmlDeviceGetName(mig, name, sizeof name) != NVML_SUCCESS) {
        snprintf(to, size, "%s", "N/A");
        return;
    }
    const char *mark = strstr(name, " MIG ");
    snprintf(to, size, "%s", mark ? mark + 5 : name);
}

static void list_mig(const struct card *card)
{
    u32 most = 0;
    nvml.nvmlDeviceGetMaxMigDeviceCount(card->handle, &most);
    for (u32 index = 0; index < most; index++) {
        dev mig;
        char uuid[96], profile[96];
        if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(card->handle, index, &mig) != NVML_SUCCESS ||
            nvml.nvmlDeviceGetUUID(mig, uuid, sizeof uuid) != NVML_SUCCESS)
            continue;
        profile_name(mig, profile, sizeof profile);
        printf("  MIG %-12sDevice %2u: (UUID: %s)\n", profile, index, uuid);
    }
}

int list_cards(const struct choice *choice, bool with_mig)
{
    for (u32 i = 0; i < choice->count; i++) {
        const struct card *card = &choice->cards[i];
        char uuid[96];
        if (nvml.nvmlDeviceGetUUID(card->handle, uuid, sizeof uuid) != NVML_SUCCESS)
            snprintf(uuid, sizeof uuid, "Unknown Error");
        printf("GPU %u: %s (UUID: %s)\n", card->index, card->name, uuid);
        if (with_mig && mig_enabled(card->handle))
            list_mig(card);
    }
    return 0;
}

static void print_head(void)
{
    char driver[80] = "N/A", cuda[16] = "N/A", stamp[64];
    int version;
    time_t now = time(NULL);
    struct tm local;
    nvml.nvmlSystemGetDriverVersion(driver, sizeof driver);
    if (nvml.nvmlSystemGetCudaDriverVersion(&version) == NVML_SUCCESS)
        snprintf(cuda, sizeof cuda, "%d.%d", version / 1000, version % 1000 / 10);
    strftime(stamp, sizeof stamp, "%a %b %e %H:%M:%S %Y", localtime_r(&now, &local));
    printf("%-31s\n%s\n", stamp, LINE);
    printf("| NVIDIA-SMI %-23sDriver Version: %-15sCUDA Version: %-9s|\n", driver, driver, cuda);
    printf("%s\n", RULE);
    puts("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | "
         "Volatile Uncorr. ECC |");
    puts("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | "
         "GPU-Util  Compute M. |");
    puts("|                                         |                        | "
         "              MIG M. |");
    puts("|=========================================+========================+"
         "======================|");
}

static const char *switch_text(nvmlReturn_t code, u32 on)
{
    return code != NVML_SUCCESS ? "N/A" : on ? "On" : "Off";
}

static void print_first_row(const struct card *card, bool mig)
{
    char name[NAME_WIDTH + 4], ecc[32] = "N/A";
    u32 persistence = 0, display = 0, current = 0, pending = 0;
    u64 errors;
    if (strlen(card->name) > NAME_WIDTH)
        snprintf(name, sizeof name, "%.*s...", NAME_WIDTH - 3, card->name);
    else
        snprintf(name, sizeof name, "%.*s", NAME_WIDTH, card->name);
    if (nvml.nvmlDeviceGetEccMode(card->handle, &current, &pending) == NVML_SUCCESS) {
        if (!current)
            snprintf(ecc, sizeof ecc, "Off");
        else if (mig)
            snprintf(ecc, sizeof ecc, "On");
        else if (nvml.nvmlDeviceGetTotalEccErrors(card->handle, UNCORRECTED, VOLATILE, &errors) ==
                 NVML_SUCCESS)
            snprintf(ecc, sizeof ecc, "%llu", errors);
    }
    nvmlReturn_t persistent = nvml.nvmlDeviceGetPersistenceMode(card->handle, &persistence);
    nvmlReturn_t active = nvml.nvmlDeviceGetDisplayActive(card->handle, &display);
    printf("| %3u  %-31s%-4s| %18s %-4s| %20s |\n", card->index, name,
           switch_text(persistent, persistence), card->bus_id, switch_text(active, display), ecc);
}

static void print_second_row(const struct card *card, bool mig)
{
    char fan[8] = "N/A", heat[12] = "N/A", state[8] = "N/A", power[16] = "N/A", cap[16] = " N/A ";
    char used[64], busy[12] = "N/A";
    const char *mode = "N/A";
    u32 value;
    nvmlMemory_v2_t memory = {.version = NVML_STRUCT(memory, 2)};
    nvmlUtilization_t utilization;
    if (nvml.nvmlDeviceGetFanSpeed(card->handle, &value) == NVML_SUCCESS)
        snprintf(fan, sizeof fan, "%u%%", value);
    if (nvml.nvmlDeviceGetTemperature(card->handle, 0, &value) == NVML_SUCCESS)
        snprintf(heat, sizeof heat, "%uC", value);
    if (nvml.nvmlDeviceGetPerformanceState(card->handle, &value) == NVML_SUCCESS)
        snprintf(state, sizeof state, "P%u", value);
    if (nvml.nvmlDeviceGetPowerUsage(card->handle, &value) == NVML_SUCCESS)
        snprintf(power, sizeof power, "%uW", (value + 500) / 1000);
    if (nvml.nvmlDeviceGetEnforcedPowerLimit(card->handle, &value) == NVML_SUCCESS)
        snprintf(cap, sizeof cap, "%uW", value / 1000);
    if (nvml.nvmlDeviceGetMemoryInfo_v2(card->handle, &memory) == NVML_SUCCESS)
        snprintf(used, sizeof used, "%7lluMiB / %6lluMiB", memory.used >> 20, memory.total >> 20);
    else
        snprintf(used, sizeof used, "%-22s", "Not Supported");
    if (!mig && nvml.nvmlDeviceGetUtilizationRates(card->handle, &utilization) == NVML_SUCCESS)
        snprintf(busy, sizeof busy, "%u%%", utilization.gpu);
    if (nvml.nvmlDeviceGetComputeMode(card->handle, &value) == NVML_SUCCESS)
        mode = value == 0 ? "Default" : value == 2 ? "Prohibited" : "E. Process";
    printf("|%4s %5s %5s %15s / %5s | %22s | %7s %12s |\n", fan, heat, state, power, cap, used,
           busy, mode);
}

static void print_third_row(const struct card *card)
{
    u32 current, pending;
    char mig[16] = "N/A";
    if (nvml.nvmlDeviceGetMigMode(card->handle, &current, &pending) == NVML_SUCCESS)
        snprintf(mig, sizeof mig, "%s%s", current ? "Enabled" : "Disabled",
                 current != pending ? "*" : "");
    printf("| %39s | %22s | %20s |\n%s\n", "", "", mig, RULE);
}

static void print_mig_device(const struct card *card, u32 index, dev mig, u32 *last)
{
    u32 gi = 0, ci = 0;
    nvmlMemory_t memory = {0};
    nvmlBAR1Memory_t bar1 = {0};
    nvmlDeviceAttributes_t has = {0};
    u64 errors = 0;
    char used[64] = "", aperture[64] = "";
    nvml.nvmlDeviceGetGpuInstanceId(mig, &gi);
    nvml.nvmlDeviceGetComputeInstanceId(mig, &ci);
    nvml.nvmlDeviceGetMemoryInfo(mig, &memory);
    nvml.nvmlDeviceGetBAR1MemoryInfo(mig, &bar1);
    nvml.nvmlDeviceGetAttributes_v2(mig, &has);
    nvml.nvmlDeviceGetTotalEccErrors(mig, UNCORRECTED, VOLATILE, &errors);
    bool shared = gi == *last; /* The compute instances of one GPU instance share one cell. */
    if (!shared) {
        snprintf(used, sizeof used, "%16lluMiB / %5lluMiB    ", memory.used >> 20,
                 memory.total >> 20);
        snprintf(aperture, sizeof aperture, "%18lluMiB / %5lluMiB  ", bar1.bar1Used >> 20,
                 bar1.bar1Total >> 20);
        if (*last != SMI_ANY)
            puts(MIG_RULE);
    } else {
        puts("+------------------+                                  +-----------+"
             "-----------------------+");
    }
    printf("|%3u %4u %3u %3u  |%34s|%3u %6llu |%3u %3u %4u %4u %4u |\n", card->index, gi, ci, index,
           used, has.multiprocessorCount, errors, has.sharedCopyEngineCount,
           has.sharedEncoderCount, has.sharedDecoderCount, has.sharedOfaCount,
           has.sharedJpegCount);
    printf("|                  |%-34.34s|           |                       |\n", aperture);
    *last = gi;
}

static void print_mig(const struct choice *choice)
{
    bool any_mode = false, any_device = false;
    for (u32 i = 0; i < choice->count; i++)
        any_mode |= mig_enabled(choice->cards[i].handle);
    if (!any_mode)
        return;
    printf("\n%s\n| %-87s |\n", LINE, "MIG devices:");
    printf("%s\n", MIG_RULE);
    puts("| GPU  GI  CI  MIG |              Shared Memory-Usage"
         " |        Vol|        Shared         |");
    puts("|      ID  ID  Dev |                Shared BAR1-Usage"
         " | SM     Unc| CE ENC  DEC  OFA  JPG |");
    puts("|                  |                                 "
         " |        ECC|                       |");
    puts("|==================+================================="
         "=+===========+=======================|");
    for (u32 i = 0; i < choice->count; i++) {
        u32 most = 0, last = SMI_ANY;
        dev mig;
        nvml.nvmlDeviceGetMaxMigDeviceCount(choice->cards[i].handle, &most);
        for (u32 index = 0; index < most; index++)
            if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(choice->cards[i].handle, index, &mig) ==
                NVML_SUCCESS) {
                print_mig_device(&choice->cards[i], index, mig, &last);
                any_device = true;
            }
        if (last != SMI_ANY)
            puts(MIG_RULE);
    }
    if (!any_device)
        printf("|  %-86s |\n%s\n", "No MIG devices found", LINE);
}

static void print_instance(char *to, size_t size, u32 id)
{
    if (id == SMI_ANY)
        snprintf(to, size, "N/A");
    else
        snprintf(to, size, "%u", id);
}

static void print_uses(const struct choice *choice)
{
    static struct use uses[512];
    bool any = false;
    printf("\n%s\n| %-87s |\n", LINE, "Processes:");
    puts("|  GPU   GI   CI              PID   Type   Process name                        "
         "GPU Memory |");
    puts("|        ID   ID                                                               "
         "Usage      |");
    puts("|============================================="
         "============================================|");
    for (u32 i = 0; i < choice->count; i++) {
        u32 count = list_uses(choice->cards[i].handle, uses, 512);
        for (u32 j = 0; j < count; j++, any = true) {
            char gi[12], ci[12], name[PROCESS_WIDTH + 1], memory[24];
            size_t length = strlen(uses[j].name);
            print_instance(gi, sizeof gi, uses[j].gi);
            print_instance(ci, sizeof ci, uses[j].ci);
            if (length > PROCESS_WIDTH - 1)
                snprintf(name, sizeof name, "...%s", uses[j].name + length - (PROCESS_WIDTH - 4));
            else
                snprintf(name, sizeof name, "%.*s", PROCESS_WIDTH - 1, uses[j].name);
            if (uses[j].bytes == ~0ULL)
                snprintf(memory, sizeof memory, "N/A");
            else
                snprintf(memory, sizeof memory, "%lluMiB", uses[j].bytes >> 20);
            printf("|%5u %5s %4s %15u %6s   %-*s%10s |\n", choice->cards[i].index, gi, ci,
                   uses[j].pid, uses[j].type, PROCESS_WIDTH, name, memory);
        }
    }
    if (!any)
        printf("|  %-86s |\n", "No running processes found");
    puts(LINE);
}

int print_table(const struct choice *choice)
{
    print_head();
    for (u32 i = 0; i < choice->count; i++) {
        bool mig = mig_enabled(choice->cards[i].handle);
        print_first_row(&choice->cards[i], mig);
        print_second_row(&choice->cards[i], mig);
        print_third_row(&choice->cards[i]);
    }
    print_mig(choice);
    print_uses(choice);
    return 0;
}
