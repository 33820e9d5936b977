/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls about the host as a whole: versions, error texts, cards left out, S-class units.
 */
#include "library.h"

#include <stdio.h>
#include <string.h>

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size",
        "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost",
        "GPU requires reset", "The operating system has blocked the request",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory",
        "No data", "The requested vgpu operation is not available on target device, because ECC "
        "is enabled", "Insufficient Resources", "Frequency Not Supported",
        "Argument version mismatch", "Requested functionality has been deprecated",
        "The system is not ready for the request", "GPU not found", "Invalid state",
        "Reset type is not supported",
    };
    return result < sizeof texts / sizeof *texts ? texts[result] : "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    ENTER_LIBRARY();
    return put_string(version, length, sim_host->driver_version);
}

/* The library knows its own version without the driver. */
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    NEED_POINTER(version);
    if (!library_ready() && sim_open(sim_default_folder()) != SIM_OK)
        return NVML_ERROR_UNINITIALIZED;
    return put_string(version, length, sim_host->nvml_version);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    ENTER_LIBRARY();
    NEED_POINTER(version);
    *version = (int)sim_host->cuda_version;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

EXPORT nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *info,
                                              unsigned int length)
{
    ENTER_LIBRARY();
    NEED_VERSION(info, 1);
    return put_string(info->branch, length, sim_host->driver_branch);
}

EXPORT nvmlReturn_t nvmlSystemGetHicVersion(unsigned int *count, void *entries)
{
    (void)entries;
    ENTER_LIBRARY();
    NEED_POINTER(count);
    *count = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlUnitGetCount(unsigned int *count)
{
    return nvmlSystemGetHicVersion(count, NULL);
}

EXPORT nvmlReturn_t nvmlUnitGetHandleByIndex(unsigned int index, nvmlUnit_t *unit)
{
    (void)index;
    ENTER_LIBRARY();
    NEED_POINTER(unit);
    return NVML_ERROR_INVALID_ARGUMENT; /* Hosts with S-class units are not simulated. */
}

static bool excluded_card(unsigned index, unsigned *total, unsigned *card)
{
    *total = 0;
    for (unsigned i = 0; i < sim_host->card_count; i++) {
        struct sim_state state;
        sim_read(i, &state);
        if (state.excluded && (*total)++ == index) {
            *card = i;
            return true;
        }
    }
    return false;
}

EXPORT nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count)
{
    unsigned card;
    ENTER_LIBRARY();
    NEED_POINTER(count);
    excluded_card(SIM_ANY, count, &card);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int index,
                                                     nvmlExcludedDeviceInfo_t *info)
{
    unsigned total, card;
    ENTER_LIBRARY();
    NEED(info && excluded_card(index, &total, &card), NVML_ERROR_INVALID_ARGUMENT);
    const struct sim_facts *facts = &sim_host->cards[card].facts;
    memset(info, 0, sizeof *info);
    info->pci.domain = facts->domain;
    info->pci.bus = facts->bus;
    info->pci.device = facts->device;
    info->pci.pciDeviceId = facts->pci_id;
    info->pci.pciSubSystemId = facts->subsystem_id;
    format_bus_id(facts, info->pci.busId, sizeof info->pci.busId);
    snprintf(info->uuid, sizeof info->uuid, "%s", facts->uuid);
    return NVML_SUCCESS;
}
