/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event ring of a host, and sleeping until something moves in the shared state.
 */
#define _GNU_SOURCE
#include "state.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A wake-up lost with a killed writer costs a waiter at most this. */
#define SLICE_MS 1000

uint64_t sim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sim_time_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

int sim_futex_wait(uint32_t *word, uint32_t seen, unsigned milliseconds)
{
    struct timespec limit = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    return (int)syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

void sim_futex_wake(uint32_t *word)
{
    __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void raise_event(const struct sim_event *what)
{
    if (sim_lock() != SIM_OK)
        return;
    uint64_t place = sim_host->event_head;
    struct sim_event *event = &sim_host->events[place % SIM_EVENTS];
    __atomic_store_n(&event->sequence, 0, __ATOMIC_SEQ_CST);
    event->type = what->type;
    event->data = what->data;
    event->time_us = sim_time_us();
    event->card = what->card;
    event->gpu_instance = what->gpu_instance;
    event->compute_instance = what->compute_instance;
    event->system = what->system;
    __atomic_store_n(&event->sequence, place + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&sim_host->event_head, place + 1, __ATOMIC_SEQ_CST);
    sim_futex_wake(&sim_host->event_futex);
    sim_unlock();
}

void sim_raise(unsigned card, uint64_t type, uint64_t data, uint32_t gi, uint32_t ci)
{
    raise_event(&(struct sim_event){.card = card, .type = type, .data = data, .gpu_instance = gi,
                                    .compute_instance = ci});
}

void sim_raise_system(unsigned card, uint64_t type)
{
    raise_event(&(struct sim_event){.card = card, .type = type, .gpu_instance = SIM_ANY,
                                    .compute_instance = SIM_ANY, .system = 1});
}

bool sim_read_event(uint64_t place, struct sim_event *copy)
{
    const struct sim_event *event = &sim_host->events[place % SIM_EVENTS];
    if (__atomic_load_n(&event->sequence, __ATOMIC_ACQUIRE) != place + 1)
        return false;
    *copy = *event;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&event->sequence, __ATOMIC_RELAXED) == place + 1;
}

bool sim_wait_event(uint32_t seen, uint64_t end_ns)
{
    uint64_t now = sim_now_ns();
    if (now >= end_ns)
        return false;
    uint64_t left = (end_ns - now + 999999) / 1000000;
    sim_futex_wait(&sim_host->event_futex, seen, left > SLICE_MS ? SLICE_MS : (unsigned)left);
    return true;
}
