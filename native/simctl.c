/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simctl: makes simulated hosts, shows them and turns their knobs.
 */
#define _GNU_SOURCE
#include "capability.h"
#include "keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int usage(void)
{
    fputs("usage: simctl create DIR < description\n"
          "       simctl show DIR [--json]\n"
          "       simctl set DIR CARD NAME=VALUE...   (CARD: index, UUID, PCI address or all)\n"
          "       simctl host DIR NAME=VALUE...       (driver, nvml, branch, cuda, init)\n"
          "       simctl reboot DIR\n",
          stderr);
    return 2;
}

static int attach(const char *folder)
{
    int result = sim_open(folder);
    if (result != SIM_OK)
        fprintf(stderr, "simctl: %s holds no simulated host (NVML code %d)\n", folder, result);
    return result == SIM_OK ? 0 : 1;
}

static int create(const char *folder)
{
    if (sim_create(folder, describe, stdin) != 0) {
        if (errno)
            fprintf(stderr, "simctl: cannot make %s: %s\n", folder, strerror(errno));
        return 1;
    }
    if (attach(folder) != 0)
        return 1;
    capability_sync_static();
    return 0;
}

static bool is_card(unsigned card, const char *text)
{
    const struct sim_facts *facts = &sim_host->cards[card].facts;
    unsigned domain, bus, device;
    char *end;
    if (strcmp(text, "all") == 0 || strcasecmp(text, facts->uuid) == 0)
        return true;
    if (sscanf(text, "%x:%x:%x", &domain, &bus, &device) == 3)
        return domain == facts->domain && bus == facts->bus && device == facts->device;
    unsigned long index = strtoul(text, &end, 10);
    return end != text && !*end && index == card;
}

/* One assignment in one transaction; what it sets off comes after it. */
static int turn(unsigned card, const char *assignment)
{
    char name[160];
    const char *value = strchr(assignment, '=');
    struct knob_effects effects = {0};
    if (!value || (size_t)(value - assignment) >= sizeof name)
        return usage();
    memcpy(name, assignment, (size_t)(value - assignment));
    name[value - assignment] = 0;
    struct sim_state *state = sim_begin(card);
    if (!state) {
        fputs("simctl: the state cannot be written\n", stderr);
        return 1;
    }
    const char *mistake = knob_apply(card, state, name, value + 1, &effects);
    if (mistake) {
        sim_abort(card);
        fprintf(stderr, "simctl: %s=%s %s\n", name, value + 1, mistake);
        return 1;
    }
    sim_end(card);
    if (effects.fault)
        sim_futex_wake(&sim_host->cards[card].live.knob_futex);
    if (effects.instances)
        capability_sync(card);
    for (unsigned i = 0; i < effects.events; i++)
        sim_raise(card, effects.event_type[i], effects.event_data[i], effects.gpu_instance,
                  effects.compute_instance);
    if (effects.system_event)
        sim_raise_system(card, effects.system_event);
    return 0;
}

static int set(const char *which, char **assignments)
{
    unsigned found = 0;
    for (unsigned card = 0; card < sim_host->card_count; card++) {
        if (!is_card(card, which))
            continue;
        found++;
        for (char **assignment = assignments; *assignment; assignment++) {
            int result = turn(card, *assignment);
            if (result != 0)
                return result;
        }
    }
    if (!found)
        fprintf(stderr, "simctl: no card %s; there are %u\n", which, sim_host->card_count);
    return found ? 0 : 1;
}

static int set_host(char **assignments)
{
    const struct key keys[] = {
        {"driver", KEY_TEXT, offsetof(struct sim_host, driver_version), 80, false, false},
        {"nvml", KEY_TEXT, offsetof(struct sim_host, nvml_version), 80, false, false},
        {"branch", KEY_TEXT, offsetof(struct sim_host, driver_branch), 80, false, false},
        {"cuda", KEY_U32, offsetof(struct sim_host, cuda_version), 4, false, false},
        {"init", KEY_U32, offsetof(struct sim_host, init_code), 4, false, false},
        {NULL, KEY_U32, 0, 0, false, false}};
    for (; *assignments; assignments++) {
        char *value = strchr(*assignments, '=');
        if (!value)
            return usage();
        *value++ = 0;
        const struct key *key = key_find(keys, *assignments);
        const char *mistake = "is not a knob of a host";
        if (sim_lock() != SIM_OK)
            return 1;
        if (key)
            mistake = key_parse(key, sim_host, value);
        sim_unlock();
        if (mistake) {
            fprintf(stderr, "simctl: %s=%s %s\n", *assignments, value, mistake);
            return 1;
        }
    }
    return 0;
}

/* Boards keep over a power cycle: aggregate counters, remapped rows, ECC, old MIG modes. */
static void reboot_card(unsigned index)
{
    const struct sim_facts *facts = &sim_host->cards[index].facts;
    struct sim_state *state = sim_begin(index);
    if (!state)
        return;
    struct sim_state before = *state;
    sim_reset(facts, &before);
    fresh_state(facts, state);
    memcpy(state->ecc, before.ecc, sizeof state->ecc);
    memcpy(state->remap_histogram, before.remap_histogram, sizeof state->remap_histogram);
    state->ecc_current = state->ecc_pending = before.ecc_current;
    state->retired_single = before.retired_single;
    state->retired_double = before.retired_double;
    state->remap_correctable = before.remap_correctable;
    state->remap_uncorrectable = before.remap_uncorrectable;
    state->remap_failure = before.remap_failure;
    state->excluded = before.excluded;
    if (facts->mig_kept_over_reboot)
        state->mig_current = state->mig_pending = before.mig_pending;
    state->generation = before.generation;
    sim_end(index);
    sim_restart_energy(index);
    sim_futex_wake(&sim_host->cards[index].live.knob_futex);
    capability_sync(index);
}

static int reboot(void)
{
    for (unsigned i = 0; i < SIM_CLIENTS; i++)
        if (sim_host->clients[i].taken && sim_host->clients[i].pretend_pid)
            sim_client_clear(&sim_host->clients[i]);
    for (unsigned card = 0; card < sim_host->card_count; card++)
        reboot_card(card);
    if (sim_lock() != SIM_OK)
        return 1;
    sim_host->boot_ns = sim_now_ns();
    sim_host->boot_count++;
    sim_unlock();
    return 0;
}

int main(int count, char **words)
{
    if (count < 3)
        return usage();
    errno = 0;
    if (strcmp(words[1], "create") == 0)
        return create(words[2]);
    if (attach(words[2]) != 0)
        return 1;
    if (strcmp(words[1], "show") == 0) {
        if (count > 3 && strcmp(words[3], "--json") == 0)
            show_json();
        else
            show_text();
        return 0;
    }
    if (strcmp(words[1], "set") == 0 && count > 4)
        return set(words[3], words + 4);
    if (strcmp(words[1], "host") == 0 && count > 3)
        return set_host(words + 3);
    if (strcmp(words[1], "reboot") == 0)
        return reboot();
    return usage();
}
