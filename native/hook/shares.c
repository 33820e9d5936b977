/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which shares a container uses, kept where it cannot outlive the container.
 *
 * Each share is an extended attribute of the container's cgroup folder, its value the bytes. The
 * kernel removes it with the folder and writes it whole or not at all, so nothing is left to clean
 * up after a kill, a restart of the container or of the node. Only root of the node may read or
 * write "trusted" attributes. Hooks of one pod take turns by a lock on its folder.
 */
#define _GNU_SOURCE
#include "hook.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/xattr.h>

#define PREFIX "trusted.gpudeck.memory."

enum { NAME_BYTES = 256, LIST_BYTES = 1 << 16 };

/* A sum under way: the names of the shares in it, each with its end, one after the other. */
struct sum {
    uint64_t bytes;
    size_t length;
    char names[LIST_BYTES];
};

void lock_shares(const struct place *place)
{
    const char *folder = *place->pod ? place->pod : place->container;
    int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0 || flock(file, LOCK_EX) != 0)
        give_up("%s: %s", folder, strerror(errno));
}

bool note_share(const struct place *place, const char *uuid, const char *share, uint64_t bytes)
{
    char name[NAME_BYTES], value[32];
    if (snprintf(name, sizeof name, PREFIX "%s/%s", uuid, share) >= (int)sizeof name) {
        errno = ENAMETOOLONG;
        return false;
    }
    int length = snprintf(value, sizeof value, "%" PRIu64, bytes);
    return setxattr(place->container, name, value, length, 0) == 0;
}

static bool is_counted(const struct sum *sum, const char *name)
{
    for (size_t at = 0; at < sum->length; at += strlen(sum->names + at) + 1)
        if (strcmp(sum->names + at, name) == 0)
            return true;
    return false;
}

static void count(struct sum *sum, const char *folder, const char *name)
{
    char value[32] = "";
    size_t size = strlen(name) + 1;
    if (is_counted(sum, name) || getxattr(folder, name, value, sizeof value - 1) < 0)
        return;
    uint64_t bytes = strtoull(value, NULL, 10);
    /* Rather no limit than one that forgets a share. */
    if (sum->length + size > sizeof sum->names || bytes > UNLIMITED - sum->bytes) {
        sum->bytes = UNLIMITED;
        return;
    }
    memcpy(sum->names + sum->length, name, size);
    sum->length += size;
    sum->bytes += bytes;
}

static void count_folder(struct sum *sum, const char *folder, const char *uuid)
{
    static char names[LIST_BYTES];
    char prefix[NAME_BYTES];
    int length = snprintf(prefix, sizeof prefix, PREFIX "%s/", uuid);
    /* A folder that went meanwhile has no shares, one with more names than fit is not of ours. */
    ssize_t size = listxattr(folder, names, sizeof names);
    for (ssize_t at = 0; at < size; at += (ssize_t)strlen(names + at) + 1)
        if (strncmp(names + at, prefix, length) == 0)
            count(sum, folder, names + at);
}

uint64_t sum_of_container(const struct place *place, const char *uuid)
{
    static struct sum sum;
    sum.bytes = sum.length = 0;
    count_folder(&sum, place->container, uuid);
    return sum.bytes;
}

uint64_t sum_of_pod(const struct place *place, const char *uuid)
{
    static struct sum sum;
    char folder[PATH_MAX];
    DIR *pod = opendir(place->pod);
    sum.bytes = sum.length = 0;
    if (!pod)
        return UNLIMITED;
    for (const struct dirent *entry; (entry = readdir(pod)) != NULL;)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
            snprintf(folder, sizeof folder, "%s/%s", place->pod, entry->d_name) <
                (int)sizeof folder)
            count_folder(&sum, folder, uuid);
    closedir(pod);
    return sum.bytes;
}
