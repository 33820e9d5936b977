/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVLink: which links a card has, where they lead, whether they are up, what went wrong on them.
 */
#include "library.h"

#include <stdio.h>
#include <string.h>

static nvmlReturn_t view_link(nvmlDevice_t device, unsigned link, const char *function,
                              struct view *view)
{
    nvmlReturn_t result = view_device(device, WHOLE, function, view);
    NEED(result == NVML_SUCCESS, result);
    NEED(link < SIM_LINKS, NVML_ERROR_INVALID_ARGUMENT);
    NEED(view->facts->nvlink_count, NVML_ERROR_NOT_SUPPORTED);
    return link < view->facts->nvlink_count ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

#define ENTER_LINK(device, link)                                                                   \
    struct view view;                                                                              \
    do {                                                                                           \
        nvmlReturn_t entered = view_link(device, link, __func__, &view);                           \
        if (entered != NVML_SUCCESS)                                                               \
            return entered;                                                                        \
    } while (0)

static bool is_up(const struct view *view, unsigned link)
{
    return view->facts->links[link].present && !(view->state.nvlink_down >> link & 1);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                             unsigned int *active)
{
    ENTER_LINK(device, link);
    NEED_POINTER(active);
    *active = is_up(&view, link);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                               unsigned int *version)
{
    ENTER_LINK(device, link);
    NEED_POINTER(version);
    *version = view.facts->nvlink_version;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                                  unsigned int capability, unsigned int *result)
{
    ENTER_LINK(device, link);
    NEED(result && capability < 6, NVML_ERROR_INVALID_ARGUMENT);
    *result = capability != 4; /* All but an SLI bridge. */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link,
                                                    unsigned int counter,
                                                    unsigned long long *count)
{
    ENTER_LINK(device, link);
    NEED(count && counter < 5, NVML_ERROR_INVALID_ARGUMENT);
    NEED(is_up(&view, link), NVML_ERROR_NOT_SUPPORTED);
    *count = view.state.nvlink_errors[link][counter];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceResetNvLinkErrorCounters(nvmlDevice_t device, unsigned int link)
{
    ENTER_LINK(device, link);
    NEED_ADMINISTRATOR();
    struct sim_state *state = sim_begin(view.card);
    NEED(state, NVML_ERROR_NO_PERMISSION);
    memset(state->nvlink_errors[link], 0, sizeof state->nvlink_errors[link]);
    sim_end(view.card);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                        nvmlPciInfo_t *pci)
{
    ENTER_LINK(device, link);
    NEED_POINTER(pci);
    NEED(is_up(&view, link), NVML_ERROR_NOT_SUPPORTED);
    const struct sim_link *fact = &view.facts->links[link];
    memset(pci, 0, sizeof *pci);
    pci->domain = fact->domain;
    pci->bus = fact->bus;
    pci->device = fact->device;
    pci->pciDeviceId = fact->pci_id;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", fact->domain, fact->bus,
             fact->device);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", fact->domain, fact->bus,
             fact->device);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link,
                                                     nvmlPciInfo_v2_t *pci)
{
    nvmlPciInfo_t full;
    ENTER_LIBRARY();
    NEED_POINTER(pci);
    nvmlReturn_t result = nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &full);
    NEED(result == NVML_SUCCESS, result);
    memset(pci, 0, sizeof *pci);
    memcpy(pci->busId, full.busIdLegacy, sizeof pci->busId);
    pci->domain = full.domain;
    pci->bus = full.bus;
    pci->device = full.device;
    pci->pciDeviceId = full.pciDeviceId;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                        unsigned int *type)
{
    ENTER_LINK(device, link);
    NEED_POINTER(type);
    NEED(is_up(&view, link), NVML_ERROR_NOT_SUPPORTED);
    *type = view.facts->links[link].type;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkInfo(nvmlDevice_t device, nvmlVersioned_t *info)
{
    ENTER(device, WHOLE);
    NEED_VERSION(info, 1);
    NEED(view.facts->nvlink_count, NVML_ERROR_NOT_SUPPORTED);
    info->value = 0; /* No encryption on the links. */
    return NVML_SUCCESS;
}

#define DEPRECATED(function, ...)                                                                  \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, __VA_ARGS__)                                 \
    {                                                                                              \
        ENTER(device, WHOLE);                                                                      \
        return view.facts->nvlink_count ? NVML_ERROR_DEPRECATED : NVML_ERROR_NOT_SUPPORTED;        \
    }

DEPRECATED(nvmlDeviceGetNvLinkUtilizationCounter, __attribute__((unused)) unsigned int link)
DEPRECATED(nvmlDeviceFreezeNvLinkUtilizationCounter, __attribute__((unused)) unsigned int link)
DEPRECATED(nvmlDeviceResetNvLinkUtilizationCounter, __attribute__((unused)) unsigned int link)
DEPRECATED(nvmlDeviceSetNvLinkUtilizationControl, __attribute__((unused)) unsigned int link)
DEPRECATED(nvmlDeviceGetNvLinkUtilizationControl, __attribute__((unused)) unsigned int link)
