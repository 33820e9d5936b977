/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names by which descriptions, simctl set and simctl show know the fields of a card.
 */
#ifndef SIM_KEYS_H
#define SIM_KEYS_H

#include <stddef.h>

#include "state.h"

enum key_kind { KEY_TEXT, KEY_U32, KEY_U64, KEY_I32 };

struct key {
    const char *name;
    enum key_kind kind;
    size_t offset, size;
    bool automatic; /* "auto" is a value: the field follows the load. */
    bool fault;     /* Changes what calls answer: sleepers must look again. */
};

extern const struct key fact_keys[], profile_keys[], state_keys[];

const struct key *key_find(const struct key *keys, const char *name);
/* Parses `text` into the field of `base`; NULL when fine, else what is wrong with it. */
const char *key_parse(const struct key *key, void *base, const char *text);
/* Writes the field as JSON into `to`. */
void key_json(const struct key *key, const void *base, char *to, size_t size);

/* One NAME=VALUE of simctl set on a card in a transaction; NULL when fine. */
struct knob_effects {
    uint64_t event_type[4], event_data[4];
    uint32_t gpu_instance, compute_instance;
    unsigned events, system_event;
    bool fault, instances;
};
const char *knob_apply(unsigned card, struct sim_state *state, const char *name, const char *value,
                       struct knob_effects *effects);

/* Reads a description into an empty host. On a mistake prints line and reason, answers -1. */
int describe(struct sim_host *host, void *file);
void fresh_state(const struct sim_facts *facts, struct sim_state *state);

void show_text(void);
void show_json(void);

#endif
