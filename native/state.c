/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapping, locking and transactions of a simulated host's state file.
 *
 * Writers hold an open-file-description lock on `lock` (plus a mutex, because threads share the
 * description), save the card in the journal, change it and close the journal. A writer that dies
 * inside leaves the journal open; the next one restores the card. Readers copy without a lock and
 * retry when a writer was inside; after a while they take the lock, which also repairs.
 */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct sim_host *sim_host;

static pthread_mutex_t writers = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER;
static char folder_path[PATH_MAX];
static int lock_fd = -1;
static bool writable;
static struct stat mapped;

const char *sim_default_folder(void)
{
    const char *folder = secure_getenv("GPUDECK_SIMULATION");
    return folder && *folder ? folder : "/run/gpudeck-simulation";
}

const char *sim_folder(void) { return folder_path; }

const char *sim_devices(void)
{
    const char *folder = secure_getenv("GPUDECK_SIMULATION_DEV");
    return folder && *folder ? folder : "/dev";
}

static int open_below(const char *folder, const char *name, int flags)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, flags | O_CLOEXEC, 0666);
}

/* A forked child shares the description of the lock, and so would pass a lock its parent holds. */
static void before_fork(void) { pthread_mutex_lock(&writers); }
static void in_parent(void) { pthread_mutex_unlock(&writers); }
static void in_child(void)
{
    if (lock_fd >= 0) {
        close(lock_fd);
        lock_fd = open_below(folder_path, "lock", O_RDWR);
    }
    pthread_mutex_unlock(&writers);
}

static void watch_forks(void)
{
    static bool watching;
    if (!watching) {
        pthread_atfork(before_fork, in_parent, in_child);
        watching = true;
    }
}

static int map_state(const char *folder)
{
    bool can_write = true;
    int fd = open_below(folder, "state", O_RDWR);
    if (fd < 0 && (errno == EACCES || errno == EROFS || errno == EPERM)) {
        can_write = false;
        fd = open_below(folder, "state", O_RDONLY);
    }
    if (fd < 0)
        return SIM_DRIVER_NOT_LOADED;
    struct stat seen;
    if (fstat(fd, &seen) != 0 || seen.st_size < (off_t)sizeof(struct sim_host)) {
        close(fd);
        return SIM_DRIVER_NOT_LOADED;
    }
    if (sim_host && seen.st_dev == mapped.st_dev && seen.st_ino == mapped.st_ino) {
        close(fd);
        return SIM_OK;
    }
    int protection = can_write ? PROT_READ | PROT_WRITE : PROT_READ;
    struct sim_host *host = mmap(NULL, sizeof *host, protection, MAP_SHARED, fd, 0);
    close(fd);
    if (host == MAP_FAILED)
        return SIM_SYSTEM;
    if (host->magic != SIM_MAGIC || host->version != SIM_VERSION || host->size != sizeof *host) {
        munmap(host, sizeof *host);
        return SIM_MISMATCH;
    }
    /* An earlier mapping stays: another thread may still be reading it. */
    sim_host = host;
    mapped = seen;
    writable = can_write;
    return SIM_OK;
}

int sim_open(const char *folder)
{
    pthread_mutex_lock(&mapping);
    int result = map_state(folder);
    if (result == SIM_OK && strcmp(folder, folder_path) != 0) {
        pthread_mutex_lock(&writers);
        if (lock_fd >= 0)
            close(lock_fd);
        snprintf(folder_path, sizeof folder_path, "%s", folder);
        lock_fd = writable ? open_below(folder, "lock", O_RDWR | O_CREAT) : -1;
        pthread_mutex_unlock(&writers);
        watch_forks();
    }
    pthread_mutex_unlock(&mapping);
    return result;
}

static void copy_state(struct sim_state *to, const struct sim_state *from)
{
    memcpy(to, from, sizeof *to);
}

/* Undoes what a writer that died inside a transaction left half done. */
static void repair(void)
{
    struct sim_journal *journal = &sim_host->journal;
    uint32_t open = __atomic_load_n(&journal->card, __ATOMIC_ACQUIRE);
    if (open == 0 || open > SIM_CARDS)
        return;
    struct sim_card *card = &sim_host->cards[open - 1];
    if (card->sequence != journal->sequence + 2) { /* Else it died after publishing: it stands. */
        __atomic_store_n(&card->sequence, journal->sequence + 3, __ATOMIC_SEQ_CST);
        copy_state(&card->state, &journal->before);
        __atomic_store_n(&card->sequence, journal->sequence + 4, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&journal->card, 0, __ATOMIC_RELEASE);
}

int sim_lock(void)
{
    pthread_mutex_lock(&writers);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    while (lock_fd >= 0 && fcntl(lock_fd, F_OFD_SETLKW, &whole) != 0)
        if (errno != EINTR) {
            pthread_mutex_unlock(&writers);
            return SIM_SYSTEM;
        }
    if (lock_fd < 0) {
        pthread_mutex_unlock(&writers);
        return SIM_NO_PERMISSION;
    }
    repair();
    return SIM_OK;
}

void sim_unlock(void)
{
    struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(lock_fd, F_OFD_SETLK, &whole);
    pthread_mutex_unlock(&writers);
}

struct sim_state *sim_begin(unsigned index)
{
    if (sim_lock() != SIM_OK)
        return NULL;
    struct sim_card *card = &sim_host->cards[index];
    struct sim_journal *journal = &sim_host->journal;
    copy_state(&journal->before, &card->state);
    journal->sequence = card->sequence;
    __atomic_store_n(&journal->card, index + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&card->sequence, card->sequence + 1, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return &card->state;
}

void sim_end(unsigned index)
{
    struct sim_card *card = &sim_host->cards[index];
    card->state.generation++;
    __atomic_store_n(&card->sequence, card->sequence + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&sim_host->journal.card, 0, __ATOMIC_RELEASE);
    sim_unlock();
}

void sim_abort(unsigned index)
{
    (void)index;
    repair();
    sim_unlock();
}

static bool try_read(const struct sim_card *card, struct sim_state *copy)
{
    uint64_t before = __atomic_load_n(&card->sequence, __ATOMIC_ACQUIRE);
    if (before & 1)
        return false;
    copy_state(copy, &card->state);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&card->sequence, __ATOMIC_RELAXED) == before;
}

void sim_read(unsigned index, struct sim_state *copy)
{
    const struct sim_card *card = &sim_host->cards[index];
    for (unsigned tries = 0; tries < 64; tries++) {
        if (try_read(card, copy))
            return;
        if (tries > 4)
            sched_yield();
    }
    if (sim_lock() == SIM_OK) {
        copy_state(copy, &card->state);
        sim_unlock();
        return;
    }
    /* Mapped read-only: only somebody else can repair, so wait for them. */
    while (!try_read(card, copy))
        usleep(1000);
}

int sim_rule_for(const struct sim_state *state, const char *function)
{
    for (unsigned i = 0; i < SIM_RULES; i++)
        if (state->rules[i].code != 0 && strcmp(state->rules[i].function, function) == 0)
            return state->rules[i].code;
    return 0;
}

static bool hangs(const struct sim_state *state, const char *function)
{
    return state->hang || sim_rule_for(state, function) == SIM_RULE_HANG;
}

int sim_faults(unsigned index, const char *function, struct sim_state *copy)
{
    struct sim_live *live = &sim_host->cards[index].live;
    for (;;) {
        uint32_t seen = __atomic_load_n(&live->knob_futex, __ATOMIC_SEQ_CST);
        sim_read(index, copy);
        if (!hangs(copy, function))
            break;
        sim_futex_wait(&live->knob_futex, seen, 1000);
    }
    if (copy->slow_ms)
        usleep(copy->slow_ms * 1000u);
    int rule = sim_rule_for(copy, function);
    if (rule)
        return rule;
    if (copy->fail_code)
        return (int)copy->fail_code;
    return copy->lost ? (int)copy->lost_code : SIM_OK;
}

int sim_node_error(const char *name)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", sim_devices(), name) >= (int)sizeof path)
        return ENAMETOOLONG;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0) {
        close(fd);
        return 0;
    }
    return errno == ENXIO || errno == ENODEV ? 0 : errno;
}

const char *sim_feature_name(unsigned feature)
{
    static const char *const names[] = {
#define X(name, text) text,
        SIM_FEATURES(X)
#undef X
    };
    return feature < SIM_FEATURE_COUNT ? names[feature] : NULL;
}

static int write_new(const char *folder, int (*fill)(struct sim_host *, void *), void *argument)
{
    int fd = open_below(folder, "state.new", O_RDWR | O_CREAT | O_TRUNC);
    if (fd < 0)
        return -1;
    struct sim_host *host = MAP_FAILED;
    if (fchmod(fd, 0666) == 0 && ftruncate(fd, sizeof *host) == 0)
        host = mmap(NULL, sizeof *host, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (host == MAP_FAILED)
        return -1;
    int result = fill(host, argument);
    host->version = SIM_VERSION;
    host->size = sizeof *host;
    host->boot_ns = sim_now_ns();
    host->boot_count = 1;
    __atomic_store_n(&host->magic, SIM_MAGIC, __ATOMIC_RELEASE);
    munmap(host, sizeof *host);
    errno = 0; /* What is wrong with a description has been said already. */
    return result;
}

int sim_create(const char *folder, int (*fill)(struct sim_host *, void *), void *argument)
{
    char from[PATH_MAX], to[PATH_MAX];
    static const char *const files[] = {"lock", "clients"};
    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
        return -1;
    for (unsigned i = 0; i < 2; i++) {
        int fd = open_below(folder, files[i], O_RDWR | O_CREAT);
        if (fd < 0 || fchmod(fd, 0666) != 0)
            return -1;
        close(fd);
    }
    if (write_new(folder, fill, argument) != 0)
        return -1;
    if (snprintf(from, sizeof from, "%s/state.new", folder) >= (int)sizeof from ||
        snprintf(to, sizeof to, "%s/state", folder) >= (int)sizeof to)
        return -1;
    return rename(from, to);
}
