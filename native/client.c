/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes that use cards, and how anybody knows that one is gone.
 *
 * A process owns slot N while it holds a POSIX record lock on byte N of `clients`. The kernel drops
 * the lock when the process ends in any way, and translates the owner's pid for whoever asks with
 * F_GETLK, so pids are right in every pid namespace. Closing any descriptor of that file would drop
 * the locks too: it is opened once and never closed.
 */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static pthread_mutex_t slots = PTHREAD_MUTEX_INITIALIZER;
static int clients_fd = -1;
static pid_t opened_by;
static char opened_folder[PATH_MAX];
static struct sim_client *own;

/* Two libraries of one process share the slot without knowing of each other. */
static void identity(uint64_t owner[2])
{
    const void *random = (const void *)getauxval(AT_RANDOM);
    owner[0] = (uint64_t)getpid();
    owner[1] = 0;
    if (random)
        memcpy(&owner[1], random, sizeof owner[1]);
}

static bool is_own(const struct sim_client *client)
{
    uint64_t me[2];
    identity(me);
    return client->owner[0] == me[0] && client->owner[1] == me[1];
}

static int descriptor(void)
{
    char path[PATH_MAX];
    pthread_mutex_lock(&slots);
    if (clients_fd < 0 || opened_by != getpid() || strcmp(opened_folder, sim_folder()) != 0) {
        snprintf(opened_folder, sizeof opened_folder, "%s", sim_folder());
        if (snprintf(path, sizeof path, "%s/clients", sim_folder()) < (int)sizeof path) {
            clients_fd = open(path, O_RDWR | O_CLOEXEC);
            if (clients_fd < 0)
                clients_fd = open(path, O_RDONLY | O_CLOEXEC);
        }
        opened_by = getpid();
        own = NULL;
    }
    pthread_mutex_unlock(&slots);
    return clients_fd;
}

static bool held_by_other(unsigned index, pid_t *pid)
{
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = index, .l_len = 1};
    if (fcntl(descriptor(), F_GETLK, &byte) != 0 || byte.l_type == F_UNLCK)
        return false;
    *pid = byte.l_pid > 0 ? byte.l_pid : 0;
    return true;
}

pid_t sim_client_pid(unsigned index)
{
    const struct sim_client *client = &sim_host->clients[index];
    if (!__atomic_load_n(&client->taken, __ATOMIC_ACQUIRE))
        return -1;
    if (client->pretend_pid)
        return (pid_t)client->pretend_pid;
    pid_t pid;
    if (held_by_other(index, &pid))
        return pid;
    return is_own(client) ? getpid() : -1;
}

void sim_client_clear(struct sim_client *client)
{
    __atomic_store_n(&client->taken, 0, __ATOMIC_RELEASE);
    memset(client, 0, sizeof *client);
}

static void read_name(char *name, size_t size)
{
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t length = file ? fread(name, 1, size - 1, file) : 0;
    if (file)
        fclose(file);
    name[length] = 0;
    if (length == 0)
        snprintf(name, size, "%s", program_invocation_short_name);
}

static struct sim_client *take(unsigned index)
{
    struct sim_client *client = &sim_host->clients[index];
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = index, .l_len = 1};
    if (fcntl(descriptor(), F_SETLK, &byte) != 0)
        return NULL;
    sim_client_clear(client);
    identity(client->owner);
    client->since_ns = sim_now_ns();
    read_name(client->name, sizeof client->name);
    for (unsigned card = 0; card < SIM_CARDS; card++)
        client->uses[card].gpu_instance = client->uses[card].compute_instance = SIM_ANY;
    __atomic_store_n(&client->taken, 1, __ATOMIC_RELEASE);
    return client;
}

static struct sim_client *find_or_take(void)
{
    for (unsigned i = 0; i < SIM_CLIENTS; i++)
        if (sim_host->clients[i].taken && is_own(&sim_host->clients[i]))
            return &sim_host->clients[i];
    for (unsigned i = 0; i < SIM_CLIENTS; i++)
        if (sim_client_pid(i) < 0) {
            struct sim_client *client = take(i);
            if (client)
                return client;
        }
    return NULL;
}

struct sim_client *sim_client_own(void)
{
    descriptor();
    bool mapped = own >= sim_host->clients && own < sim_host->clients + SIM_CLIENTS;
    if (mapped && own->taken && is_own(own))
        return own;
    if (sim_lock() != SIM_OK)
        return NULL;
    own = find_or_take();
    sim_unlock();
    return own;
}

struct sim_client *sim_client_pretend(unsigned pid)
{
    struct sim_client *found = NULL;
    for (unsigned i = 0; i < SIM_CLIENTS && !found; i++)
        if (sim_host->clients[i].taken && sim_host->clients[i].pretend_pid == pid)
            found = &sim_host->clients[i];
    for (unsigned i = 0; i < SIM_CLIENTS && !found; i++)
        if (sim_client_pid(i) < 0) {
            found = &sim_host->clients[i];
            sim_client_clear(found);
            found->pretend_pid = pid;
            found->since_ns = sim_now_ns();
            for (unsigned card = 0; card < SIM_CARDS; card++)
                found->uses[card].gpu_instance = found->uses[card].compute_instance = SIM_ANY;
            __atomic_store_n(&found->taken, 1, __ATOMIC_RELEASE);
        }
    return found;
}

static bool uses(const struct sim_use *use, uint32_t gpu_instance, uint32_t compute_instance)
{
    return use->contexts && (gpu_instance == SIM_ANY || use->gpu_instance == gpu_instance) &&
           (compute_instance == SIM_ANY || use->compute_instance == compute_instance);
}

uint64_t sim_used_bytes(unsigned card, uint32_t gpu_instance)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < SIM_CLIENTS; i++) {
        const struct sim_use *use = &sim_host->clients[i].uses[card];
        if (sim_host->clients[i].taken && uses(use, gpu_instance, SIM_ANY) &&
            sim_client_pid(i) >= 0)
            sum += __atomic_load_n(&use->bytes, __ATOMIC_RELAXED);
    }
    return sum;
}

unsigned sim_busy(unsigned card, uint32_t gpu_instance, uint32_t compute_instance)
{
    unsigned count = 0;
    for (unsigned i = 0; i < SIM_CLIENTS; i++)
        if (sim_host->clients[i].taken &&
            uses(&sim_host->clients[i].uses[card], gpu_instance, compute_instance) &&
            sim_client_pid(i) >= 0)
            count++;
    return count;
}

unsigned sim_mps_clients(unsigned card)
{
    unsigned count = 0;
    for (unsigned i = 0; i < SIM_CLIENTS; i++)
        if (sim_host->clients[i].taken &&
            sim_host->clients[i].uses[card].contexts == SIM_MPS_CONTEXT && sim_client_pid(i) >= 0)
            count++;
    return count;
}
