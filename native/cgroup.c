/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of a card's memory by cgroup: which folders a process is in, what they may use, what they do.
 *
 * A container sees its cgroup at another path than the node does, but stat(2) answers the same
 * device and inode for it on both sides, and kernfs never gives an inode number twice. So limits
 * are kept by these. Both versions of cgroups work; of version 1 every mounted hierarchy counts.
 * Folders above the root of the process's cgroup namespace are not seen from inside it, but whoever
 * sets a limit on a folder sees those above it: they are kept with the limit.
 */
#define _GNU_SOURCE
#include "state.h"

#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

uint64_t sim_group(const char *path)
{
    struct statfs kind;
    struct stat seen;
    if (statfs(path, &kind) != 0 || stat(path, &seen) != 0 || !S_ISDIR(seen.st_mode) ||
        (kind.f_type != CGROUP2_SUPER_MAGIC && kind.f_type != CGROUP_SUPER_MAGIC))
        return 0;
    return seen.st_ino ^ (uint64_t)seen.st_dev << 40;
}

/* Whether the comma-separated words of `all` hold all those of `some`. */
static bool holds(const char *all, const char *some)
{
    char words[256], *rest = words, *word;
    snprintf(words, sizeof words, "%s", some);
    while ((word = strsep(&rest, ",")) != NULL) {
        size_t length = strlen(word);
        const char *at = strstr(all, word);
        while (at && !((at == all || at[-1] == ',') && strchr(",\n", at[length])))
            at = strstr(at + 1, word);
        if (!at)
            return false;
    }
    return true;
}

/* Adds the folder and those above it up to the mount point. */
static bool climb(struct sim_client *client, unsigned *count, const char *mount, const char *below)
{
    char path[PATH_MAX];
    size_t least = strlen(mount);
    if (snprintf(path, sizeof path, "%s%s", mount, below) >= (int)sizeof path)
        return false;
    for (size_t end = strlen(path); end > least && path[end - 1] == '/'; end--)
        path[end - 1] = 0;
    if (!sim_group(path))
        return false;
    while (*count < SIM_GROUPS && strlen(path) >= least) {
        client->groups[(*count)++] = sim_group(path);
        *strrchr(path, '/') = 0;
    }
    return true;
}

/* Looks for a mount of the hierarchy that shows the folder; `controllers` is empty for version 2. */
static void find_folder(struct sim_client *client, unsigned *count, const char *controllers,
                        const char *group)
{
    char line[8192], root[PATH_MAX], mount[PATH_MAX], kind[32], options[512];
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    bool found = false;
    while (mounts && !found && fgets(line, sizeof line, mounts)) {
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) != 2 ||
            sscanf(tail, " - %31s %*s %511s", kind, options) != 2)
            continue;
        size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
        if (strncmp(group, root, length) != 0 || (group[length] && group[length] != '/'))
            continue;
        if (*controllers ? strcmp(kind, "cgroup") == 0 && holds(options, controllers)
                         : strcmp(kind, "cgroup2") == 0)
            found = climb(client, count, mount, group + length);
    }
    if (mounts)
        fclose(mounts);
}

void sim_client_groups(struct sim_client *client)
{
    char line[PATH_MAX + 300];
    unsigned count = 0;
    FILE *groups = fopen("/proc/self/cgroup", "re");
    while (groups && fgets(line, sizeof line, groups)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        find_folder(client, &count, controllers + 1, path);
    }
    if (groups)
        fclose(groups);
    while (count < SIM_GROUPS)
        client->groups[count++] = 0;
}

const struct sim_limit *sim_limit_of(unsigned card, uint64_t group)
{
    for (unsigned i = 0; group && i < SIM_LIMITS; i++)
        if (sim_host->limits[i].group == group && sim_host->limits[i].card == card)
            return &sim_host->limits[i];
    return NULL;
}

static void forget(struct sim_limit *limit)
{
    __atomic_store_n(&limit->group, 0, __ATOMIC_RELEASE);
}

/* A place for another limit; those of folders that are gone end here. */
static struct sim_limit *free_place(void)
{
    struct sim_limit *place = NULL;
    for (unsigned i = 0; i < SIM_LIMITS; i++) {
        struct sim_limit *limit = &sim_host->limits[i];
        if (limit->group && sim_group(limit->path) != limit->group)
            forget(limit);
        if (!limit->group && !place)
            place = limit;
    }
    return place;
}

/* Keys of the folders above `path`, as far as its hierarchy goes. */
static void look_above(struct sim_limit *limit, const char *path)
{
    char above[PATH_MAX];
    unsigned count = 0;
    snprintf(above, sizeof above, "%s", path);
    for (char *end; count < SIM_ABOVE && (end = strrchr(above, '/')) != NULL && end != above;) {
        *end = 0;
        if (end[1] && (limit->above[count] = sim_group(above)) == 0)
            break;
        count += end[1] != 0;
    }
    while (count < SIM_ABOVE)
        limit->above[count++] = 0;
}

bool sim_limit_set(unsigned card, const char *path, uint64_t soft, uint64_t hard)
{
    uint64_t group = sim_group(path);
    struct sim_limit *limit = (struct sim_limit *)sim_limit_of(card, group);
    bool none = soft == 0 && hard == SIM_UNLIMITED;
    if (!limit && !none)
        limit = free_place();
    if (none) {
        if (limit)
            forget(limit);
        return true;
    }
    if (!limit || strlen(path) >= sizeof limit->path)
        return false;
    limit->card = card;
    limit->soft = soft;
    limit->hard = hard;
    strcpy(limit->path, path);
    look_above(limit, path);
    __atomic_store_n(&limit->group, group, __ATOMIC_RELEASE);
    return true;
}

static bool has(const uint64_t *groups, unsigned most, uint64_t group)
{
    for (unsigned i = 0; i < most && groups[i]; i++)
        if (groups[i] == group)
            return true;
    return false;
}

/* Whether the process is in the folder or below: as it sees itself, or as a limit of one of its
 * own folders tells of what is above. */
static bool is_in(const struct sim_client *client, uint64_t group)
{
    if (has(client->groups, SIM_GROUPS, group))
        return true;
    for (unsigned i = 0; i < SIM_LIMITS; i++) {
        const struct sim_limit *limit = &sim_host->limits[i];
        if (limit->group && has(limit->above, SIM_ABOVE, group) &&
            has(client->groups, SIM_GROUPS, limit->group))
            return true;
    }
    return false;
}

uint64_t sim_group_used(unsigned card, uint64_t group)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < SIM_CLIENTS; i++) {
        const struct sim_client *client = &sim_host->clients[i];
        if (client->taken && client->uses[card].contexts && is_in(client, group) &&
            sim_client_pid(i) >= 0)
            sum += __atomic_load_n(&client->uses[card].bytes, __ATOMIC_RELAXED);
    }
    return sum;
}

uint64_t sim_limit_left(unsigned card)
{
    struct sim_client here = {0};
    uint64_t left = SIM_UNLIMITED;
    bool looked = false;
    for (unsigned i = 0; i < SIM_LIMITS; i++) {
        const struct sim_limit *limit = &sim_host->limits[i];
        if (!limit->group || limit->card != card || limit->hard == SIM_UNLIMITED)
            continue;
        if (!looked)
            sim_client_groups(&here);
        looked = true;
        if (!is_in(&here, limit->group))
            continue;
        uint64_t used = sim_group_used(card, limit->group);
        uint64_t rest = used < limit->hard ? limit->hard - used : 0;
        left = rest < left ? rest : left;
    }
    return left;
}
