/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the cgroup folders of a container and its pod, from the state that the runtime writes.
 *
 * The pod's folder is told by its name, not by its depth: crun puts a container into a folder below
 * the one that systemd makes for it.
 */
#define _GNU_SOURCE
#include "hook.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

enum { STATE_BYTES = 1 << 20, UID_CHARACTERS = 32 };

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

/* Whether a folder is a pod's by its name: podUID, or kubepods-burstable-podUID.slice with systemd,
 * where "_" stands for each "-" (kubelet 1.37, pkg/kubelet/cm). */
static bool is_pod(const char *name)
{
    for (const char *word = name; (word = strstr(word, "pod")) != NULL; word++) {
        size_t length = strspn(word + 3, "0123456789abcdef-_");
        const char *end = word + 3 + length;
        if (length >= UID_CHARACTERS && (word == name || word[-1] == '-') &&
            (!*end || strcmp(end, ".slice") == 0))
            return true;
    }
    return false;
}

static void find_pod(struct place *place)
{
    snprintf(place->container, sizeof place->container, "%s", place->group);
    snprintf(place->pod, sizeof place->pod, "%s", place->group);
    for (char *end; (end = strrchr(place->pod, '/')) != NULL;) {
        *end = 0;
        const char *name = strrchr(place->pod, '/');
        if (name && is_pod(name + 1))
            return;
        snprintf(place->container, sizeof place->container, "%s", place->pod);
    }
    *place->pod = 0;
    snprintf(place->container, sizeof place->container, "%s", place->group);
}

void find_place(struct place *place)
{
    char group[PATH_MAX];
    read_group(read_pid(), group, sizeof group);
    find_folder(group, place->group, sizeof place->group);
    find_pod(place);
}
