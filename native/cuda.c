/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcuda.so.1: enough of the CUDA driver interface to hold cards and their memory.
 *
 * A process is seen on a card from its first context on, with the memory that it allocates. What it
 * may see is decided like in libnvidia-ml, and then by CUDA_VISIBLE_DEVICES. On a card with MIG on,
 * a process gets MIG devices only, and of several the first one.
 */
#define _GNU_SOURCE
#include "capability.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    CUDA_SUCCESS = 0, CUDA_INVALID_VALUE = 1, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_INITIALIZED = 3,
    CUDA_NO_DEVICE = 100, CUDA_INVALID_DEVICE = 101, CUDA_INVALID_CONTEXT = 201,
    CUDA_DEVICE_UNAVAILABLE = 46, CUDA_NOT_FOUND = 500, CUDA_UNKNOWN = 999, CUDA_ECC = 214,
    CUDA_NOT_SUPPORTED = 801, CUDA_SYSTEM_NOT_READY = 802
};
typedef int CUresult;
typedef int CUdevice;

/* What a context costs before anything is allocated in it. */
#define CONTEXT_BYTES (416 * SIM_MIB)
#define ALLOCATIONS 65536

struct target {
    unsigned card;
    uint32_t gi, ci;
};

struct CUctx_st {
    unsigned device;
    bool used;
};

static struct target targets[SIM_CARDS];
static unsigned target_count;
static bool ready;
static pid_t ready_in;
static struct CUctx_st contexts[256];
static struct { unsigned long long address; uint64_t bytes; unsigned device; } held[ALLOCATIONS];
static unsigned long long next_address = 0x7f0000000000ull;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static __thread struct CUctx_st *current;

static const struct sim_facts *facts_of(const struct target *target)
{
    return &sim_host->cards[target->card].facts;
}

static void uuid_of(const struct target *target, char *to, size_t size)
{
    if (target->gi == SIM_ANY)
        snprintf(to, size, "%s", facts_of(target)->uuid);
    else
        mig_uuid(facts_of(target), target->gi, target->ci, to, size);
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
        for (unsigned place = 0; place < SIM_INSTANCES * SIM_COMPUTE && count < SIM_CARDS; place++) {
            unsigned gi = place / SIM_COMPUTE, ci = place % SIM_COMPUTE;
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
static CUresult check(void)
{
    return ready && ready_in == getpid() ? CUDA_SUCCESS : CUDA_NOT_INITIALIZED;
}

#define NEED_READY()                                                                               \
    do {                                                                                           \
        CUresult state = check();                                                                  \
        if (state != CUDA_SUCCESS)                                                                 \
            return state;                                                                          \
    } while (0)

#define NEED_DEVICE(device)                                                                        \
    do {                                                                                           \
        NEED_READY();                                                                              \
        if ((device) < 0 || (unsigned)(device) >= target_count)                                    \
            return CUDA_INVALID_DEVICE;                                                            \
    } while (0)

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
        snprintf(name, (size_t)length, "%s", facts_of(target)->name);
    else
        snprintf(name, (size_t)length, "%s %s", facts_of(target)->name,
                 facts_of(target)->profiles[state.instances[target->gi].profile].name);
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

static void memory_of(const struct target *target, uint64_t *total, uint64_t *used)
{
    struct sim_state state;
    sim_read(target->card, &state);
    *used = sim_used_bytes(target->card, target->gi);
    *total = facts_of(target)->memory_mib * SIM_MIB;
    if (target->gi == SIM_ANY)
        *total -= facts_of(target)->reserved_mib * SIM_MIB;
    else
        *total = facts_of(target)->profiles[state.instances[target->gi].profile].memory_mib *
                 SIM_MIB;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    uint64_t total, used;
    NEED_DEVICE(device);
    if (!bytes)
        return CUDA_INVALID_VALUE;
    memory_of(&targets[device], &total, &used);
    *bytes = total;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device)
{
    size_t all;
    CUresult result = cuDeviceTotalMem_v2(&all, device);
    if (result == CUDA_SUCCESS)
        *bytes = all > UINT32_MAX ? UINT32_MAX : (unsigned)all;
    return result;
}

/* Takes memory under the host's lock, so that two processes cannot both have the last of it. */
static CUresult charge(unsigned device, uint64_t bytes)
{
    const struct target *target = &targets[device];
    struct sim_client *client = sim_client_own();
    uint64_t total, used;
    if (!client)
        return CUDA_UNKNOWN;
    struct sim_use *use = &client->uses[target->card];
    memory_of(target, &total, &used);
    if (sim_lock() != SIM_OK)
        return CUDA_UNKNOWN;
    used = sim_used_bytes(target->card, target->gi);
    CUresult result = CUDA_OUT_OF_MEMORY;
    if (bytes <= total && used <= total - bytes) {
        __atomic_add_fetch(&use->bytes, bytes, __ATOMIC_RELAXED);
        if (use->bytes > use->peak_bytes)
            use->peak_bytes = use->bytes;
        result = CUDA_SUCCESS;
    }
    sim_unlock();
    return result;
}

static void discharge(unsigned device, uint64_t bytes)
{
    struct sim_client *client = sim_client_own();
    if (client)
        __atomic_sub_fetch(&client->uses[targets[device].card].bytes, bytes, __ATOMIC_RELAXED);
}

/* Compute mode: 0 anyone, 2 nobody, 3 one process. */
static CUresult allowed(const struct target *target)
{
    struct sim_state state;
    int fault = sim_faults(target->card, "cuCtxCreate", &state);
    if (fault)
        return CUDA_UNKNOWN;
    if (state.compute_mode == 2)
        return CUDA_DEVICE_UNAVAILABLE;
    struct sim_client *own = sim_client_own();
    unsigned others = sim_busy(target->card, target->gi, target->ci);
    if (own && own->uses[target->card].contexts)
        others--;
    return state.compute_mode == 3 && others ? CUDA_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

static CUresult join(unsigned device)
{
    const struct target *target = &targets[device];
    struct sim_client *client = sim_client_own();
    if (!client)
        return CUDA_UNKNOWN;
    struct sim_use *use = &client->uses[target->card];
    if (!use->contexts) {
        use->gpu_instance = target->gi;
        use->compute_instance = target->ci;
        use->since_ns = sim_now_ns();
        use->sm = 97;
        use->memory_utilization = 41;
        __atomic_store_n(&use->contexts, SIM_COMPUTE_CONTEXT, __ATOMIC_RELEASE);
    }
    return charge(device, CONTEXT_BYTES);
}

static unsigned contexts_on(unsigned device)
{
    unsigned count = 0;
    for (unsigned i = 0; i < sizeof contexts / sizeof *contexts; i++)
        count += contexts[i].used && contexts[i].device == device;
    return count;
}

static void leave(unsigned device)
{
    struct sim_client *client = sim_client_own();
    if (!client)
        return;
    struct sim_use *use = &client->uses[targets[device].card];
    __atomic_store_n(&use->contexts, 0, __ATOMIC_RELEASE);
    use->sm = use->memory_utilization = 0;
    use->bytes = 0;
}

EXPORT CUresult cuCtxCreate_v2(struct CUctx_st **context, unsigned flags, CUdevice device)
{
    (void)flags;
    NEED_DEVICE(device);
    if (!context)
        return CUDA_INVALID_VALUE;
    CUresult result = allowed(&targets[device]);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&guard);
    result = join((unsigned)device);
    if (result != CUDA_SUCCESS && contexts_on((unsigned)device) == 0)
        leave((unsigned)device);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < sizeof contexts / sizeof *contexts; i++)
        if (!contexts[i].used) {
            contexts[i] = (struct CUctx_st){(unsigned)device, true};
            *context = current = &contexts[i];
            break;
        }
    pthread_mutex_unlock(&guard);
    return result;
}

EXPORT CUresult cuCtxCreate(struct CUctx_st **context, unsigned flags, CUdevice device)
{
    return cuCtxCreate_v2(context, flags, device);
}

EXPORT CUresult cuCtxDestroy_v2(struct CUctx_st *context)
{
    NEED_READY();
    if (context < contexts || context >= contexts + sizeof contexts / sizeof *contexts ||
        !context->used)
        return CUDA_INVALID_CONTEXT;
    pthread_mutex_lock(&guard);
    unsigned device = context->device;
    context->used = false;
    if (contexts_on(device) == 0) {
        for (unsigned i = 0; i < ALLOCATIONS; i++)
            if (held[i].bytes && held[i].device == device)
                held[i].bytes = 0;
        leave(device);
    } else {
        discharge(device, CONTEXT_BYTES);
    }
    if (current == context)
        current = NULL;
    pthread_mutex_unlock(&guard);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy(struct CUctx_st *context) { return cuCtxDestroy_v2(context); }

EXPORT CUresult cuCtxSetCurrent(struct CUctx_st *context)
{
    NEED_READY();
    current = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(struct CUctx_st **context)
{
    NEED_READY();
    *context = current;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    NEED_READY();
    if (!current)
        return CUDA_INVALID_CONTEXT;
    *device = (CUdevice)current->device;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void)
{
    struct sim_state state;
    NEED_READY();
    if (!current)
        return CUDA_INVALID_CONTEXT;
    return sim_faults(targets[current->device].card, "cuCtxSynchronize", &state) ? CUDA_UNKNOWN
                                                                                 : CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
    NEED_READY();
    if (!current)
        return CUDA_INVALID_CONTEXT;
    if (!pointer || bytes == 0)
        return CUDA_INVALID_VALUE;
    pthread_mutex_lock(&guard);
    CUresult result = charge(current->device, bytes);
    unsigned slot = 0;
    while (slot < ALLOCATIONS && held[slot].bytes)
        slot++;
    if (result == CUDA_SUCCESS && slot == ALLOCATIONS) {
        discharge(current->device, bytes);
        result = CUDA_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        held[slot].address = *pointer = next_address;
        held[slot].bytes = bytes;
        held[slot].device = current->device;
        next_address += (bytes + 0x1fffff) & ~0x1fffffull;
    }
    pthread_mutex_unlock(&guard);
    return result;
}

EXPORT CUresult cuMemAlloc(unsigned long long *pointer, unsigned bytes)
{
    return cuMemAlloc_v2(pointer, bytes);
}

EXPORT CUresult cuMemFree_v2(unsigned long long pointer)
{
    CUresult result = CUDA_INVALID_VALUE;
    NEED_READY();
    pthread_mutex_lock(&guard);
    for (unsigned i = 0; i < ALLOCATIONS && result != CUDA_SUCCESS; i++)
        if (held[i].bytes && held[i].address == pointer) {
            discharge(held[i].device, held[i].bytes);
            held[i].bytes = 0;
            result = CUDA_SUCCESS;
        }
    pthread_mutex_unlock(&guard);
    return result;
}

EXPORT CUresult cuMemFree(unsigned long long pointer) { return cuMemFree_v2(pointer); }

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    uint64_t total, used;
    NEED_READY();
    if (!current)
        return CUDA_INVALID_CONTEXT;
    if (!free_bytes || !total_bytes)
        return CUDA_INVALID_VALUE;
    memory_of(&targets[current->device], &total, &used);
    *total_bytes = total;
    *free_bytes = used < total ? total - used : 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    return cuMemGetInfo_v2(free_bytes, total_bytes);
}

/* CU_DEVICE_ATTRIBUTE: 16 multiprocessors, 75 and 76 the compute capability. */
EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    NEED_DEVICE(device);
    if (!value)
        return CUDA_INVALID_VALUE;
    const struct sim_facts *facts = facts_of(&targets[device]);
    switch (attribute) {
    case 16: *value = (int)facts->multiprocessors; return CUDA_SUCCESS;
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
