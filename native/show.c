/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simctl show: a host as a short table or as JSON (keys as in descriptions).
 */
#include "capability.h"
#include "keys.h"

#include <inttypes.h>
#include <stdio.h>

static void print_keys(const struct key *keys, const void *base)
{
    char text[512];
    for (const struct key *key = keys; key->name; key++) {
        key_json(key, base, text, sizeof text);
        printf("%s\"%s\": %s", key == keys ? "" : ", ", key->name, text);
    }
}

static void print_address(const struct sim_facts *facts)
{
    printf("\"pci\": \"%04x:%02x:%02x.0\", \"compute-capability\": \"%u.%u\", ", facts->domain,
           facts->bus, facts->device, facts->cc_major, facts->cc_minor);
}

static void print_lacks(const struct sim_facts *facts)
{
    bool first = true;
    printf("\"lacks\": [");
    for (unsigned i = 0; i < SIM_FEATURE_COUNT; i++)
        if (sim_lacks(facts, i)) {
            printf("%s\"%s\"", first ? "" : ", ", sim_feature_name(i));
            first = false;
        }
    printf("]");
}

static void print_ecc(const struct sim_state *state)
{
    static const char *const kinds[] = {"corrected", "uncorrected"};
    static const char *const counters[] = {"volatile", "aggregate"};
    static const char *const places[] = {"l1", "l2", "memory", "registers", NULL, NULL, "cbu",
                                         "sram"};
    bool first = true;
    printf("\"ecc\": {");
    for (unsigned i = 0; i < 4; i++)
        for (unsigned place = 0; place < SIM_LOCATIONS; place++)
            if (places[place]) {
                printf("%s\"%s.%s.%s\": %" PRIu64, first ? "" : ", ", kinds[i / 2],
                       counters[i % 2], places[place], state->ecc[i / 2][i % 2][place]);
                first = false;
            }
    printf("}");
}

static void print_compute(const struct sim_facts *facts, const struct sim_instance *instance,
                          unsigned gi)
{
    bool first = true;
    for (unsigned ci = 0; ci < SIM_COMPUTE; ci++) {
        const struct sim_compute_instance *compute = &instance->compute[ci];
        char uuid[96];
        if (!compute->present)
            continue;
        mig_uuid(facts, gi, ci, uuid, sizeof uuid);
        printf("%s{\"id\": %u, \"profile\": %u, \"start\": %u, \"size\": %u, \"uuid\": \"%s\", "
               "\"capability\": %u}",
               first ? "" : ", ", ci,
               facts->profiles[instance->profile].compute[compute->profile].id,
               compute->start, compute->size, uuid, capability_of_compute(facts->minor, gi, ci));
        first = false;
    }
}

static void print_instances(const struct sim_facts *facts, const struct sim_state *state)
{
    bool first = true;
    printf("\"instances\": [");
    for (unsigned gi = 0; gi < SIM_INSTANCES; gi++) {
        const struct sim_instance *instance = &state->instances[gi];
        if (!instance->present)
            continue;
        printf("%s{\"id\": %u, \"profile\": %u, \"start\": %u, \"size\": %u, \"capability\": %u, "
               "\"compute\": [",
               first ? "" : ", ", gi, facts->profiles[instance->profile].id, instance->start,
               instance->size, capability_of_instance(facts->minor, gi));
        print_compute(facts, instance, gi);
        printf("]}");
        first = false;
    }
    printf("]");
}

static void print_rules(const struct sim_state *state)
{
    bool first = true;
    printf("\"rules\": {");
    for (unsigned i = 0; i < SIM_RULES; i++)
        if (state->rules[i].code) {
            printf("%s\"%s\": %d", first ? "" : ", ", state->rules[i].function,
                   state->rules[i].code);
            first = false;
        }
    printf("}");
}

static void print_use(const struct sim_client *client, pid_t pid, unsigned card, bool first)
{
    const struct sim_use *use = &client->uses[card];
    const struct key name = {"name", KEY_TEXT, 0, sizeof client->name, false, false};
    char text[300];
    key_json(&name, client->name, text, sizeof text);
    printf("%s{\"pid\": %d, \"name\": %s, \"bytes\": %" PRIu64 ", \"sm\": %u, ", first ? "" : ", ",
           (int)pid, text, use->bytes, use->sm);
    if (use->gpu_instance == SIM_ANY)
        printf("\"gpu-instance\": null, \"compute-instance\": null}");
    else
        printf("\"gpu-instance\": %u, \"compute-instance\": %u}", use->gpu_instance,
               use->compute_instance);
}

static void print_processes(unsigned card)
{
    bool first = true;
    printf("\"processes\": [");
    for (unsigned i = 0; i < SIM_CLIENTS; i++) {
        pid_t pid;
        if (!sim_host->clients[i].taken || !sim_host->clients[i].uses[card].contexts ||
            (pid = sim_client_pid(i)) < 0)
            continue;
        print_use(&sim_host->clients[i], pid, card, first);
        first = false;
    }
    printf("]");
}

static void print_card(unsigned card)
{
    const struct sim_facts *facts = &sim_host->cards[card].facts;
    struct sim_state state;
    sim_read(card, &state);
    printf("    {\"index\": %u, \"facts\": {", card);
    print_address(facts);
    print_lacks(facts);
    printf(", ");
    print_keys(fact_keys, facts);
    printf("},\n     \"state\": {");
    print_keys(state_keys, &state);
    printf(", ");
    print_rules(&state);
    printf(", ");
    print_ecc(&state);
    printf(", ");
    print_instances(facts, &state);
    printf("},\n     \"used-bytes\": %" PRIu64 ", ", sim_used_bytes(card, SIM_ANY));
    print_processes(card);
    printf("}");
}

static void print_events(void)
{
    uint64_t head = sim_host->event_head;
    bool first = true;
    printf("  \"events\": [");
    for (uint64_t i = head > SIM_EVENTS ? head - SIM_EVENTS : 0; i < head; i++) {
        const struct sim_event *event = &sim_host->events[i % SIM_EVENTS];
        printf("%s\n    {\"card\": %u, \"type\": %" PRIu64 ", \"data\": %" PRIu64
               ", \"time-us\": %" PRIu64 "}",
               first ? "" : ",", event->card, event->type, event->data, event->time_us);
        first = false;
    }
    printf("]\n");
}

void show_json(void)
{
    printf("{\"driver\": \"%s\", \"nvml\": \"%s\", \"cuda\": %u, \"caps-major\": %u, \"init\": %u, "
           "\"boot-count\": %" PRIu64 ",\n  \"cards\": [\n",
           sim_host->driver_version, sim_host->nvml_version, sim_host->cuda_version,
           sim_host->caps_major, sim_host->init_code, sim_host->boot_count);
    for (unsigned card = 0; card < sim_host->card_count; card++) {
        print_card(card);
        printf("%s\n", card + 1 < sim_host->card_count ? "," : "");
    }
    printf("  ],\n");
    print_events();
    printf("}\n");
}

void show_text(void)
{
    printf("driver %s, boot %" PRIu64 "\n", sim_host->driver_version, sim_host->boot_count);
    for (unsigned card = 0; card < sim_host->card_count; card++) {
        const struct sim_facts *facts = &sim_host->cards[card].facts;
        struct sim_state state;
        sim_read(card, &state);
        printf("%u  %04x:%02x:%02x.0  %s  %s  %" PRIu64 "/%" PRIu64 " MiB%s%s%s\n", card,
               facts->domain, facts->bus, facts->device, facts->uuid, facts->name,
               sim_used_bytes(card, SIM_ANY) / SIM_MIB, facts->memory_mib,
               state.mig_current ? "  MIG" : "", state.lost ? "  LOST" : "",
               state.hang ? "  HANGS" : "");
    }
}
