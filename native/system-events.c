/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System event sets: the driver was bound to a card, or let go of it.
 */
#include "library.h"

#include <pthread.h>
#include <string.h>

enum { SETS = 64, UNBIND = 1, BIND = 2 };

struct nvmlSystemEventSet_st {
    bool used;
    uint64_t next, types;
};

static struct nvmlSystemEventSet_st sets[SETS];
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static bool is_set(nvmlSystemEventSet_t set)
{
    uintptr_t at = (uintptr_t)set, first = (uintptr_t)sets;
    return at >= first && at < first + sizeof sets && (at - first) % sizeof *sets == 0 && set->used;
}

EXPORT nvmlReturn_t nvmlSystemEventSetCreate(nvmlSystemEventSetRequest_t *request)
{
    nvmlReturn_t result = NVML_ERROR_MEMORY;
    ENTER_LIBRARY();
    NEED_VERSION(request, 1);
    pthread_mutex_lock(&guard);
    for (unsigned i = 0; i < SETS && result != NVML_SUCCESS; i++)
        if (!sets[i].used) {
            sets[i] = (struct nvmlSystemEventSet_st){
                true, __atomic_load_n(&sim_host->event_head, __ATOMIC_SEQ_CST), 0};
            request->set = &sets[i];
            result = NVML_SUCCESS;
        }
    pthread_mutex_unlock(&guard);
    return result;
}

EXPORT nvmlReturn_t nvmlSystemEventSetFree(nvmlSystemEventSetRequest_t *request)
{
    ENTER_LIBRARY();
    NEED_VERSION(request, 1);
    pthread_mutex_lock(&guard);
    bool known = is_set(request->set);
    if (known)
        request->set->used = false;
    pthread_mutex_unlock(&guard);
    return known ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlSystemRegisterEvents(nvmlSystemRegisterEventRequest_t *request)
{
    ENTER_LIBRARY();
    NEED_VERSION(request, 1);
    NEED(!(request->eventTypes & ~(unsigned long long)(UNBIND | BIND)),
         NVML_ERROR_INVALID_ARGUMENT);
    pthread_mutex_lock(&guard);
    bool known = is_set(request->set);
    if (known)
        request->set->types |= request->eventTypes;
    pthread_mutex_unlock(&guard);
    return known ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static unsigned gpu_id(unsigned card)
{
    const struct sim_facts *facts = &sim_host->cards[card].facts;
    return facts->domain << 16 | facts->bus << 8 | facts->device;
}

static nvmlReturn_t collect(nvmlSystemEventSetWaitRequest_t *request)
{
    uint64_t head = __atomic_load_n(&sim_host->event_head, __ATOMIC_SEQ_CST);
    nvmlSystemEventSet_t set = request->set;
    struct sim_event event;
    if (!is_set(set))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (head - set->next > SIM_EVENTS)
        set->next = head - SIM_EVENTS;
    while (set->next < head && request->numEvent < request->dataSize) {
        if (!sim_read_event(set->next++, &event) || !event.system || !(set->types & event.type))
            continue;
        request->data[request->numEvent].eventType = event.type;
        request->data[request->numEvent++].gpuId = gpu_id(event.card);
    }
    return request->numEvent ? NVML_SUCCESS : NVML_ERROR_TIMEOUT;
}

EXPORT nvmlReturn_t nvmlSystemEventSetWait(nvmlSystemEventSetWaitRequest_t *request)
{
    ENTER_LIBRARY();
    NEED_VERSION(request, 1);
    NEED(request->data && request->dataSize, NVML_ERROR_INVALID_ARGUMENT);
    uint64_t end = sim_now_ns() + (uint64_t)request->timeoutms * 1000000;
    request->numEvent = 0;
    for (;;) {
        uint32_t seen = __atomic_load_n(&sim_host->event_futex, __ATOMIC_SEQ_CST);
        pthread_mutex_lock(&guard);
        nvmlReturn_t result = collect(request);
        pthread_mutex_unlock(&guard);
        if (result != NVML_ERROR_TIMEOUT || !sim_wait_event(seen, end))
            return result;
        NEED(library_ready(), NVML_ERROR_UNINITIALIZED);
    }
}
