/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of MIG: what fits where on a card. Pure; works on any copy of a state.
 */
#ifndef SIM_PLACEMENT_H
#define SIM_PLACEMENT_H

#include "state.h"

/* Index of the profile with that id, SIM_ANY when the card has none. */
uint32_t profile_by_id(const struct sim_facts *facts, uint32_t id);
uint32_t ci_profile_by_id(const struct sim_profile *profile, uint32_t id);

/* Whether one more instance of the profile fits with its place beginning at `start`. */
bool placement_fits(const struct sim_facts *facts, const struct sim_state *state, uint32_t profile,
                    uint32_t start);
/* The placement the driver would take: the one that leaves most room for others. NULL: none. */
const struct sim_placement *placement_choose(const struct sim_facts *facts,
                                             const struct sim_state *state, uint32_t profile);
/* Puts an instance there and answers its id, SIM_ANY when no id is left. */
uint32_t placement_put(const struct sim_facts *facts, struct sim_state *state, uint32_t profile,
                       const struct sim_placement *placement);
/* How many more instances of the profile the driver could make one after another. */
unsigned placement_capacity(const struct sim_facts *facts, const struct sim_state *state,
                            uint32_t profile);

/* The same for compute instances inside one GPU instance: first place that is free. */
bool compute_fits(const struct sim_profile *profile, const struct sim_instance *instance,
                  uint32_t ci_profile, uint32_t start);
uint32_t compute_choose(const struct sim_profile *profile, const struct sim_instance *instance,
                        uint32_t ci_profile);
unsigned compute_capacity(const struct sim_profile *profile, const struct sim_instance *instance,
                          uint32_t ci_profile);
uint32_t compute_put(const struct sim_profile *profile, struct sim_instance *instance,
                     uint32_t ci_profile, uint32_t start);

#endif
