/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of named fields, and reading and printing them.
 */
#include "keys.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(type, name, kind, field)                                                             \
    {name, kind, offsetof(struct type, field), sizeof((struct type *)0)->field, false, false}
#define AUTO(name, kind, field)                                                                    \
    {name, kind, offsetof(struct sim_state, field), 4, true, false}
#define FAULT(name, field)                                                                         \
    {name, KEY_U32, offsetof(struct sim_state, field), 4, false, true}
#define END {NULL, KEY_U32, 0, 0, false, false}

#define TEXT(name, field) FIELD(sim_facts, name, KEY_TEXT, field)
#define U32(name, field) FIELD(sim_facts, name, KEY_U32, field)
#define U64(name, field) FIELD(sim_facts, name, KEY_U64, field)
#define I32(name, field) FIELD(sim_facts, name, KEY_I32, field)

const struct key fact_keys[] = {
    TEXT("name", name), TEXT("uuid", uuid), TEXT("serial", serial),
    TEXT("board-part", board_part), TEXT("gpu-part", gpu_part), TEXT("vbios", vbios),
    TEXT("inforom-image", inforom_image), TEXT("inforom-oem", inforom_oem),
    TEXT("inforom-ecc", inforom_ecc), TEXT("inforom-power", inforom_power), TEXT("gsp", gsp),
    TEXT("chassis", chassis), U32("pci-id", pci_id), U32("subsystem-id", subsystem_id),
    U32("pci-class", pci_class), U32("minor", minor), U32("board-id", board_id),
    U32("module-id", module_id), U32("irq", irq), U32("brand", brand),
    U32("architecture", architecture), U32("multiprocessors", multiprocessors),
    U32("cores", cores), U64("memory-mib", memory_mib), U64("reserved-mib", reserved_mib),
    U64("bar1-mib", bar1_mib), U32("memory-bus-width", memory_bus_width), U32("fans", fans),
    U32("max-graphics-mhz", max_graphics), U32("max-sm-mhz", max_sm),
    U32("max-memory-mhz", max_memory), U32("max-video-mhz", max_video),
    U32("idle-graphics-mhz", idle_graphics), U32("idle-memory-mhz", idle_memory),
    U32("idle-video-mhz", idle_video), U32("app-graphics-mhz", app_graphics),
    U32("app-memory-mhz", app_memory), U32("power-default-mw", power_default_mw),
    U32("power-min-mw", power_min_mw), U32("power-max-mw", power_max_mw),
    U32("power-idle-mw", power_idle_mw), I32("temperature-idle", temperature_idle),
    I32("temperature-load", temperature_load), I32("temperature-margin-base", margin),
    I32("temperature-shutdown", shutdown), I32("temperature-slowdown", slowdown),
    I32("temperature-gpu-max", gpu_max), I32("temperature-memory-max", memory_max),
    U32("pcie-max-gen", pcie_max_gen), U32("pcie-gpu-max-gen", pcie_gpu_max_gen),
    U32("pcie-max-width", pcie_max_width), U32("nvlink-version", nvlink_version),
    U32("nvlink-count", nvlink_count), U32("nvlink-mbps", nvlink_mbps), U32("c2c-links", c2c),
    U32("numa-node", numa_node), U32("gpu-numa-id", gpu_numa_id), U32("board", board),
    U32("pcie-switch", pcie_switch), U32("pcie-tree", pcie_tree), U32("host-bridge", host_bridge),
    U32("cpu-node", cpu_node), U32("remap-banks", remap_banks), U32("addressing", addressing),
    U32("virtualization", virtualization), U32("slot", slot), U32("tray", tray),
    U32("host-id", host_id), U32("peer-type", peer_type), U32("mig-slices", mig_slices),
    U32("mig-grid", mig_grid), U32("mig-devices", mig_devices),
    U32("mig-kept-over-reboot", mig_kept_over_reboot), U32("mig-resetless", mig_resetless), END};

const struct key profile_keys[] = {
    FIELD(sim_profile, "id", KEY_U32, id), FIELD(sim_profile, "name", KEY_TEXT, name),
    FIELD(sim_profile, "slices", KEY_U32, slices), FIELD(sim_profile, "max", KEY_U32, max),
    FIELD(sim_profile, "multiprocessors", KEY_U32, multiprocessors),
    FIELD(sim_profile, "copy", KEY_U32, copy), FIELD(sim_profile, "decoder", KEY_U32, decoder),
    FIELD(sim_profile, "encoder", KEY_U32, encoder), FIELD(sim_profile, "jpeg", KEY_U32, jpeg),
    FIELD(sim_profile, "ofa", KEY_U32, ofa),
    FIELD(sim_profile, "memory-mib", KEY_U64, memory_mib),
    FIELD(sim_profile, "capabilities", KEY_U32, capabilities), END};

#define S32(name, field) FIELD(sim_state, name, KEY_U32, field)
#define S64(name, field) FIELD(sim_state, name, KEY_U64, field)

const struct key state_keys[] = {
    FAULT("lost", lost), FAULT("lost-code", lost_code), FAULT("fail", fail_code),
    FAULT("hang", hang), FAULT("slow-ms", slow_ms), S32("needs-reset", needs_reset),
    S32("recovery-action", recovery_action), S32("excluded", excluded),
    AUTO("temperature", KEY_I32, temperature),
    AUTO("memory-temperature", KEY_I32, memory_temperature), AUTO("power-mw", KEY_U32, power_mw),
    AUTO("utilization", KEY_U32, utilization[0]),
    AUTO("memory-utilization", KEY_U32, utilization[1]),
    AUTO("encoder-utilization", KEY_U32, utilization[2]),
    AUTO("decoder-utilization", KEY_U32, utilization[3]),
    AUTO("jpeg-utilization", KEY_U32, utilization[4]),
    AUTO("ofa-utilization", KEY_U32, utilization[5]), AUTO("fan", KEY_U32, fan_percent),
    AUTO("pstate", KEY_U32, pstate), S32("thermal", thermal_reasons),
    S32("power-limit-mw", power_limit_mw), S32("locked-min-mhz", locked_min),
    S32("locked-max-mhz", locked_max), S32("compute-mode", compute_mode),
    S32("persistence", persistence), S32("ecc-mode", ecc_current), S32("ecc-pending", ecc_pending),
    S32("accounting", accounting), S32("sram-threshold", sram_threshold_exceeded),
    S32("retired-single", retired_single), S32("retired-double", retired_double),
    S32("retired-pending", retired_pending), S32("remap-correctable", remap_correctable),
    S32("remap-uncorrectable", remap_uncorrectable), S32("remap-pending", remap_pending),
    S32("remap-failure", remap_failure), S32("pcie-gen", pcie_gen), S32("pcie-width", pcie_width),
    S32("pcie-replays", pcie_replays), S32("pcie-tx-kib", pcie_tx_kib),
    S32("pcie-rx-kib", pcie_rx_kib), S64("nvlink-down", nvlink_down),
    S64("nvlink-tx-kib", nvlink_tx_kib), S64("nvlink-rx-kib", nvlink_rx_kib),
    S64("last-xid", last_xid), S64("xid-count", xid_count), S32("fabric-state", fabric_state),
    S32("fabric-health", fabric_health), S32("mig-mode", mig_current),
    S32("mig-pending", mig_pending), S32("drain", drain), S32("timeslice", timeslice),
    S64("generation", generation), END};

const struct key *key_find(const struct key *keys, const char *name)
{
    for (; keys->name; keys++)
        if (strcmp(keys->name, name) == 0)
            return keys;
    return NULL;
}

static const char *parse_number(const struct key *key, void *field, const char *text)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 0);
    if (end == text || *end || errno)
        return "is not a number";
    if (key->kind == KEY_U64) {
        uint64_t value = (uint64_t)number;
        memcpy(field, &value, sizeof value);
        return NULL;
    }
    if (number < INT32_MIN || number > UINT32_MAX)
        return "is out of range";
    uint32_t value = (uint32_t)number;
    memcpy(field, &value, sizeof value);
    return NULL;
}

const char *key_parse(const struct key *key, void *base, const char *text)
{
    char *field = (char *)base + key->offset;
    if (key->kind == KEY_TEXT) {
        if (strlen(text) >= key->size)
            return "is too long";
        memset(field, 0, key->size);
        memcpy(field, text, strlen(text));
        return NULL;
    }
    if (key->automatic && strcmp(text, "auto") == 0) {
        uint32_t value = key->kind == KEY_I32 ? (uint32_t)SIM_NO_LIMIT : SIM_ANY;
        memcpy(field, &value, sizeof value);
        return NULL;
    }
    return parse_number(key, field, text);
}

void key_json(const struct key *key, const void *base, char *to, size_t size)
{
    const char *field = (const char *)base + key->offset;
    uint32_t small;
    uint64_t large;
    if (key->kind == KEY_TEXT) {
        size_t used = 0;
        used += (size_t)snprintf(to, size, "\"");
        for (; *field && used + 8 < size; field++)
            used += (size_t)snprintf(to + used, size - used, strchr("\"\\", *field) ? "\\%c" : "%c",
                                     *field);
        snprintf(to + used, size - used, "\"");
        return;
    }
    if (key->kind == KEY_U64) {
        memcpy(&large, field, sizeof large);
        snprintf(to, size, "%" PRIu64, large);
        return;
    }
    memcpy(&small, field, sizeof small);
    if (key->kind == KEY_I32 ? (int32_t)small == SIM_NO_LIMIT : small == SIM_ANY)
        snprintf(to, size, "null");
    else if (key->kind == KEY_I32)
        snprintf(to, size, "%" PRId32, (int32_t)small);
    else
        snprintf(to, size, "%" PRIu32, small);
}
