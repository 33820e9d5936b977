/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts and memory: what makes a process one that uses a card.
 *
 * A process is seen on a card from its first context on, with the memory that it allocates. The
 * amounts are kept in the process's own slot of the shared state and die with it.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <pthread.h>
#include <stddef.h>

/* What a context costs before anything is allocated in it. */
#define CONTEXT_BYTES (416 * SIM_MIB)
#define ALLOCATIONS 65536

struct CUctx_st {
    unsigned device;
    bool used;
};

static struct CUctx_st contexts[256];
static struct { unsigned long long address; uint64_t bytes; unsigned device; } held[ALLOCATIONS];
static unsigned long long next_address = 0x7f0000000000ull;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static __thread struct CUctx_st *current;

static void memory_of(const struct target *target, uint64_t *total, uint64_t *used)
{
    struct sim_state state;
    sim_read(target->card, &state);
    *used = sim_used_bytes(target->card, target->gi);
    *total = cuda_facts(target)->memory_mib * SIM_MIB;
    if (target->gi == SIM_ANY)
        *total -= cuda_facts(target)->reserved_mib * SIM_MIB;
    else
        *total = cuda_facts(target)->profiles[state.instances[target->gi].profile].memory_mib *
                 SIM_MIB;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    uint64_t total, used;
    NEED_DEVICE(device);
    if (!bytes)
        return CUDA_INVALID_VALUE;
    memory_of(cuda_target((CUdevice)device), &total, &used);
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
    const struct target *target = cuda_target((CUdevice)device);
    struct sim_client *client = sim_client_own();
    uint64_t total, used;
    if (!client)
        return CUDA_UNKNOWN;
    struct sim_use *use = &client->uses[target->card];
    memory_of(target, &total, &used);
    if (sim_lock() != SIM_OK)
        return CUDA_UNKNOWN;
    sim_client_groups(client);
    uint64_t left = target->gi == SIM_ANY ? sim_limit_left(target->card) : SIM_UNLIMITED;
    used = sim_used_bytes(target->card, target->gi);
    CUresult result = CUDA_OUT_OF_MEMORY;
    if (bytes <= total && used <= total - bytes && bytes <= left &&
        bytes <= cuda_mps_left(device, use->bytes)) {
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
    unsigned card = cuda_target((CUdevice)device)->card;
    if (client)
        __atomic_sub_fetch(&client->uses[card].bytes, bytes, __ATOMIC_RELAXED);
}

/* Compute mode: 0 anyone, 2 nobody, 3 one process, which may be the MPS server with all its clients. */
static CUresult allowed(unsigned device)
{
    const struct target *target = cuda_target((CUdevice)device);
    struct sim_state state;
    int fault = sim_faults(target->card, "cuCtxCreate", &state);
    if (fault)
        return CUDA_UNKNOWN;
    if (state.compute_mode == 2)
        return CUDA_DEVICE_UNAVAILABLE;
    struct sim_client *own = sim_client_own();
    unsigned others = sim_busy(target->card, target->gi, target->ci);
    if (cuda_mps_joined(device))
        others -= sim_mps_clients(target->card);
    else if (own && own->uses[target->card].contexts)
        others--;
    return state.compute_mode == 3 && others ? CUDA_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

static CUresult join(unsigned device)
{
    const struct target *target = cuda_target((CUdevice)device);
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
        unsigned kind = cuda_mps_joined(device) ? SIM_MPS_CONTEXT : SIM_COMPUTE_CONTEXT;
        __atomic_store_n(&use->contexts, kind, __ATOMIC_RELEASE);
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
    cuda_mps_leave(device);
    if (!client)
        return;
    struct sim_use *use = &client->uses[cuda_target((CUdevice)device)->card];
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
    pthread_mutex_lock(&guard);
    CUresult result = cuda_mps_join((unsigned)device);
    if (result == CUDA_SUCCESS)
        result = allowed((unsigned)device);
    if (result == CUDA_SUCCESS)
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
    unsigned card = cuda_target((CUdevice)current->device)->card;
    if (cuda_mps_broken(current->device))
        return CUDA_MPS_RPC_FAILURE;
    return sim_faults(card, "cuCtxSynchronize", &state) ? CUDA_UNKNOWN : CUDA_SUCCESS;
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
    memory_of(cuda_target((CUdevice)current->device), &total, &used);
    *total_bytes = total;
    *free_bytes = used < total ? total - used : 0;
    const struct target *target = cuda_target((CUdevice)current->device);
    uint64_t left = target->gi == SIM_ANY ? sim_limit_left(target->card) : SIM_UNLIMITED;
    struct sim_client *own = sim_client_own();
    uint64_t mine = own ? own->uses[target->card].bytes : 0;
    if (*free_bytes > left)
        *free_bytes = left;
    if (*free_bytes > cuda_mps_left(current->device, mine))
        *free_bytes = cuda_mps_left(current->device, mine);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    return cuMemGetInfo_v2(free_bytes, total_bytes);
}
