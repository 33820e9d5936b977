/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hook at a container's start that has the driver keep the container to amounts of card memory:
 *
 *     gpudeck-memory-limits --library PATH --limit UUID=BYTES [--limit UUID=BYTES]...
 *
 * It runs on the node as the OCI hook createRuntime: root, the container's first process exists and
 * is in its cgroup. An amount is added to what the cgroup already has of that card, because each
 * share of a container brings a hook of its own. It belongs to the product, not to the simulation.
 *
 * It never fails a container. Where the driver, the card or the node (cgroup version 1) cannot keep
 * the limit, it says why in one line on stderr and exits with 0.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define NAME "gpudeck-memory-limits"

enum { STATE_BYTES = 1 << 20, DEADLINE_SECONDS = 8 };
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

/* Says why there is no limit and lets the container start. */
__attribute__((format(printf, 1, 2), noreturn)) static void give_up(const char *format, ...)
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

/* The number at `"pid":` of the outermost object; 0 when there is none. Strings are skipped whole,
 * so that an annotation with the same word is not taken for it. */
static long container_pid(const char *state)
{
    int depth = 0;
    for (const char *at = state; *at; at++) {
        if (*at == '{' || *at == '[')
            depth++;
        else if (*at == '}' || *at == ']')
            depth--;
        if (*at != '"')
            continue;
        const char *word = ++at;
        while (*at && *at != '"')
            at += *at == '\\' && at[1] ? 2 : 1;
        if (!*at)
            return 0;
        const char *colon = at + 1 + strspn(at + 1, " \t\r\n");
        if (depth == 1 && *colon == ':' && at - word == 3 && strncmp(word, "pid", 3) == 0)
            return strtol(colon + 1, NULL, 10);
    }
    return 0;
}

static long read_pid(void)
{
    static char state[STATE_BYTES];
    size_t length = fread(state, 1, sizeof state - 1, stdin);
    state[length] = 0;
    long pid = container_pid(state);
    if (pid <= 0)
        give_up("the container's state on stdin names no process");
    return pid;
}

/* The process's cgroup as /proc/PID/cgroup has it, of version 2. */
static void read_group(long pid, char *group, size_t size)
{
    char path[64], line[PATH_MAX];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%ld/cgroup", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        give_up("%s: %s", path, strerror(errno));
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::", 3) != 0)
            give_up("the node has cgroup version 1, the driver needs version 2");
        snprintf(group, size, "%s", line + 3);
        found = true;
    }
    fclose(file);
    if (!found || strncmp(group, "/..", 3) == 0)
        give_up("the container's cgroup cannot be seen from here (%s)", found ? group : "none");
}

/* Where that cgroup is: below the first mount of cgroups whose root holds it. */
static void find_folder(const char *group, char *folder, size_t size)
{
    char line[8192], root[PATH_MAX], mount[PATH_MAX], kind[32];
    struct statfs there;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    while (mounts && fgets(line, sizeof line, mounts)) {
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) != 2 ||
            sscanf(tail, " - %31s", kind) != 1 || strcmp(kind, "cgroup2") != 0)
            continue;
        size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
        if (strncmp(group, root, length) != 0 || (group[length] && group[length] != '/'))
            continue;
        if (snprintf(folder, size, "%s%s", mount, group + length) < (int)size &&
            statfs(folder, &there) == 0 && there.f_type == CGROUP2_SUPER_MAGIC) {
            fclose(mounts);
            return;
        }
    }
    give_up("no mount of cgroup version 2 shows %s", group);
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

static void limit(const char *folder, const char *uuid, unsigned long long bytes)
{
    void *card;
    struct memory memory;
    struct get_limits now = {.group = folder};
    int result = nvml.by_uuid(uuid, &card);
    if (result == NVML_SUCCESS)
        result = nvml.memory(card, &memory);
    if (result != NVML_SUCCESS)
        give_up("%s: %s", uuid, nvml.text(result));
    result = nvml.get(card, &now);
    if (result == NVML_NOT_SUPPORTED || result == NVML_FUNCTION_NOT_FOUND)
        give_up("%s: neither card nor driver can keep a limit", uuid);
    if (result == NVML_SUCCESS)
        bytes += now.hard < memory.total ? now.hard : memory.total;
    if (bytes > memory.total)
        bytes = memory.total;
    struct set_limits wanted = {folder, bytes, bytes};
    result = nvml.set(card, &wanted);
    if (result != NVML_SUCCESS)
        give_up("%s: nvmlDeviceSetMemoryLimits: %s", uuid, nvml.text(result));
}

int main(int count, char **words)
{
    char group[PATH_MAX], folder[PATH_MAX];
    const char *library = NULL;
    for (int i = 1; i + 1 < count; i += 2)
        if (strcmp(words[i], "--library") == 0)
            library = words[i + 1];
    if (!library)
        give_up("usage: " NAME " --library PATH --limit UUID=BYTES...");
    signal(SIGALRM, too_late);
    alarm(DEADLINE_SECONDS);
    read_group(read_pid(), group, sizeof group);
    find_folder(group, folder, sizeof folder);
    load(library);
    for (int i = 1; i + 1 < count; i += 2) {
        char *amount = strcmp(words[i], "--limit") == 0 ? strchr(words[i + 1], '=') : NULL;
        if (!amount)
            continue;
        *amount = 0;
        limit(folder, words[i + 1], strtoull(amount + 1, NULL, 10));
    }
    return 0;
}
