/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What simctl set can turn on a card beyond plain fields: Xids, ECC, lost cards, failing calls.
 */
#define _GNU_SOURCE
#include "capability.h"
#include "keys.h"
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void raise_later(struct knob_effects *effects, uint64_t type, uint64_t data)
{
    if (effects->events < 4) {
        effects->event_type[effects->events] = type;
        effects->event_data[effects->events++] = data;
    }
}

/* The driver tells of every change of the recovery action by Xid 154 and an event of its own. */
static void announce_action(const struct sim_state *state, struct knob_effects *effects)
{
    raise_later(effects, NVML_EVENT_XID, 154);
    raise_later(effects, NVML_EVENT_RECOVERY_ACTION, state->recovery_action);
}

/* Node reboot outweighs GPU reset, drain and reset, drain P2P, IMEX, nothing. */
static void need_action(unsigned card, struct sim_state *state, unsigned action,
                        struct knob_effects *effects)
{
    static const unsigned char weights[] = {0, 4, 5, 2, 3, 1};
    if (!sim_host || sim_lacks(&sim_host->cards[card].facts, SIM_F_RECOVERY) ||
        state->recovery_action >= sizeof weights ||
        weights[action] <= weights[state->recovery_action])
        return;
    state->recovery_action = action;
    announce_action(state, effects);
}

/* Xids after which only a reset helps, by NVIDIA's catalogue of 2025-10-29. */
static bool needs_reset(unsigned long long number)
{
    static const unsigned short numbers[] = {46,  48,  62,  64,  79,  95,  109, 110,
                                             119, 120, 136, 140, 143, 155, 156, 158};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i] == number)
            return true;
    return false;
}

static const char *xid(unsigned card, struct sim_state *state, const char *value,
                       struct knob_effects *effects)
{
    unsigned long long number;
    effects->gpu_instance = effects->compute_instance = SIM_ANY;
    if (sscanf(value, "%llu:%u:%u", &number, &effects->gpu_instance,
               &effects->compute_instance) < 1)
        return "is not XID[:GPU-INSTANCE[:COMPUTE-INSTANCE]]";
    state->last_xid = number;
    state->xid_count++;
    raise_later(effects, NVML_EVENT_XID, number);
    if (needs_reset(number))
        need_action(card, state, 1, effects);
    return NULL;
}

static const char *lose(unsigned card, struct sim_state *state, const char *value,
                        struct knob_effects *effects)
{
    unsigned code;
    if (sscanf(value, "%u", &code) != 1 || (code != 15 && code != 999))
        return "is neither 15 (GPU is lost) nor 999 (unknown error)";
    state->lost = 1;
    state->lost_code = code;
    state->last_xid = 79;
    state->xid_count++;
    effects->fault = true;
    raise_later(effects, NVML_EVENT_XID, 79);
    raise_later(effects, NVML_EVENT_UNAVAILABLE, 79);
    need_action(card, state, 1, effects);
    return NULL;
}

static int word_in(const char *const *words, unsigned count, const char *word, size_t length)
{
    for (unsigned i = 0; i < count; i++)
        if (words[i] && strlen(words[i]) == length && strncmp(words[i], word, length) == 0)
            return (int)i;
    return -1;
}

/* ecc.KIND.COUNTER.WHERE */
static const char *ecc(struct sim_state *state, const char *name, const char *value,
                       struct knob_effects *effects)
{
    static const char *const kinds[] = {"corrected", "uncorrected"};
    static const char *const counters[] = {"volatile", "aggregate"};
    static const char *const places[] = {"l1", "l2", "memory", "registers", NULL, NULL, "cbu",
                                         "sram"};
    const char *counter_text = strchr(name, '.');
    const char *place_text = counter_text ? strchr(counter_text + 1, '.') : NULL;
    char *end;
    if (!place_text)
        return "is not ecc.KIND.COUNTER.WHERE";
    int kind = word_in(kinds, 2, name, (size_t)(counter_text - name));
    int counter = word_in(counters, 2, counter_text + 1, (size_t)(place_text - counter_text - 1));
    int place = word_in(places, 8, place_text + 1, strlen(place_text + 1));
    unsigned long long count = strtoull(value, &end, 10);
    if (kind < 0 || counter < 0 || place < 0 || end == value || *end)
        return "is not {corrected,uncorrected}.{volatile,aggregate}.{l1,l2,memory,registers,cbu,"
               "sram} with a number";
    if (counter == 0 && count > state->ecc[kind][0][place])
        raise_later(effects, kind ? NVML_EVENT_DBE : NVML_EVENT_SBE, count);
    state->ecc[kind][counter][place] = count;
    return NULL;
}

static const char *rule(struct sim_state *state, const char *function, const char *value)
{
    char *end;
    struct sim_rule *free_rule = NULL;
    long code = strcmp(value, "hang") == 0 ? SIM_RULE_HANG : strtol(value, &end, 10);
    if (code != SIM_RULE_HANG && (*end || code < 0))
        return "is neither a return code nor hang";
    if (strlen(function) >= sizeof free_rule->function)
        return "is too long for a function name";
    for (unsigned i = 0; i < SIM_RULES; i++) {
        struct sim_rule *old = &state->rules[i];
        if (old->code != 0 && strcmp(old->function, function) == 0) {
            old->code = (int32_t)code;
            return NULL;
        }
        if (old->code == 0 && !free_rule)
            free_rule = old;
    }
    if (!free_rule)
        return "is one rule too many";
    snprintf(free_rule->function, sizeof free_rule->function, "%s", function);
    free_rule->code = (int32_t)code;
    return NULL;
}

static const char *link_error(struct sim_state *state, const char *name, const char *value)
{
    static const char *const counters[] = {"replay", "recovery", "flit", "data", "ecc"};
    unsigned link;
    char counter[16];
    if (sscanf(name, "%u.%15s", &link, counter) != 2 || link >= SIM_LINKS)
        return "is not nvlink-error.LINK.COUNTER";
    int which = word_in(counters, 5, counter, strlen(counter));
    if (which < 0)
        return "is none of replay, recovery, flit, data, ecc";
    state->nvlink_errors[link][which] = strtoull(value, NULL, 10);
    return NULL;
}

/* PID:MIB[:PERCENT[:GPU-INSTANCE:COMPUTE-INSTANCE]]; the slot is no part of the transaction. */
static const char *busy(unsigned card, const char *value)
{
    unsigned pid, percent = 100, gi = SIM_ANY, ci = SIM_ANY;
    unsigned long long mib;
    if (sscanf(value, "%u:%llu:%u:%u:%u", &pid, &mib, &percent, &gi, &ci) < 2 || pid == 0)
        return "is not PID:MIB[:PERCENT[:GPU-INSTANCE:COMPUTE-INSTANCE]]";
    struct sim_client *client = sim_client_pretend(pid);
    if (!client)
        return "finds no free place for one more process";
    snprintf(client->name, sizeof client->name, "pretend-%u", pid);
    struct sim_use *use = &client->uses[card];
    use->bytes = use->peak_bytes = mib * SIM_MIB;
    use->sm = percent;
    use->memory_utilization = percent / 2;
    use->gpu_instance = gi;
    use->compute_instance = ci;
    use->since_ns = sim_now_ns();
    use->contexts = SIM_COMPUTE_CONTEXT;
    return NULL;
}

static const char *idle(unsigned card, const char *value)
{
    unsigned pid = (unsigned)strtoul(value, NULL, 10);
    for (unsigned i = 0; i < SIM_CLIENTS; i++) {
        struct sim_client *client = &sim_host->clients[i];
        if (!client->taken || !client->pretend_pid || (pid && client->pretend_pid != pid))
            continue;
        unsigned others = 0;
        memset(&client->uses[card], 0, sizeof client->uses[card]);
        for (unsigned other = 0; other < SIM_CARDS; other++)
            others += client->uses[other].contexts != 0;
        if (!others)
            sim_client_clear(client);
    }
    return NULL;
}

static void clear(struct sim_state *state)
{
    state->fail_code = state->hang = state->slow_ms = state->thermal_reasons = 0;
    memset(state->rules, 0, sizeof state->rules);
    state->temperature = state->memory_temperature = SIM_NO_LIMIT;
    state->power_mw = state->fan_percent = state->pstate = SIM_ANY;
    for (unsigned i = 0; i < 6; i++)
        state->utilization[i] = SIM_ANY;
}

static const char *plain(unsigned card, struct sim_state *state, const char *name,
                         const char *value, struct knob_effects *effects)
{
    const struct key *key = key_find(state_keys, name);
    if (!key)
        return "is not a knob";
    effects->fault |= key->fault;
    const char *mistake = key_parse(key, state, value);
    if (!mistake && strcmp(name, "ecc-mode") == 0)
        state->ecc_pending = state->ecc_current;
    if (!mistake && strcmp(name, "mig-mode") == 0) {
        state->mig_pending = state->mig_current;
        memset(state->instances, 0, sizeof state->instances);
        effects->instances = true;
    }
    if (!mistake && strcmp(name, "remap-pending") == 0 && state->remap_pending)
        need_action(card, state, 1, effects);
    if (!mistake && strcmp(name, "recovery-action") == 0)
        announce_action(state, effects);
    return mistake;
}

const char *knob_apply(unsigned card, struct sim_state *state, const char *name, const char *value,
                       struct knob_effects *effects)
{
    effects->gpu_instance = effects->compute_instance = SIM_ANY;
    if (strcmp(name, "xid") == 0)
        return xid(card, state, value, effects);
    if (strcmp(name, "lose") == 0)
        return lose(card, state, value, effects);
    if (strncmp(name, "ecc.", 4) == 0)
        return ecc(state, name + 4, value, effects);
    if (strncmp(name, "nvlink-error.", 13) == 0)
        return link_error(state, name + 13, value);
    bool live = sim_host != NULL; /* False while a description is read. */
    if (!live && (strcmp(name, "busy") == 0 || strcmp(name, "idle") == 0 ||
                  strcmp(name, "reset") == 0))
        return "needs a host that exists";
    if (strcmp(name, "busy") == 0)
        return busy(card, value);
    if (strcmp(name, "idle") == 0)
        return idle(card, value);
    if (strcmp(name, "unbind") == 0 || strcmp(name, "bind") == 0) {
        state->excluded = *name == 'u';
        effects->system_event = *name == 'u' ? 1 : 2;
        return NULL;
    }
    effects->fault = true;
    if (strncmp(name, "fail.", 5) == 0)
        return rule(state, name + 5, value);
    if (strcmp(name, "return") == 0) {
        /* A card comes back to the bus by starting anew, without the instances it had. */
        if (state->lost) {
            memset(state->instances, 0, sizeof state->instances);
            effects->instances = live;
        }
        state->lost = state->recovery_action = 0;
        sim_restart_energy(card);
        return NULL;
    }
    if (strcmp(name, "clear") == 0) {
        clear(state);
        return NULL;
    }
    if (strcmp(name, "reset") == 0) {
        sim_reset(&sim_host->cards[card].facts, state);
        sim_restart_energy(card);
        effects->instances = true;
        return NULL;
    }
    return plain(card, state, name, value, effects);
}
