/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of one simulated host and the rules for touching it.
 *
 * A simulation folder holds `state` (this layout, mapped shared by every process that looks at the
 * host), `lock` (writers), `clients` (one lock byte per process that uses a card) and
 * `proc/driver/nvidia` (what the driver would show of MIG). Facts are written once by
 * `simctl create`; everything that can change later lives in sim_state, sim_live, sim_client
 * or the event ring. native/README.md describes the protocol in words.
 */
#ifndef SIM_STATE_H
#define SIM_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_MAGIC UINT64_C(0x315445544b455047)
#define SIM_VERSION 3u
#define SIM_CARDS 32
#define SIM_LINKS 36
#define SIM_PROFILES 18     /* NVML_GPU_INSTANCE_PROFILE_COUNT */
#define SIM_CI_PROFILES 9   /* NVML_COMPUTE_INSTANCE_PROFILE_COUNT */
#define SIM_PLACEMENTS 16
#define SIM_INSTANCES 15    /* GPU instance ids 0..14, the range of the capability minors. */
#define SIM_COMPUTE 8       /* Compute instance ids 0..7, likewise. */
#define SIM_CLIENTS 256
#define SIM_EVENTS 256
#define SIM_LIMITS 256
#define SIM_GROUPS 64       /* cgroup folders that a process is in, with those above. */
#define SIM_ABOVE 16        /* Folders above a limited one that count for it. */
#define SIM_CLOCKS 4
#define SIM_CPU_WORDS 16    /* 1024 CPUs */
#define SIM_RULES 8
#define SIM_LOCATIONS 8     /* NVML_MEMORY_LOCATION_COUNT */
#define SIM_ANY UINT32_MAX  /* No GPU or compute instance; also "no value". */
#define SIM_MIB (UINT64_C(1) << 20)

/* What a model may lack; the bit makes the calls of that group answer NOT_SUPPORTED. */
#define SIM_FEATURES(X)                                                                            \
    X(MEMORY, "memory") X(BAR1, "bar1") X(ECC, "ecc") X(RETIRED_PAGES, "retired-pages")            \
    X(REMAPPED_ROWS, "remapped-rows") X(MEMORY_TEMPERATURE, "memory-temperature")                  \
    X(TEMPERATURE, "temperature") X(FAN, "fan") X(POWER_LIMIT, "power-limit")                      \
    X(POWER_USAGE, "power-usage") X(AVERAGE_POWER, "average-power") X(ENERGY, "energy")            \
    X(SUPPORTED_CLOCKS, "supported-clocks") X(APPLICATION_CLOCKS, "application-clocks")            \
    X(UTILIZATION, "utilization") X(FABRIC, "fabric") X(PLATFORM, "platform") X(GPM, "gpm")        \
    X(ACCOUNTING, "accounting") X(SERIAL, "serial") X(BOARD_PART, "board-part")                    \
    X(MODULE_ID, "module-id") X(GSP, "gsp") X(INFOROM, "inforom") X(ADDRESSING, "addressing")      \
    X(EVENTS, "events") X(DISPLAY, "display") X(PCIE_THROUGHPUT, "pcie-throughput")                \
    X(COMPUTE_MODE, "compute-mode") X(PERSISTENCE, "persistence") X(RECOVERY, "recovery-action")   \
    X(MEMORY_LIMITS, "memory-limits") X(PROCESS_MEMORY, "process-memory")

enum sim_feature {
#define X(name, text) SIM_F_##name,
    SIM_FEATURES(X)
#undef X
    SIM_FEATURE_COUNT
};

/* How a change of the MIG mode takes effect. */
enum sim_mig_change { SIM_MIG_AT_ONCE = 0, SIM_MIG_BY_RESET = 1, SIM_MIG_PENDING = 2 };

enum sim_context { SIM_COMPUTE_CONTEXT = 1, SIM_GRAPHICS_CONTEXT = 2, SIM_MPS_CONTEXT = 4 };

struct sim_placement {
    uint32_t start, size;
    uint32_t id; /* The GPU instance id that the driver gives here, SIM_ANY when not known. */
};

struct sim_ci_profile {
    uint32_t present, id, slices, max, multiprocessors;
};

struct sim_profile {
    uint32_t present, id, slices, max;
    uint32_t multiprocessors, copy, decoder, encoder, jpeg, ofa;
    uint64_t memory_mib;
    char name[96]; /* As NVML prints it: "MIG 1g.10gb". */
    uint32_t placement_count;
    uint32_t capabilities;
    struct sim_placement placements[SIM_PLACEMENTS];
    struct sim_ci_profile compute[SIM_CI_PROFILES];
};

struct sim_link {
    uint32_t present, type, domain, bus, device, remote_link, pci_id, pad;
};

struct sim_clocks {
    uint32_t memory, max, min, steps;
};

struct sim_facts {
    char name[96], uuid[96], serial[32], board_part[80], gpu_part[80], vbios[32];
    char inforom_image[16], inforom_oem[16], inforom_ecc[16], inforom_power[16], gsp[64];
    uint32_t domain, bus, device, pci_id, subsystem_id, pci_class, minor, board_id, module_id, irq;
    uint32_t brand, architecture, cc_major, cc_minor, multiprocessors, cores;
    uint64_t memory_mib, reserved_mib, bar1_mib;
    uint32_t memory_bus_width, fans;
    uint32_t max_graphics, max_sm, max_memory, max_video, idle_graphics, idle_memory, idle_video;
    uint32_t app_graphics, app_memory;
    struct sim_clocks clocks[SIM_CLOCKS];
    uint32_t power_default_mw, power_min_mw, power_max_mw, power_idle_mw;
    int32_t temperature_idle, temperature_load;
    int32_t margin; /* The temperature at which T.Limit is 0; 0 when limits are absolute. */
    int32_t shutdown, slowdown, gpu_max, memory_max; /* SIM_NO_LIMIT when not reported. */
    uint32_t pcie_max_gen, pcie_gpu_max_gen, pcie_max_width;
    uint32_t nvlink_version, nvlink_count, nvlink_mbps, c2c;
    struct sim_link links[SIM_LINKS];
    uint32_t numa_node, gpu_numa_id;
    uint32_t board, pcie_switch, pcie_tree, host_bridge, cpu_node; /* Places in the topology. */
    uint64_t cpus[SIM_CPU_WORDS];
    uint32_t remap_banks;
    uint32_t fabric_state, fabric_clique, fabric_health;
    uint8_t fabric_cluster[16];
    uint32_t addressing, virtualization;
    char chassis[16];
    uint32_t slot, tray, host_id, peer_type;
    uint32_t mig_slices, mig_grid, mig_devices, mig_change, mig_kept_over_reboot, mig_resetless;
    uint64_t lacks; /* Bits of enum sim_feature. */
    struct sim_profile profiles[SIM_PROFILES];
};

#define SIM_NO_LIMIT INT32_MIN

struct sim_compute_instance {
    uint32_t present, profile, start, size; /* profile: index into sim_profile.compute */
};

struct sim_instance {
    uint32_t present, profile, start, size; /* profile: index into sim_facts.profiles */
    struct sim_compute_instance compute[SIM_COMPUTE];
};

struct sim_rule {
    char function[80];
    int32_t code; /* Answer of that function; SIM_RULE_HANG blocks it. 0 = rule not used. */
};

#define SIM_RULE_HANG (-1)

/* Everything about one card that changes by whole transactions under the writers' lock. */
struct sim_state {
    uint32_t lost, lost_code, fail_code, hang, slow_ms, needs_reset, recovery_action, excluded;
    struct sim_rule rules[SIM_RULES];
    int32_t temperature, memory_temperature; /* SIM_NO_LIMIT = follows the load. */
    uint32_t power_mw;       /* SIM_ANY = follows the load, */
    uint32_t utilization[6]; /* these too: gpu memory encoder decoder jpeg ofa. */
    uint32_t fan_percent, thermal_reasons, power_limit_mw;
    uint32_t locked_min, locked_max, locked_memory_min, locked_memory_max;
    uint32_t app_graphics, app_memory, pstate;
    uint32_t compute_mode, persistence, ecc_current, ecc_pending, accounting;
    uint64_t ecc[2][2][SIM_LOCATIONS]; /* [corrected, uncorrected][volatile, aggregate][where] */
    uint32_t sram_threshold_exceeded;
    uint32_t retired_single, retired_double, retired_pending;
    uint32_t remap_correctable, remap_uncorrectable, remap_pending, remap_failure;
    uint32_t remap_histogram[5]; /* max high partial low none */
    uint32_t pcie_gen, pcie_width, pcie_replays, pcie_tx_kib, pcie_rx_kib;
    uint64_t nvlink_down;        /* Bit per link. */
    uint64_t nvlink_errors[SIM_LINKS][5], nvlink_tx_kib, nvlink_rx_kib;
    uint64_t last_xid, xid_count;
    uint32_t fabric_state, fabric_health;
    uint32_t mig_current, mig_pending, drain, timeslice;
    struct sim_instance instances[SIM_INSTANCES];
    uint64_t generation; /* Counts transactions. */
};

/* Counters that move without a transaction: every field is touched with atomics only. */
struct sim_live {
    uint64_t energy_mj, energy_at_ns;
    uint32_t knob_futex; /* Bumped when a fault knob changes; hung calls sleep on it. */
    uint32_t pad;
};

struct sim_card {
    uint64_t sequence; /* Odd while a writer is inside. */
    struct sim_facts facts;
    struct sim_state state;
    struct sim_live live;
};

struct sim_use {
    uint32_t contexts;        /* enum sim_context bits; 0 = does not use this card. */
    uint32_t gpu_instance, compute_instance;
    uint32_t sm, memory_utilization, encoder, decoder; /* percent */
    uint32_t pad;
    uint64_t bytes, peak_bytes, since_ns;
};

/* A process that uses cards. Only its owner writes it; it counts only while the owner's lock on
 * byte `index` of `clients` is held (or the pretend pid is set), so a killed owner frees it. */
struct sim_client {
    uint32_t taken, pretend_pid;
    uint64_t owner[2]; /* The owner's pid and its image's random bytes: recognises itself. */
    uint64_t since_ns;
    char name[128];
    uint64_t groups[SIM_GROUPS]; /* Keys of its cgroup folders; 0 = not used. */
    struct sim_use uses[SIM_CARDS];
};

/* A limit of a card's memory for the processes in one cgroup folder and below. The key is made of
 * the folder's device and inode, which are the same seen from every namespace and never come back;
 * the path is as its setter saw it, to find out that the folder is gone. The setter adds the keys of
 * the folders above: a process in the folder may see nothing above it. */
struct sim_limit {
    uint64_t group; /* Key of the folder; 0 = not used. Written last. */
    uint64_t soft, hard;
    uint64_t above[SIM_ABOVE]; /* Nearest first; 0 = not used. */
    uint32_t card, pad;
    char path[512];
};

struct sim_event {
    uint64_t sequence; /* Written last: the entry is whole when it equals its place + 1. */
    uint64_t type, data, time_us;
    uint32_t card, gpu_instance, compute_instance, system; /* system: 1 = for system event sets. */
};

struct sim_journal {
    uint32_t card; /* Index + 1 while a transaction is open. */
    uint32_t pad;
    uint64_t sequence;
    struct sim_state before;
};

struct sim_host {
    uint64_t magic;
    uint32_t version, size, card_count, caps_major;
    uint32_t init_code, cuda_version;
    char driver_version[80], nvml_version[80], driver_branch[80];
    uint64_t boot_ns, boot_count;
    uint32_t event_futex, pad;
    uint64_t event_head;
    struct sim_event events[SIM_EVENTS];
    struct sim_journal journal;
    uint8_t room[65536]; /* For what later versions add without moving the cards. */
    struct sim_card cards[SIM_CARDS];
    struct sim_client clients[SIM_CLIENTS];
    struct sim_limit limits[SIM_LIMITS];
};

/* NVML codes that this layer answers; the same numbers as nvmlReturn_t. */
enum { SIM_OK = 0, SIM_NO_PERMISSION = 4, SIM_DRIVER_NOT_LOADED = 9, SIM_SYSTEM = 17,
       SIM_MISMATCH = 18 };

/* Maps the folder's state (again, when the folder or the file in it is another than before). */
int sim_open(const char *folder);
const char *sim_default_folder(void);
const char *sim_folder(void);
const char *sim_devices(void);
extern struct sim_host *sim_host;

/* Makes a new state file of a host whose facts `fill` writes; used by simctl create alone. */
int sim_create(const char *folder, int (*fill)(struct sim_host *host, void *argument),
               void *argument);

/* Readers: a consistent copy of a card's changeable state. */
void sim_read(unsigned card, struct sim_state *copy);

/* Writers: begin takes the lock and journals the card; end publishes; abort restores. */
struct sim_state *sim_begin(unsigned card);
void sim_end(unsigned card);
void sim_abort(unsigned card);
int sim_lock(void);
void sim_unlock(void);

/* Uses. sim_client_pid answers 0 for a live owner outside the caller's pid namespace and -1 for a
 * dead one. sim_client_own gives this process's slot, NULL when all slots are taken. */
pid_t sim_client_pid(unsigned index);
struct sim_client *sim_client_own(void);
struct sim_client *sim_client_pretend(unsigned pid);
void sim_client_clear(struct sim_client *client);
uint64_t sim_used_bytes(unsigned card, uint32_t gpu_instance);
unsigned sim_busy(unsigned card, uint32_t gpu_instance, uint32_t compute_instance);
/* How many of them work through an MPS server. */
unsigned sim_mps_clients(unsigned card);

/* Memory limits by cgroup. sim_group gives the key of a cgroup folder, 0 when the path is none.
 * sim_client_groups writes into the slot where this process is now. sim_limit_left gives what the
 * limits of its cgroups leave this process of a card. Callers of sim_limit_set hold the lock. */
#define SIM_UNLIMITED UINT64_MAX
uint64_t sim_group(const char *path);
void sim_client_groups(struct sim_client *client);
const struct sim_limit *sim_limit_of(unsigned card, uint64_t group);
bool sim_limit_set(unsigned card, const char *path, uint64_t soft, uint64_t hard);
uint64_t sim_group_used(unsigned card, uint64_t group);
uint64_t sim_limit_left(unsigned card);

/* Events and waiting. */
void sim_raise(unsigned card, uint64_t type, uint64_t data, uint32_t gi, uint32_t ci);
void sim_raise_system(unsigned card, uint64_t type);
/* Copies the event at a place of the ring; false when it is being overwritten. */
bool sim_read_event(uint64_t place, struct sim_event *copy);
/* Sleeps until the ring moved past `seen`, a slice passed, or the end; false once it is over. */
bool sim_wait_event(uint32_t seen, uint64_t end_ns);
int sim_futex_wait(uint32_t *word, uint32_t seen, unsigned milliseconds);
void sim_futex_wake(uint32_t *word);
uint64_t sim_now_ns(void);
uint64_t sim_time_us(void);

/* What a rule makes `function` answer on the card; 0 for none. */
int sim_rule_for(const struct sim_state *state, const char *function);

/* Faults: waits while the card hangs or is slow, answers the code that its calls must answer. */
int sim_faults(unsigned card, const char *function, struct sim_state *copy);

/* A device node counts as there when opening it succeeds or fails only for want of a driver. */
int sim_node_error(const char *name);
static inline bool sim_lacks(const struct sim_facts *facts, enum sim_feature feature)
{
    return facts->lacks >> feature & 1;
}
const char *sim_feature_name(unsigned feature);

#endif
