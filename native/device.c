/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a card is: names, ids, versions, its place on the bus. Answers from facts alone.
 */
#define _GNU_SOURCE
#include "library.h"

#include <stdio.h>
#include <string.h>

void format_bus_id(const struct sim_facts *facts, char *to, size_t size)
{
    snprintf(to, size, "%08X:%02X:%02X.0", facts->domain, facts->bus, facts->device);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    char text[256], profile[100];
    ENTER(device, EITHER);
    if (view.gpu_instance == SIM_ANY)
        return put_string(name, length, view.facts->name);
    mig_profile_name(&view, profile, sizeof profile);
    snprintf(text, sizeof text, "%s %s", view.facts->name, profile);
    return put_string(name, length, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    char text[96];
    ENTER(device, EITHER);
    if (view.gpu_instance == SIM_ANY)
        return put_string(uuid, length, view.facts->uuid);
    mig_uuid(view.facts, view.gpu_instance, view.compute_instance, text, sizeof text);
    return put_string(uuid, length, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    ENTER(device, EITHER);
    NEED_POINTER(index);
    if (view.gpu_instance == SIM_ANY) {
        *index = visible_index(view.card);
        return NVML_SUCCESS;
    }
    *index = 0;
    for (unsigned gi = 0; gi < SIM_INSTANCES; gi++)
        for (unsigned ci = 0; ci < SIM_COMPUTE; ci++) {
            if (gi == view.gpu_instance && ci == view.compute_instance)
                return NVML_SUCCESS;
            const struct sim_instance *other = &view.state.instances[gi];
            *index += other->present && other->compute[ci].present &&
                      capability_visible(view.card, gi, ci);
        }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    ENTER(device, WHOLE);
    NEED_POINTER(minor);
    *minor = view.facts->minor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    ENTER(device, EITHER);
    NEED_FEATURE(SERIAL);
    return put_string(serial, length, view.facts->serial);
}

EXPORT nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *part,
                                                 unsigned int length)
{
    ENTER(device, EITHER);
    NEED_FEATURE(BOARD_PART);
    return put_string(part, length, view.facts->board_part);
}

EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version,
                                              unsigned int length)
{
    ENTER(device, EITHER);
    return put_string(version, length, view.facts->vbios);
}

static nvmlReturn_t known_string(char *to, unsigned int length, const char *text)
{
    return *text ? put_string(to, length, text) : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char *version,
                                                     unsigned int length)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(INFOROM);
    return known_string(version, length, view.facts->inforom_image);
}

EXPORT nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, unsigned int object,
                                                char *version, unsigned int length)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(INFOROM);
    const char *const parts[] = {view.facts->inforom_oem, view.facts->inforom_ecc,
                                 view.facts->inforom_power};
    NEED(object < 4, NVML_ERROR_INVALID_ARGUMENT);
    return object < 3 ? known_string(version, length, parts[object]) : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetInforomConfigurationChecksum(nvmlDevice_t device,
                                                              unsigned int *checksum)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(INFOROM);
    NEED_POINTER(checksum);
    *checksum = view.facts->pci_id ^ view.facts->subsystem_id;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(INFOROM);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(GSP);
    return known_string(version, 64, *view.facts->gsp ? view.facts->gsp
                                                      : sim_host->driver_version);
}

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *enabled,
                                                 unsigned int *default_mode)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(GSP);
    NEED(enabled && default_mode, NVML_ERROR_INVALID_ARGUMENT);
    *enabled = *default_mode = 1;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand)
{
    ENTER(device, EITHER);
    NEED_POINTER(brand);
    *brand = view.facts->brand;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
    ENTER(device, EITHER);
    NEED_POINTER(architecture);
    *architecture = view.facts->architecture;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    ENTER(device, EITHER);
    NEED(major && minor, NVML_ERROR_INVALID_ARGUMENT);
    *major = (int)view.facts->cc_major;
    *minor = (int)view.facts->cc_minor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *id)
{
    ENTER(device, EITHER);
    NEED_POINTER(id);
    *id = view.facts->board_id;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multiple)
{
    ENTER(device, EITHER);
    NEED_POINTER(multiple);
    *multiple = 0;
    for (unsigned card = 0; card < sim_host->card_count; card++)
        *multiple |= card != view.card && view.facts->board_id &&
                     sim_host->cards[card].facts.board_id == view.facts->board_id;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device, nvmlDevice_t other, int *same)
{
    ENTER(device, WHOLE);
    NEED_POINTER(same);
    struct view second;
    nvmlReturn_t result = view_device(other, WHOLE, __func__, &second);
    if (result == NVML_SUCCESS)
        *same = second.card == view.card ||
                (view.facts->board_id && second.facts->board_id == view.facts->board_id);
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int *id)
{
    ENTER(device, WHOLE);
    NEED_FEATURE(MODULE_ID);
    NEED_POINTER(id);
    *id = view.facts->module_id;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores)
{
    ENTER(device, EITHER);
    NEED_POINTER(cores);
    *cores = view.facts->cores;
    return view.facts->cores ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *width)
{
    ENTER(device, EITHER);
    NEED_POINTER(width);
    *width = view.facts->memory_bus_width;
    return view.facts->memory_bus_width ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetIrqNum(nvmlDevice_t device, unsigned int *number)
{
    ENTER(device, WHOLE);
    NEED_POINTER(number);
    *number = view.facts->irq;
    return view.facts->irq ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, unsigned int *type)
{
    ENTER(device, WHOLE);
    NEED_POINTER(type);
    *type = 2; /* NVML_BUS_TYPE_PCIE */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    ENTER(device, EITHER);
    NEED_POINTER(info);
    memset(info, 0, sizeof *info);
    info->domain = view.facts->domain;
    info->bus = view.facts->bus;
    info->device = view.facts->device;
    info->pciDeviceId = view.facts->pci_id;
    info->pciSubSystemId = view.facts->subsystem_id;
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.0", info->domain,
             info->bus, info->device);
    format_bus_id(view.facts, info->busId, sizeof info->busId);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *info)
{
    nvmlPciInfo_t full;
    ENTER_LIBRARY();
    NEED_POINTER(info);
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &full);
    if (result == NVML_SUCCESS) {
        memset(info, 0, sizeof *info);
        memcpy(info->busId, full.busIdLegacy, sizeof info->busId);
        info->domain = full.domain;
        info->bus = full.bus;
        info->device = full.device;
        info->pciDeviceId = full.pciDeviceId;
        info->pciSubSystemId = full.pciSubSystemId;
    }
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *info)
{
    return nvmlDeviceGetPciInfo_v2(device, info);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *info)
{
    ENTER(device, EITHER);
    NEED_VERSION(info, 1);
    info->domain = view.facts->domain;
    info->bus = view.facts->bus;
    info->device = view.facts->device;
    info->pciDeviceId = view.facts->pci_id;
    info->pciSubSystemId = view.facts->subsystem_id;
    info->baseClass = view.facts->pci_class >> 16 & 0xff;
    info->subClass = view.facts->pci_class >> 8 & 0xff;
    format_bus_id(view.facts, info->busId, sizeof info->busId);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode)
{
    ENTER(device, WHOLE);
    NEED_POINTER(mode);
    *mode = view.facts->virtualization;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlVersioned_t *mode)
{
    ENTER(device, EITHER);
    NEED_VERSION(mode, 1);
    NEED_FEATURE(ADDRESSING);
    bool coherent = view.facts->addressing == 2;
    mode->value = view.state.persistence || coherent ? view.facts->addressing : 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, nvmlC2cModeInfo_t *info)
{
    ENTER(device, WHOLE);
    NEED_POINTER(info);
    NEED(view.facts->c2c, NVML_ERROR_NOT_SUPPORTED);
    info->isC2cEnabled = 1;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, unsigned int *mode)
{
    ENTER(device, EITHER);
    NEED_POINTER(mode);
    NEED(!driver_at_least(575), NVML_ERROR_DEPRECATED);
    *mode = !sim_lacks(view.facts, SIM_F_DISPLAY);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned int *active)
{
    ENTER(device, EITHER);
    NEED_POINTER(active);
    *active = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPdi(nvmlDevice_t device, nvmlPdi_t *pdi)
{
    ENTER(device, WHOLE);
    NEED_VERSION(pdi, 1);
    NEED_FEATURE(PLATFORM);
    pdi->value = 0;
    for (const char *digit = view.facts->uuid; *digit; digit++)
        pdi->value = pdi->value * UINT64_C(1099511628211) ^ (unsigned char)*digit;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_t *info)
{
    ENTER(device, WHOLE);
    NEED_POINTER(info);
    NEED(info->version == NVML_STRUCT(*info, 1) || info->version == NVML_STRUCT(*info, 2),
         NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    NEED_FEATURE(PLATFORM);
    nvmlPdi_t pdi = {.version = NVML_STRUCT(pdi, 1)};
    nvmlDeviceGetPdi(device, &pdi);
    memset(info->ibGuid, 0, sizeof info->ibGuid);
    memcpy(info->ibGuid, &pdi.value, sizeof pdi.value);
    memcpy(info->chassisSerialNumber, view.facts->chassis, sizeof info->chassisSerialNumber);
    info->slotNumber = (unsigned char)view.facts->slot;
    info->trayIndex = (unsigned char)view.facts->tray;
    info->hostId = (unsigned char)view.facts->host_id;
    info->peerType = (unsigned char)view.facts->peer_type;
    info->moduleId = (unsigned char)view.facts->module_id;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetBridgeChipInfo(nvmlDevice_t device,
                                                nvmlBridgeChipHierarchy_t *chips)
{
    ENTER(device, WHOLE);
    NEED_POINTER(chips);
    return NVML_ERROR_NOT_SUPPORTED;
}
