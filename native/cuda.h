/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of libcuda share: result codes and the devices this process may see.
 */
#ifndef SIM_CUDA_H
#define SIM_CUDA_H

#include "capability.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    CUDA_SUCCESS = 0, CUDA_INVALID_VALUE = 1, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_INITIALIZED = 3,
    CUDA_DEVICE_UNAVAILABLE = 46, CUDA_NO_DEVICE = 100, CUDA_INVALID_DEVICE = 101,
    CUDA_INVALID_CONTEXT = 201, CUDA_NOT_FOUND = 500, CUDA_NOT_SUPPORTED = 801,
    CUDA_MPS_CONNECTION_FAILED = 805, CUDA_MPS_RPC_FAILURE = 806, CUDA_MPS_MAX_CLIENTS = 808,
    CUDA_UNKNOWN = 999
};
typedef int CUresult;
typedef int CUdevice;

struct target {
    unsigned card;
    uint32_t gi, ci; /* SIM_ANY for a whole card. */
};

CUresult cuda_check(void);
/* The device of that ordinal, NULL when there is none. */
const struct target *cuda_target(CUdevice device);
const struct sim_facts *cuda_facts(const struct target *target);

/* MPS. Joining succeeds where no daemon serves; then `joined` is false. */
CUresult cuda_mps_join(unsigned device);
void cuda_mps_leave(unsigned device);
bool cuda_mps_joined(unsigned device);
bool cuda_mps_broken(unsigned device);
/* What the process's limit leaves beside what it uses. */
uint64_t cuda_mps_left(unsigned device, uint64_t used);
unsigned cuda_mps_multiprocessors(unsigned device, unsigned all);

#define NEED_READY()                                                                               \
    do {                                                                                           \
        CUresult state = cuda_check();                                                             \
        if (state != CUDA_SUCCESS)                                                                 \
            return state;                                                                          \
    } while (0)

#define NEED_DEVICE(device)                                                                        \
    do {                                                                                           \
        NEED_READY();                                                                              \
        if (!cuda_target(device))                                                                  \
            return CUDA_INVALID_DEVICE;                                                            \
    } while (0)

#endif
