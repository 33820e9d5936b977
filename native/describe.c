/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a host's description: lines of a key and a value, in blocks. README.md has the grammar.
 */
#define _GNU_SOURCE
#include "keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct sim_host *host;
    struct sim_card *card;
    struct sim_profile *profile;
    unsigned line;
    char sets[SIM_CARDS][32][96]; /* "set" lines, applied when the facts are complete. */
    unsigned set_count[SIM_CARDS];
};

void fresh_state(const struct sim_facts *facts, struct sim_state *state)
{
    memset(state, 0, sizeof *state);
    state->temperature = state->memory_temperature = SIM_NO_LIMIT;
    state->power_mw = state->fan_percent = state->pstate = SIM_ANY;
    for (unsigned i = 0; i < 6; i++)
        state->utilization[i] = SIM_ANY;
    state->power_limit_mw = facts->power_default_mw;
    state->app_graphics = facts->app_graphics;
    state->app_memory = facts->app_memory;
    state->ecc_current = state->ecc_pending = !sim_lacks(facts, SIM_F_ECC);
    state->remap_histogram[0] = facts->remap_banks;
    state->pcie_gen = facts->pcie_max_gen;
    state->pcie_width = facts->pcie_max_width;
    state->fabric_state = facts->fabric_state;
    state->fabric_health = facts->fabric_health;
    state->lost_code = 15;
}

static void fresh_facts(struct sim_facts *facts)
{
    facts->shutdown = facts->slowdown = facts->gpu_max = facts->memory_max = SIM_NO_LIMIT;
    facts->numa_node = facts->gpu_numa_id = SIM_ANY;
    facts->pci_class = 0x030200;
    facts->temperature_idle = 32;
    facts->temperature_load = 66;
    facts->pcie_max_width = 16;
}

static const char *read_pci(struct sim_facts *facts, const char *text)
{
    unsigned function;
    if (sscanf(text, "%x:%x:%x.%x", &facts->domain, &facts->bus, &facts->device, &function) != 4)
        return "is not a PCI address like 0000:1b:00.0";
    return NULL;
}

static const char *read_capability(struct sim_facts *facts, const char *text)
{
    return sscanf(text, "%u.%u", &facts->cc_major, &facts->cc_minor) == 2
               ? NULL
               : "is not a compute capability like 9.0";
}

static const char *read_clocks(struct sim_facts *facts, const char *text)
{
    struct sim_clocks range;
    if (sscanf(text, "%u %u %u %u", &range.memory, &range.max, &range.min, &range.steps) != 4)
        return "is not MEMORY GREATEST SMALLEST STEPS";
    for (unsigned i = 0; i < SIM_CLOCKS; i++)
        if (!facts->clocks[i].memory) {
            facts->clocks[i] = range;
            return NULL;
        }
    return "is one memory clock too many";
}

static const char *read_link(struct sim_facts *facts, const char *text)
{
    unsigned number, function, remote = 0, pci_id = 0;
    char type[16];
    struct sim_link link = {.present = 1};
    int read = sscanf(text, "%u %15s %x:%x:%x.%x %u %x", &number, type, &link.domain, &link.bus,
                      &link.device, &function, &remote, &pci_id);
    if (read < 6 || number >= SIM_LINKS)
        return "is not NUMBER gpu|switch|npu ADDRESS [REMOTE-LINK [PCI-ID]]";
    link.type = strcmp(type, "gpu") == 0 ? 0 : strcmp(type, "npu") == 0 ? 1 : 2;
    link.remote_link = remote;
    link.pci_id = pci_id;
    facts->links[number] = link;
    return NULL;
}

static const char *read_cpus(struct sim_facts *facts, const char *text)
{
    for (const char *at = text; *at;) {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (end == at)
            return "is not a list of CPUs like 0-55,112-167";
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if (last < first || last >= SIM_CPU_WORDS * 64)
            return "has a CPU range that is empty or too high";
        for (unsigned long cpu = first; cpu <= last; cpu++)
            facts->cpus[cpu / 64] |= UINT64_C(1) << cpu % 64;
        at = *end == ',' ? end + 1 : end;
        if (*end && *end != ',')
            return "is not a list of CPUs like 0-55,112-167";
    }
    return NULL;
}

static const char *read_lacks(struct sim_facts *facts, char *text)
{
    char *rest = NULL;
    for (char *word = strtok_r(text, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest)) {
        unsigned feature = 0;
        while (sim_feature_name(feature) && strcmp(sim_feature_name(feature), word) != 0)
            feature++;
        if (!sim_feature_name(feature))
            return "names a feature that is not known";
        facts->lacks |= UINT64_C(1) << feature;
    }
    return NULL;
}

static const char *read_fabric(struct sim_facts *facts, const char *text)
{
    char cluster[48] = "";
    unsigned byte = 0, nibbles = 0;
    if (sscanf(text, "%u %u %47s %x", &facts->fabric_state, &facts->fabric_clique, cluster,
               &facts->fabric_health) < 3)
        return "is not STATE CLIQUE CLUSTER-UUID [HEALTH-MASK]";
    for (const char *c = cluster; *c && byte < 16; c++) {
        unsigned digit;
        if (*c == '-' || sscanf((char[]){*c, 0}, "%x", &digit) != 1)
            continue;
        facts->fabric_cluster[byte] = (uint8_t)(facts->fabric_cluster[byte] << 4 | digit);
        byte += ++nibbles % 2 == 0;
    }
    return byte == 16 ? NULL : "has no cluster UUID of 32 digits";
}

static const char *read_mig_change(struct sim_facts *facts, const char *text)
{
    static const char *const words[] = {"at-once", "by-reset", "pending"};
    for (unsigned i = 0; i < 3; i++)
        if (strcmp(text, words[i]) == 0) {
            facts->mig_change = i;
            return NULL;
        }
    return "is none of at-once, by-reset, pending";
}

static const char *read_set(struct reader *reader, const char *text)
{
    unsigned card = reader->host->card_count - 1;
    if (reader->set_count[card] >= 32 || strlen(text) >= 96)
        return "is too long, or one of too many";
    snprintf(reader->sets[card][reader->set_count[card]++], 96, "%s", text);
    return NULL;
}

static const char *card_line(struct reader *reader, const char *key, char *value)
{
    struct sim_facts *facts = &reader->card->facts;
    if (strcmp(key, "pci") == 0)
        return read_pci(facts, value);
    if (strcmp(key, "compute-capability") == 0)
        return read_capability(facts, value);
    if (strcmp(key, "clocks") == 0)
        return read_clocks(facts, value);
    if (strcmp(key, "link") == 0)
        return read_link(facts, value);
    if (strcmp(key, "cpus") == 0)
        return read_cpus(facts, value);
    if (strcmp(key, "lacks") == 0)
        return read_lacks(facts, value);
    if (strcmp(key, "fabric") == 0)
        return read_fabric(facts, value);
    if (strcmp(key, "mig-change") == 0)
        return read_mig_change(facts, value);
    if (strcmp(key, "set") == 0)
        return read_set(reader, value);
    const struct key *known = key_find(fact_keys, key);
    return known ? key_parse(known, facts, value) : "is not a key of a card";
}

static const char *read_placement(struct sim_profile *profile, const char *text)
{
    struct sim_placement place = {.id = SIM_ANY};
    if (profile->placement_count >= SIM_PLACEMENTS ||
        sscanf(text, "%u %u %u", &place.start, &place.size, &place.id) < 2)
        return "is not START SIZE [INSTANCE-ID], or one of too many";
    profile->placements[profile->placement_count++] = place;
    return NULL;
}

static const char *read_compute(struct sim_profile *profile, const char *text)
{
    unsigned index;
    struct sim_ci_profile compute = {.present = 1};
    if (sscanf(text, "%u %u %u %u %u", &index, &compute.id, &compute.slices, &compute.max,
               &compute.multiprocessors) != 5 || index >= SIM_CI_PROFILES)
        return "is not INDEX ID SLICES MAX MULTIPROCESSORS";
    profile->compute[index] = compute;
    return NULL;
}

static const char *profile_line(struct reader *reader, const char *key, const char *value)
{
    if (strcmp(key, "placement") == 0)
        return read_placement(reader->profile, value);
    if (strcmp(key, "compute") == 0)
        return read_compute(reader->profile, value);
    const struct key *known = key_find(profile_keys, key);
    return known ? key_parse(known, reader->profile, value) : "is not a key of a profile";
}

static const char *host_line(struct sim_host *host, const char *key, const char *value)
{
    const struct key texts[] = {
        {"driver", KEY_TEXT, offsetof(struct sim_host, driver_version), 80, false, false},
        {"nvml", KEY_TEXT, offsetof(struct sim_host, nvml_version), 80, false, false},
        {"branch", KEY_TEXT, offsetof(struct sim_host, driver_branch), 80, false, false},
        {"cuda", KEY_U32, offsetof(struct sim_host, cuda_version), 4, false, false},
        {"caps-major", KEY_U32, offsetof(struct sim_host, caps_major), 4, false, false},
        {NULL, KEY_U32, 0, 0, false, false}};
    const struct key *known = key_find(texts, key);
    return known ? key_parse(known, host, value) : "is not a key of a host";
}

static const char *open_block(struct reader *reader, const char *key, const char *value)
{
    if (strcmp(key, "card") == 0) {
        if (reader->host->card_count >= SIM_CARDS)
            return "is one card too many";
        reader->card = &reader->host->cards[reader->host->card_count++];
        reader->profile = NULL;
        fresh_facts(&reader->card->facts);
        reader->card->facts.minor = reader->host->card_count - 1;
        return NULL;
    }
    unsigned index;
    if (!reader->card || sscanf(value, "%u", &index) != 1 || index >= SIM_PROFILES)
        return "is not a profile number of NVML inside a card";
    reader->profile = &reader->card->facts.profiles[index];
    reader->profile->present = 1;
    return NULL;
}

static const char *one_line(struct reader *reader, char *line)
{
    line[strcspn(line, "\r\n")] = 0;
    line += strspn(line, " \t");
    if (!*line || *line == '#')
        return NULL;
    char *value = line + strcspn(line, " \t");
    if (*value)
        *value++ = 0;
    value += strspn(value, " \t");
    if (strcmp(line, "card") == 0 || strcmp(line, "profile") == 0)
        return open_block(reader, line, value);
    if (reader->profile)
        return profile_line(reader, line, value);
    return reader->card ? card_line(reader, line, value) : host_line(reader->host, line, value);
}

static int complain(const struct reader *reader, const char *key, const char *mistake)
{
    fprintf(stderr, "simctl: description line %u: %s: %s\n", reader->line, key, mistake);
    return -1;
}

static int by_address(const void *left, const void *right)
{
    const struct sim_facts *a = &((const struct sim_card *)left)->facts;
    const struct sim_facts *b = &((const struct sim_card *)right)->facts;
    uint64_t x = (uint64_t)a->domain << 32 | a->bus << 8 | a->device;
    uint64_t y = (uint64_t)b->domain << 32 | b->bus << 8 | b->device;
    return x < y ? -1 : x > y;
}

/* Cards are kept in PCI order, so that a card's index is NVML's index on the whole host. */
static int finish(struct reader *reader)
{
    struct sim_host *host = reader->host;
    for (unsigned i = 0; i < host->card_count; i++) {
        struct sim_card *card = &host->cards[i];
        struct knob_effects effects = {0};
        if (!*card->facts.uuid || !*card->facts.name)
            return complain(reader, "card", "needs a name and a uuid");
        if (!card->facts.pcie_gpu_max_gen)
            card->facts.pcie_gpu_max_gen = card->facts.pcie_max_gen;
        fresh_state(&card->facts, &card->state);
        for (unsigned s = 0; s < reader->set_count[i]; s++) {
            char *name = reader->sets[i][s], *value = name + strcspn(name, " \t");
            if (*value)
                *value++ = 0;
            const char *mistake = knob_apply(i, &card->state, name, value, &effects);
            if (mistake)
                return complain(reader, name, mistake);
        }
        card->live.energy_at_ns = sim_now_ns();
    }
    qsort(host->cards, host->card_count, sizeof *host->cards, by_address);
    if (!*host->nvml_version)
        snprintf(host->nvml_version, sizeof host->nvml_version, "%u.%.60s",
                 host->cuda_version / 1000, host->driver_version);
    if (!*host->driver_branch)
        snprintf(host->driver_branch, sizeof host->driver_branch, "r%.3s_00", host->driver_version);
    if (!host->caps_major)
        host->caps_major = 508;
    return *host->driver_version ? 0 : complain(reader, "driver", "is missing");
}

int describe(struct sim_host *host, void *file)
{
    char *line = NULL;
    size_t size = 0;
    int result = 0;
    struct reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return -1;
    reader->host = host;
    while (result == 0 && getline(&line, &size, file) >= 0) {
        reader->line++;
        const char *mistake = one_line(reader, line);
        if (mistake)
            result = complain(reader, line + strspn(line, " \t"), mistake);
    }
    if (result == 0)
        result = finish(reader);
    free(line);
    free(reader);
    return result;
}
