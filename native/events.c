/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event sets: what a process registered for, and waiting for it in the host's event ring.
 *
 * A set remembers how far it has read for each card, beginning at the registration. Waiting sleeps
 * on a futex in the shared state, in slices, so that a wake-up lost with a killed writer costs at
 * most one slice.
 */
#include "library.h"

#include <pthread.h>
#include <string.h>

#define SETS 256

struct nvmlEventSet_st {
    bool used;
    uint64_t next;               /* The first event of the ring not yet looked at. */
    uint64_t types[SIM_CARDS];   /* Registered bits. */
    uint64_t from[SIM_CARDS];    /* Events before this were there before the registration. */
};

static struct nvmlEventSet_st sets[SETS];
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static bool is_set(nvmlEventSet_t set)
{
    uintptr_t at = (uintptr_t)set, first = (uintptr_t)sets;
    return at >= first && at < first + sizeof sets && (at - first) % sizeof *sets == 0 &&
           set->used;
}

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    nvmlReturn_t result = NVML_ERROR_MEMORY;
    ENTER_LIBRARY();
    NEED_POINTER(set);
    pthread_mutex_lock(&guard);
    for (unsigned i = 0; i < SETS && result != NVML_SUCCESS; i++)
        if (!sets[i].used) {
            memset(&sets[i], 0, sizeof sets[i]);
            sets[i].used = true;
            sets[i].next = __atomic_load_n(&sim_host->event_head, __ATOMIC_SEQ_CST);
            *set = &sets[i];
            result = NVML_SUCCESS;
        }
    pthread_mutex_unlock(&guard);
    return result;
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    ENTER_LIBRARY();
    pthread_mutex_lock(&guard);
    bool known = is_set(set);
    if (known)
        set->used = false;
    pthread_mutex_unlock(&guard);
    return known ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static uint64_t supported(const struct sim_facts *facts)
{
    uint64_t types = NVML_EVENT_XID | NVML_EVENT_PSTATE | NVML_EVENT_CLOCK;
    if (sim_lacks(facts, SIM_F_EVENTS))
        return 0;
    if (!sim_lacks(facts, SIM_F_ECC))
        types |= NVML_EVENT_SBE | NVML_EVENT_DBE | NVML_EVENT_SBE_STORM | NVML_EVENT_RETIREMENT |
                 NVML_EVENT_RETIREMENT_FAILURE;
    if (facts->mig_slices)
        types |= NVML_EVENT_MIG_CONFIG;
    if (facts->architecture >= 9)
        types |= NVML_EVENT_POISON | NVML_EVENT_FATAL_POISON | NVML_EVENT_UNAVAILABLE |
                 NVML_EVENT_RECOVERY_ACTION;
    return types;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                                     unsigned long long *types)
{
    ENTER(device, WHOLE);
    NEED_POINTER(types);
    *types = supported(view.facts);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                             nvmlEventSet_t set)
{
    ENTER(device, EITHER);
    NEED(view.gpu_instance == SIM_ANY, NVML_ERROR_NOT_SUPPORTED);
    pthread_mutex_lock(&guard);
    nvmlReturn_t result = NVML_SUCCESS;
    if (!is_set(set))
        result = NVML_ERROR_INVALID_ARGUMENT;
    else if (sim_lacks(view.facts, SIM_F_EVENTS) || types & ~supported(view.facts))
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS) {
        set->from[view.card] = __atomic_load_n(&sim_host->event_head, __ATOMIC_SEQ_CST);
        set->types[view.card] |= types;
    }
    pthread_mutex_unlock(&guard);
    return result;
}

static nvmlReturn_t next_event(nvmlEventSet_t set, nvmlEventData_t *data)
{
    uint64_t head = __atomic_load_n(&sim_host->event_head, __ATOMIC_SEQ_CST);
    struct sim_event event;
    if (head - set->next > SIM_EVENTS)
        set->next = head - SIM_EVENTS; /* Fell behind: the oldest are gone. */
    while (set->next < head) {
        uint64_t place = set->next++;
        if (!sim_read_event(place, &event) || event.card >= SIM_CARDS || event.system)
            continue;
        if (!(set->types[event.card] & event.type) || place < set->from[event.card])
            continue;
        data->device = handle_of_card(event.card);
        data->eventType = event.type;
        data->eventData = event.data;
        data->gpuInstanceId = event.gpu_instance;
        data->computeInstanceId = event.compute_instance;
        return NVML_SUCCESS;
    }
    return NVML_ERROR_TIMEOUT;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                        unsigned int timeout_ms)
{
    ENTER_LIBRARY();
    NEED_POINTER(data);
    uint64_t end = sim_now_ns() + (uint64_t)timeout_ms * 1000000;
    for (;;) {
        uint32_t seen = __atomic_load_n(&sim_host->event_futex, __ATOMIC_SEQ_CST);
        pthread_mutex_lock(&guard);
        nvmlReturn_t result = is_set(set) ? next_event(set, data) : NVML_ERROR_INVALID_ARGUMENT;
        pthread_mutex_unlock(&guard);
        if (result != NVML_ERROR_TIMEOUT || !sim_wait_event(seen, end))
            return result;
        NEED(library_ready(), NVML_ERROR_UNINITIALIZED);
    }
}

EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data,
                                     unsigned int timeout_ms)
{
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}
