/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hook at a container's start that has the driver keep the container to amounts of card memory:
 *
 *     gpudeck-memory-limits --library PATH --limit UUID/SHARE=BYTES [--limit ...]...
 *
 * It runs on the node as the OCI hook createRuntime: root, the container's first process exists and
 * is in its cgroup. Each share of a container brings a hook of its own, so the container's limit is
 * the sum of its shares of the card. The pod's cgroup has a limit as well, the sum of the distinct
 * shares that its containers use: containers that use one share have its amount together. A share
 * of "unlimited" bytes takes both limits away. It belongs to the product, not to the simulation.
 *
 * It never fails a container. Where the driver, the card or the node (cgroup version 1) cannot keep
 * the limit, it says why in one line on stderr and exits with 0.
 */
#define _GNU_SOURCE
#include "hook.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEADLINE_SECONDS = 8, MOST_LIMITS = 64 };
enum { NVML_SUCCESS = 0, NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6, NVML_FUNCTION_NOT_FOUND = 13 };

/* The structs of nvml.h 13.4. */
struct set_limits {
    const char *group;
    unsigned long long soft, hard;
};
struct get_limits {
    const char *group;
    unsigned long long soft, hard, used;
};
struct memory {
    unsigned long long total, free, used;
};

static struct {
    int (*init)(void), (*by_uuid)(const char *, void **), (*memory)(void *, struct memory *);
    int (*set)(void *, struct set_limits *), (*get)(void *, struct get_limits *);
    const char *(*text)(int);
} nvml;

void give_up(const char *format, ...)
{
    va_list words;
    va_start(words, format);
    fputs(NAME ": no limit of card memory: ", stderr);
    vfprintf(stderr, format, words);
    fputs("\n", stderr);
    fflush(stderr);
    _exit(0);
}

/* A call that hangs in the driver must not hold up the container for ever. */
static void too_late(int signal)
{
    static const char text[] = NAME ": no limit of card memory: the driver does not answer\n";
    (void)signal;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(0);
    _exit(0);
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        give_up("the driver has no %s", name);
    return found;
}

static void load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        give_up("%s", dlerror());
    nvml.init = symbol(library, "nvmlInit_v2");
    nvml.by_uuid = symbol(library, "nvmlDeviceGetHandleByUUID");
    nvml.memory = symbol(library, "nvmlDeviceGetMemoryInfo");
    nvml.text = symbol(library, "nvmlErrorString");
    nvml.get = symbol(library, "nvmlDeviceGetMemoryLimits_v1");
    nvml.set = symbol(library, "nvmlDeviceSetMemoryLimits_v1");
    int result = nvml.init();
    if (result != NVML_SUCCESS)
        give_up("nvmlInit: %s", nvml.text(result));
}

struct wanted {
    const char *uuid, *share;
    uint64_t bytes;
};

struct card {
    void *handle;
    const char *uuid;
    uint64_t total;
};

static struct card find_card(const char *uuid)
{
    struct card card = {.uuid = uuid};
    struct memory memory = {0};
    int result = nvml.by_uuid(uuid, &card.handle);
    if (result == NVML_SUCCESS)
        result = nvml.memory(card.handle, &memory);
    if (result != NVML_SUCCESS)
        give_up("%s: %s", uuid, nvml.text(result));
    card.total = memory.total;
    return card;
}

/* What the driver keeps the folder to now; UNLIMITED where nothing is set. */
static uint64_t limit_of(const struct card *card, const char *folder)
{
    struct get_limits now = {.group = folder};
    int result = nvml.get(card->handle, &now);
    if (result == NVML_NOT_SUPPORTED || result == NVML_FUNCTION_NOT_FOUND)
        give_up("%s: neither card nor driver can keep a limit", card->uuid);
    return result == NVML_SUCCESS ? now.hard : UNLIMITED;
}

/* `soft` bytes are promised, more than `hard` refused. The driver's words for no limit are soft 0
 * and the greatest hard one. */
static void set_limit(const struct card *card, const char *folder, uint64_t soft, uint64_t hard)
{
    if (hard == UNLIMITED && limit_of(card, folder) == UNLIMITED)
        return;
    if (hard != UNLIMITED && hard > card->total)
        hard = card->total;
    struct set_limits wanted = {folder, hard == UNLIMITED ? 0 : soft < hard ? soft : hard, hard};
    int result = nvml.set(card->handle, &wanted);
    if (result != NVML_SUCCESS)
        give_up("%s: nvmlDeviceSetMemoryLimits of %s: %s", card->uuid, folder, nvml.text(result));
}

/* The container's own limit comes first: it holds whatever the driver makes of one above it. The
 * pod's promises nothing, for what is promised is promised to its containers. */
static void limit(const struct place *place, const struct wanted *wanted)
{
    const char *uuid = wanted->uuid;
    uint64_t bytes = wanted->bytes;
    bool is_noted = note_share(place, uuid, wanted->share, bytes);
    int refusal = errno;
    struct card card = find_card(uuid);
    uint64_t before = limit_of(&card, place->group);
    if (is_noted)
        bytes = sum_of_container(place, uuid);
    else if (bytes != UNLIMITED && before != UNLIMITED)
        bytes += before;
    set_limit(&card, place->group, bytes, bytes);
    if (!is_noted)
        give_up("%s: of the pod: its folder takes no marks: %s", uuid, strerror(refusal));
    if (*place->pod)
        set_limit(&card, place->pod, 0, sum_of_pod(place, uuid));
}

/* The words of one `--limit`, which are cut to pieces. */
static struct wanted read_wanted(char *words)
{
    struct wanted wanted = {.uuid = words};
    char *share = strchr(words, '/'), *bytes = share ? strchr(share, '=') : NULL, *end = "";
    if (bytes && strcmp(bytes + 1, "unlimited") == 0)
        wanted.bytes = UNLIMITED;
    else if (bytes)
        wanted.bytes = strtoull(bytes + 1, &end, 10);
    if (!bytes || share == words || bytes == share + 1 || *end || end == bytes + 1)
        give_up("--limit %s: wanted is UUID/SHARE=BYTES, or \"unlimited\" for BYTES", words);
    *share = *bytes = 0;
    wanted.share = share + 1;
    return wanted;
}

int main(int count, char **words)
{
    static struct place place;
    struct wanted wanted[MOST_LIMITS];
    const char *library = NULL;
    int limits = 0;
    for (int i = 1; i + 1 < count; i += 2)
        if (strcmp(words[i], "--library") == 0)
            library = words[i + 1];
        else if (strcmp(words[i], "--limit") == 0 && limits < MOST_LIMITS)
            wanted[limits++] = read_wanted(words[i + 1]);
    if (!library)
        give_up("usage: " NAME " --library PATH --limit UUID/SHARE=BYTES...");
    signal(SIGALRM, too_late);
    alarm(DEADLINE_SECONDS);
    find_place(&place);
    load(library);
    lock_shares(&place);
    for (int i = 0; i < limits; i++)
        limit(&place, &wanted[i]);
    return 0;
}
