/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which MIG instances fit beside which, by the tables of the card's description.
 *
 * Three limits: places on the slice grid do not overlap, compute slices do not exceed the card's
 * (7, or 4), and no media engine is given twice: the profile that takes the whole card has all.
 */
#include "placement.h"

#include <string.h>

uint32_t profile_by_id(const struct sim_facts *facts, uint32_t id)
{
    for (uint32_t i = 0; i < SIM_PROFILES; i++)
        if (facts->profiles[i].present && facts->profiles[i].id == id)
            return i;
    return SIM_ANY;
}

uint32_t ci_profile_by_id(const struct sim_profile *profile, uint32_t id)
{
    for (uint32_t i = 0; i < SIM_CI_PROFILES; i++)
        if (profile->compute[i].present && profile->compute[i].id == id)
            return i;
    return SIM_ANY;
}

static const struct sim_placement *place_at(const struct sim_profile *profile, uint32_t start)
{
    for (uint32_t i = 0; i < profile->placement_count; i++)
        if (profile->placements[i].start == start)
            return &profile->placements[i];
    return NULL;
}

struct engines {
    uint32_t decoder, encoder, jpeg, ofa;
};

static void add_engines(struct engines *sum, const struct sim_profile *profile)
{
    sum->decoder += profile->decoder;
    sum->encoder += profile->encoder;
    sum->jpeg += profile->jpeg;
    sum->ofa += profile->ofa;
}

static bool within(const struct engines *sum, const struct sim_facts *facts)
{
    const struct sim_profile *whole = NULL;
    for (uint32_t i = 0; i < SIM_PROFILES; i++)
        if (facts->profiles[i].present && (!whole || facts->profiles[i].slices > whole->slices))
            whole = &facts->profiles[i];
    return whole && sum->decoder <= whole->decoder && sum->encoder <= whole->encoder &&
           sum->jpeg <= whole->jpeg && sum->ofa <= whole->ofa;
}

bool placement_fits(const struct sim_facts *facts, const struct sim_state *state, uint32_t profile,
                    uint32_t start)
{
    const struct sim_profile *wanted = &facts->profiles[profile];
    const struct sim_placement *place = place_at(wanted, start);
    struct engines engines = {0};
    uint32_t slices = wanted->slices, same = 0;
    if (!place)
        return false;
    add_engines(&engines, wanted);
    for (unsigned gi = 0; gi < SIM_INSTANCES; gi++) {
        const struct sim_instance *other = &state->instances[gi];
        if (!other->present)
            continue;
        if (place->start < other->start + other->size && other->start < place->start + place->size)
            return false;
        slices += facts->profiles[other->profile].slices;
        same += other->profile == profile;
        add_engines(&engines, &facts->profiles[other->profile]);
    }
    return slices <= facts->mig_slices && same < wanted->max && within(&engines, facts);
}

static uint32_t free_id(const struct sim_state *state, uint32_t wanted)
{
    if (wanted < SIM_INSTANCES && !state->instances[wanted].present)
        return wanted;
    for (uint32_t gi = 0; gi < SIM_INSTANCES; gi++)
        if (!state->instances[gi].present)
            return gi;
    return SIM_ANY;
}

uint32_t placement_put(const struct sim_facts *facts, struct sim_state *state, uint32_t profile,
                       const struct sim_placement *placement)
{
    (void)facts;
    uint32_t gi = free_id(state, placement->id);
    if (gi == SIM_ANY)
        return SIM_ANY;
    struct sim_instance *instance = &state->instances[gi];
    memset(instance, 0, sizeof *instance);
    instance->profile = profile;
    instance->start = placement->start;
    instance->size = placement->size;
    instance->present = 1;
    return gi;
}

/* Room left for others, where a larger place that stays possible outweighs smaller ones. */
static uint64_t room_left(const struct sim_facts *facts, const struct sim_state *state)
{
    uint64_t sum = 0;
    for (uint32_t profile = 0; profile < SIM_PROFILES; profile++) {
        const struct sim_profile *other = &facts->profiles[profile];
        for (uint32_t i = 0; other->present && i < other->placement_count; i++)
            if (placement_fits(facts, state, profile, other->placements[i].start))
                sum += (uint64_t)other->placements[i].size * other->placements[i].size;
    }
    return sum;
}

const struct sim_placement *placement_choose(const struct sim_facts *facts,
                                             const struct sim_state *state, uint32_t profile)
{
    const struct sim_profile *wanted = &facts->profiles[profile];
    const struct sim_placement *best = NULL;
    uint64_t most = 0;
    for (uint32_t i = 0; i < wanted->placement_count; i++) {
        const struct sim_placement *place = &wanted->placements[i];
        if (!placement_fits(facts, state, profile, place->start))
            continue;
        struct sim_state trial = *state;
        if (placement_put(facts, &trial, profile, place) == SIM_ANY)
            continue;
        uint64_t left = room_left(facts, &trial);
        if (!best || left > most) {
            best = place;
            most = left;
        }
    }
    return best;
}

unsigned placement_capacity(const struct sim_facts *facts, const struct sim_state *state,
                            uint32_t profile)
{
    struct sim_state trial = *state;
    for (unsigned count = 0;; count++) {
        const struct sim_placement *place = placement_choose(facts, &trial, profile);
        if (!place || placement_put(facts, &trial, profile, place) == SIM_ANY)
            return count;
    }
}

bool compute_fits(const struct sim_profile *profile, const struct sim_instance *instance,
                  uint32_t ci_profile, uint32_t start)
{
    const struct sim_ci_profile *wanted = &profile->compute[ci_profile];
    uint32_t same = 0;
    if (start + wanted->slices > profile->slices)
        return false;
    for (unsigned ci = 0; ci < SIM_COMPUTE; ci++) {
        const struct sim_compute_instance *other = &instance->compute[ci];
        if (!other->present)
            continue;
        if (start < other->start + other->size && other->start < start + wanted->slices)
            return false;
        same += other->profile == ci_profile;
    }
    return same < wanted->max;
}

uint32_t compute_choose(const struct sim_profile *profile, const struct sim_instance *instance,
                        uint32_t ci_profile)
{
    for (uint32_t start = 0; start < profile->slices; start++)
        if (compute_fits(profile, instance, ci_profile, start))
            return start;
    return SIM_ANY;
}

uint32_t compute_put(const struct sim_profile *profile, struct sim_instance *instance,
                     uint32_t ci_profile, uint32_t start)
{
    for (uint32_t ci = 0; ci < SIM_COMPUTE; ci++) {
        struct sim_compute_instance *compute = &instance->compute[ci];
        if (compute->present)
            continue;
        compute->profile = ci_profile;
        compute->start = start;
        compute->size = profile->compute[ci_profile].slices;
        compute->present = 1;
        return ci;
    }
    return SIM_ANY;
}

unsigned compute_capacity(const struct sim_profile *profile, const struct sim_instance *instance,
                          uint32_t ci_profile)
{
    struct sim_instance trial = *instance;
    for (unsigned count = 0;; count++) {
        uint32_t start = compute_choose(profile, &trial, ci_profile);
        if (start == SIM_ANY || compute_put(profile, &trial, ci_profile, start) == SIM_ANY)
            return count;
    }
}
