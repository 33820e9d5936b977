/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MIG capabilities: device nodes and the /proc files that name them. Needs state.h only, so that
 * simctl keeps them in step too.
 */
#ifndef SIM_CAPABILITY_H
#define SIM_CAPABILITY_H

#include <stddef.h>

#include "state.h"

enum { CAPABILITY_CONFIG = 1, CAPABILITY_MONITOR = 2 };

unsigned capability_of_instance(unsigned gpu_minor, unsigned gi);
unsigned capability_of_compute(unsigned gpu_minor, unsigned gi, unsigned ci);

/* The UUID of the MIG device; the same place on the same card has the same one again. */
void mig_uuid(const struct sim_facts *facts, unsigned gi, unsigned ci, char *to, size_t size);

/* True when the calling process may use the capability: its node opens. */
bool capability_open(unsigned minor);
bool capability_visible(unsigned card, unsigned gi, unsigned ci);

/* Makes <simulation>/proc/driver/nvidia/capabilities and the nodes show the card's instances. */
void capability_sync(unsigned card);
void capability_sync_static(void);

/* The files and nodes that a process killed between a change and its files left undone. The real
 * driver keeps them in the kernel, where nothing comes between. */
void capability_repair(void);

/* What a GPU reset does to a card; a reboot does more (simctl). */
void sim_reset(const struct sim_facts *facts, struct sim_state *state);
/* The energy counter begins anew with a reset: programs take a smaller value as its proof. */
void sim_restart_energy(unsigned card);

#endif
