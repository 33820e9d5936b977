/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capability nodes and files of MIG instances, kept in step with the state.
 *
 * Minors follow the driver's fixed scheme (open kernel modules 595): 3 + (15 G + I) 9 for GPU
 * instance I of the GPU with minor G, and the C + 1 after it for compute instance C. Like
 * nvidia-modprobe, whoever creates an instance also makes the device node where it may.
 */
#define _GNU_SOURCE
#include "capability.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

unsigned capability_of_instance(unsigned gpu_minor, unsigned gi)
{
    return 3 + (15 * gpu_minor + gi) * 9;
}

unsigned capability_of_compute(unsigned gpu_minor, unsigned gi, unsigned ci)
{
    return capability_of_instance(gpu_minor, gi) + 1 + ci;
}

/* MIG UUIDs are of version 5: the same place on the same card has the same one again. */
void mig_uuid(const struct sim_facts *facts, unsigned gi, unsigned ci, char *to, size_t size)
{
    char name[160];
    uint64_t half[2] = {UINT64_C(0xcbf29ce484222325), UINT64_C(0x84222325cbf29ce4)};
    snprintf(name, sizeof name, "%s/%u/%u", facts->uuid, gi, ci);
    for (unsigned round = 0; round < 4; round++)
        for (const char *c = name; *c; c++) {
            half[0] = (half[0] ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
            half[1] = (half[1] ^ half[0] >> 29 ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
        }
    snprintf(to, size, "MIG-%08x-%04x-5%03x-%04x-%012llx", (unsigned)(half[0] >> 32),
             (unsigned)(half[0] >> 16 & 0xffff), (unsigned)(half[0] & 0xfff),
             (unsigned)(half[1] >> 48 & 0x3fff) | 0x8000,
             (unsigned long long)(half[1] & UINT64_C(0xffffffffffff)));
}

static void make_node(unsigned minor)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.3800s/nvidia-caps", sim_devices());
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%.3800s/nvidia-caps/nvidia-cap%u", sim_devices(), minor);
    mode_t mode = S_IFCHR | (minor == CAPABILITY_CONFIG ? 0400 : 0444);
    /* Without permission the node stays away, and with it the access: nothing to report. */
    if (mknod(path, mode, makedev(sim_host->caps_major, minor)) == 0)
        chmod(path, mode & 0777);
}

static int node_error(unsigned minor)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.3800s/nvidia-caps/nvidia-cap%u", sim_devices(), minor);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
        close(fd);
        return 0;
    }
    return errno == ENXIO || errno == ENODEV ? 0 : errno;
}

bool capability_open(unsigned minor)
{
    int error = node_error(minor);
    if (error == ENOENT && minor == CAPABILITY_CONFIG) {
        make_node(minor);
        error = node_error(minor);
    }
    return error == 0;
}

bool capability_visible(unsigned card, unsigned gi, unsigned ci)
{
    unsigned minor = sim_host->cards[card].facts.minor;
    return node_error(capability_of_instance(minor, gi)) == 0 &&
           node_error(capability_of_compute(minor, gi, ci)) == 0;
}

/* Makes every folder above the file, then the file, whole at its first sight. */
static void write_access(const char *path, unsigned minor)
{
    char part[PATH_MAX], text[96];
    if (access(path, F_OK) == 0)
        return;
    for (size_t i = strlen(sim_folder()) + 1; path[i] && i < sizeof part; i++)
        if (path[i] == '/') {
            memcpy(part, path, i);
            part[i] = 0;
            mkdir(part, 0755);
        }
    int length = snprintf(text, sizeof text,
                          "DeviceFileMinor: %u\nDeviceFileMode: %u\nDeviceFileModify: 1\n", minor,
                          minor == CAPABILITY_CONFIG ? 256u : 292u);
    if (snprintf(part, sizeof part, "%s.new", path) >= (int)sizeof part)
        return;
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);
    if (fd < 0)
        return;
    bool whole = write(fd, text, (size_t)length) == length;
    close(fd);
    if (!whole || rename(part, path) != 0)
        unlink(part);
}

static void access_path(char *path, size_t size, unsigned minor, unsigned gi, unsigned ci)
{
    char compute[16] = "";
    if (ci != SIM_ANY)
        snprintf(compute, sizeof compute, "/ci%u", ci);
    snprintf(path, size, "%.3800s/proc/driver/nvidia/capabilities/gpu%u/mig/gi%u%s/access",
             sim_folder(), minor, gi, compute);
}

/* Takes away the file, what a writer killed before its rename left beside it, and the folder. */
static void remove_access(char *path)
{
    char fresh[PATH_MAX];
    unlink(path);
    if (snprintf(fresh, sizeof fresh, "%s.new", path) < (int)sizeof fresh)
        unlink(fresh);
    *strrchr(path, '/') = 0;
    rmdir(path);
}

static bool has_folder(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    return access(folder, F_OK) == 0;
}

static void sync_compute(const struct sim_instance *instance, unsigned minor, unsigned gi)
{
    char path[PATH_MAX];
    for (unsigned ci = 0; ci < SIM_COMPUTE; ci++) {
        access_path(path, sizeof path, minor, gi, ci);
        if (instance->present && instance->compute[ci].present) {
            make_node(capability_of_compute(minor, gi, ci));
            write_access(path, capability_of_compute(minor, gi, ci));
        } else {
            remove_access(path);
        }
    }
}

void capability_sync(unsigned card)
{
    char path[PATH_MAX];
    if (sim_lock() != SIM_OK)
        return;
    const struct sim_state *state = &sim_host->cards[card].state;
    unsigned minor = sim_host->cards[card].facts.minor;
    for (unsigned gi = 0; gi < SIM_INSTANCES; gi++) {
        const struct sim_instance *instance = &state->instances[gi];
        access_path(path, sizeof path, minor, gi, SIM_ANY);
        if (instance->present) {
            make_node(capability_of_instance(minor, gi));
            write_access(path, capability_of_instance(minor, gi));
            sync_compute(instance, minor, gi);
        } else if (has_folder(path)) {
            sync_compute(instance, minor, gi);
            remove_access(path);
        }
    }
    sim_unlock();
}

void capability_sync_static(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.3800s/proc/driver/nvidia/capabilities/mig/config", sim_folder());
    write_access(path, CAPABILITY_CONFIG);
    snprintf(path, sizeof path, "%.3800s/proc/driver/nvidia/capabilities/mig/monitor",
             sim_folder());
    write_access(path, CAPABILITY_MONITOR);
    for (unsigned card = 0; card < sim_host->card_count; card++)
        if (sim_host->cards[card].facts.mig_slices)
            capability_sync(card);
}

/* Whether every instance has its file and no other is there; a file comes after its node. */
static bool in_step(unsigned card)
{
    char path[PATH_MAX];
    const struct sim_state *state = &sim_host->cards[card].state;
    unsigned minor = sim_host->cards[card].facts.minor;
    for (unsigned gi = 0; gi < SIM_INSTANCES; gi++) {
        const struct sim_instance *instance = &state->instances[gi];
        access_path(path, sizeof path, minor, gi, SIM_ANY);
        if ((access(path, F_OK) == 0) != instance->present)
            return false;
        for (unsigned ci = 0; instance->present && ci < SIM_COMPUTE; ci++) {
            access_path(path, sizeof path, minor, gi, ci);
            if ((access(path, F_OK) == 0) != instance->compute[ci].present)
                return false;
        }
    }
    return true;
}

void capability_repair(void)
{
    /* Only who may change instances: nobody else finds nodes made for it. */
    if (node_error(CAPABILITY_CONFIG) != 0)
        return;
    for (unsigned card = 0; card < sim_host->card_count; card++)
        if (sim_host->cards[card].facts.mig_slices && !in_step(card))
            capability_sync(card);
}

void sim_restart_energy(unsigned card)
{
    struct sim_live *live = &sim_host->cards[card].live;
    __atomic_store_n(&live->energy_at_ns, sim_now_ns(), __ATOMIC_RELAXED);
    __atomic_store_n(&live->energy_mj, 0, __ATOMIC_RELAXED);
}

void sim_reset(const struct sim_facts *facts, struct sim_state *state)
{
    for (unsigned error = 0; error < 2; error++)
        memset(state->ecc[error][0], 0, sizeof state->ecc[error][0]);
    if (state->remap_pending && state->remap_histogram[0]) {
        state->remap_histogram[0]--;
        state->remap_histogram[1]++;
    }
    state->remap_pending = 0;
    state->retired_pending = 0;
    state->needs_reset = 0;
    state->recovery_action = 0;
    state->lost = 0;
    state->fail_code = state->hang = 0;
    state->thermal_reasons = state->timeslice = 0;
    state->nvlink_down = 0;
    memset(state->nvlink_errors, 0, sizeof state->nvlink_errors);
    state->locked_min = state->locked_max = 0;
    state->locked_memory_min = state->locked_memory_max = 0;
    state->power_limit_mw = facts->power_default_mw;
    state->ecc_current = state->ecc_pending;
    state->mig_current = state->mig_pending;
    memset(state->instances, 0, sizeof state->instances);
}
