/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: how much is used, and what is wrong with it (ECC, retired pages, remapped rows).
 *
 * Nobody stores the used amount: it is the sum over live processes, so a killed one frees its
 * share.
 */
#include "library.h"

#include <string.h>

struct amounts {
    uint64_t total, reserved, used;
};

static nvmlReturn_t measure(const struct view *view, struct amounts *amounts)
{
    NEED(!sim_lacks(view->facts, SIM_F_MEMORY), NVML_ERROR_NOT_SUPPORTED);
    amounts->used = sim_used_bytes(view->card, view->gpu_instance);
    if (view->gpu_instance == SIM_ANY) {
        amounts->total = view->facts->memory_mib * SIM_MIB;
        amounts->reserved = view->facts->reserved_mib * SIM_MIB;
    } else {
        amounts->total = profile_of(view)->memory_mib * SIM_MIB;
        amounts->reserved = 0;
    }
    if (amounts->used > amounts->total - amounts->reserved)
        amounts->used = amounts->total - amounts->reserved;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct amounts amounts;
    ENTER(device, EITHER);
    NEED_POINTER(memory);
    nvmlReturn_t result = measure(&view, &amounts);
    NEED(result == NVML_SUCCESS, result);
    memory->total = amounts.total;
    memory->used = amounts.used + amounts.reserved;
    memory->free = amounts.total - memory->used;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    struct amounts amounts;
    ENTER(device, EITHER);
    NEED_VERSION(memory, 2);
    nvmlReturn_t result = measure(&view, &amounts);
    NEED(result == NVML_SUCCESS, result);
    memory->total = amounts.total;
    memory->reserved = amounts.reserved;
    memory->used = amounts.used;
    memory->free = amounts.total - amounts.reserved - amounts.used;
    /* A process under a limit of its cgroup sees what it can really have. */
    uint64_t left = view.gpu_instance == SIM_ANY ? sim_limit_left(view.card) : SIM_UNLIMITED;
    if (memory->free > left)
        memory->free = left;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    ENTER(device, EITHER);
    NEED_FEATURE(BAR1);
    NEED_POINTER(memory);
    unsigned clients = sim_busy(view.card, view.gpu_instance, SIM_ANY);
    memory->bar1Total = view.facts->bar1_mib * SIM_MIB;
    memory->bar1Used = (1 + 2 * clients) * SIM_MIB;
    memory->bar1Free = memory->bar1Total - memory->bar1Used;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current,
                                         unsigned int *pending)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(ECC);
    NEED(current && pending, NVML_ERROR_INVALID_ARGUMENT);
    *current = view.state.ecc_current;
    *pending = view.state.ecc_pending;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, unsigned int *mode)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(ECC);
    NEED_POINTER(mode);
    *mode = 1;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, unsigned int mode)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(ECC);
    NEED_ADMINISTRATOR();
    NEED(mode <= 1, NVML_ERROR_INVALID_ARGUMENT);
    struct sim_state *state = sim_begin(view.card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    state->ecc_pending = mode; /* Takes effect with the next reset. */
    sim_end(view.card);
    return NVML_SUCCESS;
}

static nvmlReturn_t ecc_allowed(const struct view *view, unsigned error, unsigned counter)
{
    NEED(!sim_lacks(view->facts, SIM_F_ECC), NVML_ERROR_NOT_SUPPORTED);
    NEED(error < 2 && counter < 2, NVML_ERROR_INVALID_ARGUMENT);
    return view->state.ecc_current ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int error,
                                                unsigned int counter, unsigned long long *count)
{
    ENTER(device, WHOLE);
    nvmlReturn_t result = ecc_allowed(&view, error, counter);
    NEED(result == NVML_SUCCESS, result);
    NEED_POINTER(count);
    *count = ecc_total(&view, error, counter);
    return NVML_SUCCESS;
}

/* Locations by NVML: L1, L2, device memory, registers, texture, texture shared, CBU, SRAM. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int error,
                                                    unsigned int counter, unsigned int location,
                                                    unsigned long long *count)
{
    ENTER(device, EITHER);
    nvmlReturn_t result = ecc_allowed(&view, error, counter);
    NEED(result == NVML_SUCCESS, result);
    NEED(count && location < SIM_LOCATIONS, NVML_ERROR_INVALID_ARGUMENT);
    NEED(location != 4 && location != 5, NVML_ERROR_NOT_SUPPORTED);
    NEED(location != 6 || error == 1, NVML_ERROR_NOT_SUPPORTED);
    bool of_mig = view.gpu_instance != SIM_ANY;
    NEED(!of_mig || (error == 1 && counter == 0 && location == 7), NVML_ERROR_NOT_SUPPORTED);
    *count = view.state.ecc[error][counter][location];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, unsigned int error,
                                                   unsigned int counter,
                                                   nvmlEccErrorCounts_t *counts)
{
    ENTER(device, WHOLE);
    nvmlReturn_t result = ecc_allowed(&view, error, counter);
    NEED(result == NVML_SUCCESS, result);
    NEED_POINTER(counts);
    const uint64_t *where = view.state.ecc[error][counter];
    counts->l1 = where[0];
    counts->l2 = where[1];
    counts->memory = where[2];
    counts->registers = where[3];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceClearEccErrorCounts(nvmlDevice_t device, unsigned int counter)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(ECC);
    NEED_ADMINISTRATOR();
    NEED(counter < 2, NVML_ERROR_INVALID_ARGUMENT);
    struct sim_state *state = sim_begin(view.card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    for (unsigned error = 0; error < 2; error++)
        memset(state->ecc[error][counter], 0, sizeof state->ecc[error][counter]);
    sim_end(view.card);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device,
                                                    nvmlEccSramErrorStatus_t *status)
{
    ENTER(device, WHOLE);
    NEED_VERSION(status, 1);
    NEED(view.facts->architecture >= 7, NVML_ERROR_NOT_SUPPORTED);
    nvmlReturn_t result = ecc_allowed(&view, 0, 0);
    NEED(result == NVML_SUCCESS, result);
    unsigned version = status->version;
    memset(status, 0, sizeof *status);
    status->version = version;
    status->volatileCor = view.state.ecc[0][0][7];
    status->aggregateCor = view.state.ecc[0][1][7];
    status->volatileUncSecDed = view.state.ecc[1][0][7];
    status->aggregateUncSecDed = status->bucketSm = view.state.ecc[1][1][7];
    status->thresholdExceeded = view.state.sram_threshold_exceeded;
    return NVML_SUCCESS;
}

static nvmlReturn_t retired(nvmlDevice_t device, unsigned cause, unsigned int *count,
                            unsigned long long *addresses, unsigned long long *times,
                            const char *function)
{
    struct view view;
    nvmlReturn_t result = view_device(device, WHOLE, function, &view);
    NEED(result == NVML_SUCCESS, result);
    NEED_FEATURE(RETIRED_PAGES);
    NEED(count && cause < 2, NVML_ERROR_INVALID_ARGUMENT);
    unsigned total = cause ? view.state.retired_double : view.state.retired_single;
    unsigned room = *count;
    *count = total;
    NEED(total <= room && (addresses || !total), NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < total; i++) {
        addresses[i] = UINT64_C(0x10000) * (i + 1 + cause * 64);
        if (times)
            times[i] = 0;
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned int cause,
                                              unsigned int *count, unsigned long long *addresses)
{
    return retired(device, cause, count, addresses, NULL, __func__);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned int cause,
                                                 unsigned int *count,
                                                 unsigned long long *addresses,
                                                 unsigned long long *times)
{
    return retired(device, cause, count, addresses, times, __func__);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device,
                                                           unsigned int *pending)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(RETIRED_PAGES);
    NEED_POINTER(pending);
    *pending = view.state.retired_pending;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable,
                                              unsigned int *uncorrectable, unsigned int *pending,
                                              unsigned int *failure)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(REMAPPED_ROWS);
    NEED(correctable && uncorrectable && pending && failure, NVML_ERROR_INVALID_ARGUMENT);
    *correctable = view.state.remap_correctable;
    *uncorrectable = view.state.remap_uncorrectable;
    *pending = view.state.remap_pending;
    *failure = view.state.remap_failure;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows_v2(nvmlDevice_t device, nvmlRemappedRows_v2_t *rows)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(REMAPPED_ROWS);
    NEED_POINTER(rows);
    memset(rows, 0, sizeof *rows);
    rows->corrActive = view.state.remap_correctable;
    rows->uncActive = view.state.remap_uncorrectable;
    rows->pending = view.state.remap_pending;
    rows->failure = view.state.remap_failure;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device,
                                                      nvmlRowRemapperHistogram_t *histogram)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(REMAPPED_ROWS);
    NEED_POINTER(histogram);
    memcpy(histogram, view.state.remap_histogram, sizeof *histogram);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlVersionedPair_t *status)
{
    ENTER(device, WHOLE);
    NEED_VERSION(status, 1);
    NEED(view.facts->architecture >= 10, NVML_ERROR_NOT_SUPPORTED);
    status->first = status->second = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device,
                                                           nvmlVersioned_t *flag)
{
    ENTER(device, WHOLE);
    NEED_VERSION(flag, 1);
    NEED_FEATURE(REMAPPED_ROWS);
    flag->value = view.state.remap_failure;
    return NVML_SUCCESS;
}
