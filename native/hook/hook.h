/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of gpudeck-memory-limits share: where a container is, and what it uses. */
#ifndef HOOK_H
#define HOOK_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define NAME "gpudeck-memory-limits"
#define UNLIMITED UINT64_MAX

/* Folders of cgroup version 2 as this process sees them. */
struct place {
    char group[PATH_MAX];     /* That of the container's first process: its limit is set here. */
    char container[PATH_MAX]; /* The pod's child that the process is in or below; else the same. */
    char pod[PATH_MAX];       /* Empty where no folder above is a pod's. */
};

/* Says why there is no limit and lets the container start. */
__attribute__((format(printf, 1, 2), noreturn)) void give_up(const char *format, ...);

/* Finds the container whose state the runtime writes to stdin. */
void find_place(struct place *place);

/* Waits for other hooks of the pod, and keeps them waiting until this process ends. */
void lock_shares(const struct place *place);
/* Notes that the container uses a share of a card; false, with errno, where the kernel refuses. */
bool note_share(const struct place *place, const char *uuid, const char *share, uint64_t bytes);
/* The sums of the distinct shares of a card that are noted; UNLIMITED when one of them is. */
uint64_t sum_of_container(const struct place *place, const char *uuid);
uint64_t sum_of_pod(const struct place *place, const char *uuid);

#endif
