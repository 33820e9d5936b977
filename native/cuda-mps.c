/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients of MPS: a process that finds the control daemon's folder works through its server.
 *
 * The connection is held from the first context on a card to the last. When the daemon ends, its
 * clients fail with CUDA_ERROR_MPS_RPC_FAILURE and have to start anew, as with the maker's.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mps.h"

static struct { int connection; double percentage; uint64_t limit; } links[SIM_CARDS];

static uint64_t least(uint64_t one, uint64_t other)
{
    return !one ? other : !other || one < other ? one : other;
}

/* CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: `0=8G,1=4096M`, by number or UUID. */
static uint64_t own_limit(unsigned device, const char *uuid)
{
    char list[1024], *rest = NULL;
    const char *given = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    snprintf(list, sizeof list, "%s", given ? given : "");
    for (char *word = strtok_r(list, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
        char *amount = strchr(word, '='), *end;
        if (!amount)
            continue;
        *amount++ = 0;
        unsigned long index = strtoul(word, &end, 10);
        if ((end != word && !*end && index == device) || strcasecmp(word, uuid) == 0)
            return mps_bytes(amount);
    }
    return 0;
}

static int open_socket(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (snprintf(at.sun_path, sizeof at.sun_path, "%s/control", mps_folder()) >=
        (int)sizeof at.sun_path)
        return -1;
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection >= 0 && connect(connection, (struct sockaddr *)&at, sizeof at) == 0)
        return connection;
    if (connection >= 0)
        close(connection);
    return -1;
}

CUresult cuda_mps_join(unsigned device)
{
    char line[160];
    unsigned long long limit;
    const struct target *target = cuda_target((CUdevice)device);
    const char *uuid = cuda_facts(target)->uuid, *share = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    if (links[target->card].connection || target->gi != SIM_ANY)
        return CUDA_SUCCESS;
    int connection = open_socket();
    if (connection < 0)
        return CUDA_SUCCESS; /* Nobody serves: it works by itself, if the card lets it. */
    int length = snprintf(line, sizeof line, "client %s\n", uuid);
    ssize_t got = write(connection, line, (size_t)length) == length
                      ? read(connection, line, sizeof line - 1) : -1;
    line[got > 0 ? got : 0] = 0;
    double percentage;
    if (sscanf(line, "ok %llu %lf", &limit, &percentage) != 2) {
        close(connection);
        if (strcmp(line, "full\n") == 0)
            return CUDA_MPS_MAX_CLIENTS;
        return strcmp(line, "none\n") == 0 ? CUDA_NO_DEVICE : CUDA_MPS_CONNECTION_FAILED;
    }
    if (share && atof(share) > 0 && atof(share) < percentage)
        percentage = atof(share);
    links[target->card].limit = least(limit, own_limit(device, uuid));
    links[target->card].percentage = percentage;
    links[target->card].connection = connection;
    return CUDA_SUCCESS;
}

void cuda_mps_leave(unsigned device)
{
    unsigned card = cuda_target((CUdevice)device)->card;
    if (links[card].connection)
        close(links[card].connection);
    links[card].connection = 0;
    links[card].limit = 0;
}

bool cuda_mps_joined(unsigned device)
{
    return links[cuda_target((CUdevice)device)->card].connection != 0;
}

bool cuda_mps_broken(unsigned device)
{
    struct pollfd end = {.fd = links[cuda_target((CUdevice)device)->card].connection,
                         .events = POLLRDHUP};
    return end.fd && poll(&end, 1, 0) > 0;
}

uint64_t cuda_mps_left(unsigned device, uint64_t used)
{
    uint64_t limit = links[cuda_target((CUdevice)device)->card].limit;
    return !limit ? SIM_UNLIMITED : used < limit ? limit - used : 0;
}

unsigned cuda_mps_multiprocessors(unsigned device, unsigned all)
{
    const char *share = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    double percentage = share && atof(share) > 0 ? atof(share) : 100.0;
    if (!cuda_mps_joined(device) || percentage >= 100.0)
        return all;
    unsigned some = (unsigned)(all * percentage / 100.0);
    return some ? some : 1;
}
