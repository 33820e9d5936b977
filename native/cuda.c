/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcuda.so.1: enough of the CUDA driver interface to hold cards and their memory.
 *
 * Which devices a process may see is decided like in libnvidia-ml, and then by
 * CUDA_VISIBLE_DEVICES. On a card with MIG on, a process gets MIG devices only, and of several
 * the first one.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static struct target targets[SIM_CARDS];
static unsigned target_count;
static bool ready;
static pid_t ready_in;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

const struct sim_facts *cuda_facts(const struct target *target)
{
    return &sim_host->cards[target->card].facts;
}

static void uuid_of(const struct target *target, char *to, size_t size)
{
    if (target->gi == SIM_ANY)
        snprintf(to, size, "%s", cuda_facts(target)->uuid);
    else
        mig_uuid(cuda_facts(target), target->gi, target->ci, to, size);
}

/* Devices as CUDA numbers them without CUDA_VISIBLE_DEVICES. */
static unsigned enumerate(struct target *found)
{
    unsigned count = 0;
    for (unsigned card = 0; card < sim_host->card_count; card++) {
        struct sim_state state;
        char node[32];
        snprintf(node, sizeof node, "nvidia%u", sim_host->cards[card].facts.minor);
        sim_read(card, &state);
        if (state.excluded || state.lost || sim_node_error(node) != 0)
            continue;
        if (!state.mig_current) {
            found[count++] = (struct target){card, SIM_ANY, SIM_ANY};
            continue;
        }
        for (unsigned at = 0; at < SIM_INSTANCES * SIM_COMPUTE && count < SIM_CARDS; at++) {
            unsigned gi = at / SIM_COMPUTE, ci = at % SIM_COMPUTE;
            if (state.instances[gi].present && state.instances[gi].compute[ci].present &&
                capability_visible(card, gi, ci))
                found[count++] = (struct target){card, gi, ci};
        }
    }
    return count;
}

static bool names(const char *word, const struct target *target)
{
    char uuid[96];
    uuid_of(target, uuid, sizeof uuid);
    return *word && strncasecmp(uuid, word, strlen(word)) == 0;
}

/* The first word that names nothing ends the list, as the real library has it. */
static void choose(const struct target *found, unsigned count, const char *wanted)
{
    char list[4096], *rest = NULL;
    snprintf(list, sizeof list, "%s", wanted);
    for (char *word = strtok_r(list, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
        char *end;
        unsigned long index = strtoul(word, &end, 10);
        unsigned match = count;
        if (end != word && !*end)
            match = index < count ? (unsigned)index : count;
        for (unsigned i = 0; match == count && i < count; i++)
            if (names(word, &found[i]))
                match = i;
        if (match == count || target_count >= SIM_CARDS)
            return;
        targets[target_count++] = found[match];
    }
}

/* With MIG a process is given one MIG device at most. */
static void keep_one_mig(void)
{
    for (unsigned i = 0; i < target_count; i++)
        if (targets[i].gi != SIM_ANY) {
            targets[0] = targets[i];
            target_count = 1;
            return;
        }
}

static CUresult begin(void)
{
    struct target found[SIM_CARDS];
    if (sim_node_error("nvidiactl") != 0 || sim_open(sim_default_folder()) != SIM_OK ||
        sim_host->init_code)
        return CUDA_NO_DEVICE;
    unsigned count = enumerate(found);
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    target_count = 0;
    if (wanted)
        choose(found, count, wanted);
    else
        for (; target_count < count; target_count++)
            targets[target_count] = found[target_count];
    keep_one_mig();
    ready = true;
    ready_in = getpid();
    return target_count ? CUDA_SUCCESS : CUDA_NO_DEVICE;
}

EXPORT CUresult cuInit(unsigned flags)
{
    if (flags)
        return CUDA_INVALID_VALUE;
    pthread_mutex_lock(&guard);
    CUresult result = begin();
    pthread_mutex_unlock(&guard);
    return result;
}

/* A forked child may not go on with its parent's driver. */
CUresult cuda_check(void)
{
    return ready && ready_in == getpid() ? CUDA_SUCCESS : CUDA_NOT_INITIALIZED;
}

const struct target *cuda_target(CUdevice device)
{
    return device >= 0 && (unsigned)device < target_count ? &targets[device] : NULL;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_INVALID_VALUE;
    if (!sim_host && sim_open(sim_default_folder()) != SIM_OK)
        *version = 0;
    else
        *version = (int)sim_host->cuda_version;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    NEED_READY();
    if (!count)
        return CUDA_INVALID_VALUE;
    *count = (int)target_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    NEED_DEVICE(ordinal);
    *device = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    NEED_DEVICE(device);
    if (!name || length <= 0)
        return CUDA_INVALID_VALUE;
    const struct target *target = &targets[device];
    struct sim_state state;
    sim_read(target->card, &state);
    if (target->gi == SIM_ANY)
        snprintf(name, (size_t)length, "%s", cuda_facts(target)->name);
    else
        snprintf(name, (size_t)length, "%s %s", cuda_facts(target)->name,
                 cuda_facts(target)->profiles[state.instances[target->gi].profile].name);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device)
{
    char text[96];
    unsigned byte = 0, nibbles = 0;
    NEED_DEVICE(device);
    if (!uuid)
        return CUDA_INVALID_VALUE;
    uuid_of(&targets[device], text, sizeof text);
    for (const char *c = text + 4; *c && byte < 16; c++) {
        unsigned digit;
        if (*c == '-' || sscanf((char[]){*c, 0}, "%x", &digit) != 1)
            continue;
        uuid[byte] = (unsigned char)(uuid[byte] << 4 | digit);
        byte += ++nibbles % 2 == 0;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

/* CU_DEVICE_ATTRIBUTE: 16 multiprocessors, 75 and 76 the compute capability. */
EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    NEED_DEVICE(device);
    if (!value)
        return CUDA_INVALID_VALUE;
    const struct sim_facts *facts = cuda_facts(&targets[device]);
    switch (attribute) {
    case 16:
        *value = (int)cuda_mps_multiprocessors((unsigned)device, facts->multiprocessors);
        return CUDA_SUCCESS;
    case 33: *value = (int)facts->bus; return CUDA_SUCCESS;
    case 34: *value = (int)facts->device; return CUDA_SUCCESS;
    case 50: *value = (int)facts->domain; return CUDA_SUCCESS;
    case 75: *value = (int)facts->cc_major; return CUDA_SUCCESS;
    case 76: *value = (int)facts->cc_minor; return CUDA_SUCCESS;
    default: *value = 0; return CUDA_SUCCESS;
    }
}

static const struct { CUresult code; const char *name, *text; } errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_MPS_CONNECTION_FAILED, "CUDA_ERROR_MPS_CONNECTION_FAILED",
     "MPS client failed to connect to the MPS control daemon or the MPS server"},
    {CUDA_MPS_RPC_FAILURE, "CUDA_ERROR_MPS_RPC_FAILURE",
     "the remote procedural call between the MPS server and the MPS client failed"},
    {CUDA_MPS_MAX_CLIENTS, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
     "the hardware resources required to create MPS client have been exhausted"},
    {CUDA_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

EXPORT CUresult cuGetErrorName(CUresult code, const char **name)
{
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *name = errors[i].name;
            return CUDA_SUCCESS;
        }
    *name = NULL;
    return CUDA_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **text)
{
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *text = errors[i].text;
            return CUDA_SUCCESS;
        }
    *text = NULL;
    return CUDA_INVALID_VALUE;
}

/* Answers the newest form of a name that this library has. */
static void *find_symbol(const char *name)
{
    Dl_info self;
    char versioned[128];
    if (!dladdr((void *)cuInit, &self))
        return NULL;
    void *library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return NULL;
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    void *symbol = dlsym(library, versioned);
    if (!symbol)
        symbol = dlsym(library, name);
    dlclose(library);
    return symbol;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **symbol, int version,
                                    unsigned long long flags, int *status)
{
    (void)version;
    (void)flags;
    if (!name || !symbol)
        return CUDA_INVALID_VALUE;
    *symbol = find_symbol(name);
    if (status)
        *status = *symbol ? 0 : 1; /* found, or symbol not found */
    return *symbol ? CUDA_SUCCESS : CUDA_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress(const char *name, void **symbol, int version,
                                 unsigned long long flags)
{
    return cuGetProcAddress_v2(name, symbol, version, flags, NULL);
}
