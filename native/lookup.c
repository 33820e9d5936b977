/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding cards and MIG devices: by index, bus id, serial number, UUID.
 */
#define _GNU_SOURCE
#include "library.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    ENTER_LIBRARY();
    NEED_POINTER(count);
    *count = visible_count();
    return NVML_SUCCESS;
}

/* The unversioned call of old clients leaves out what cannot be used. */
EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    ENTER_LIBRARY();
    NEED_POINTER(count);
    *count = 0;
    for (unsigned i = 0; i < visible_count(); i++) {
        struct sim_state state;
        sim_read(visible_card(i), &state);
        *count += !state.lost;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t give(unsigned card, const char *function, nvmlDevice_t *device)
{
    struct sim_state state;
    nvmlReturn_t result = (nvmlReturn_t)sim_faults(card, function, &state);
    if (result == NVML_SUCCESS)
        *device = handle_of_card(card);
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    ENTER_LIBRARY();
    NEED(device && index < visible_count(), NVML_ERROR_INVALID_ARGUMENT);
    return give(visible_card(index), __func__, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static bool parse_bus_id(const char *text, unsigned bus_id[4])
{
    int end = 0;
    bus_id[3] = 0;
    if (sscanf(text, "%x:%x:%x.%x%n", &bus_id[0], &bus_id[1], &bus_id[2], &bus_id[3], &end) == 4)
        return text[end] == 0;
    bus_id[0] = 0;
    return sscanf(text, "%x:%x.%x%n", &bus_id[1], &bus_id[2], &bus_id[3], &end) == 3 &&
           text[end] == 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device)
{
    unsigned bus_id[4];
    ENTER_LIBRARY();
    NEED(text && device && parse_bus_id(text, bus_id), NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < visible_count(); i++) {
        const struct sim_facts *facts = &sim_host->cards[visible_card(i)].facts;
        if (facts->domain == bus_id[0] && facts->bus == bus_id[1] && facts->device == bus_id[2])
            return give(visible_card(i), __func__, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(text, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    ENTER_LIBRARY();
    NEED(serial && device, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < visible_count(); i++) {
        const struct sim_facts *facts = &sim_host->cards[visible_card(i)].facts;
        if (*facts->serial && strcmp(facts->serial, serial) == 0)
            return give(visible_card(i), __func__, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

static bool find_mig(unsigned card, const char *uuid, nvmlDevice_t *device)
{
    struct sim_state state;
    char own[96];
    sim_read(card, &state);
    for (unsigned gi = 0; gi < SIM_INSTANCES; gi++)
        for (unsigned ci = 0; ci < SIM_COMPUTE && state.instances[gi].present; ci++) {
            if (!state.instances[gi].compute[ci].present || !capability_visible(card, gi, ci))
                continue;
            mig_uuid(&sim_host->cards[card].facts, gi, ci, own, sizeof own);
            if (strcasecmp(own, uuid) == 0) {
                *device = handle_of_mig(card, gi, ci);
                return true;
            }
        }
    return false;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    nvmlDevice_t found;
    ENTER_LIBRARY();
    NEED(uuid && device, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < visible_count(); i++)
        if (strcasecmp(sim_host->cards[visible_card(i)].facts.uuid, uuid) == 0)
            return give(visible_card(i), __func__, device);
    for (unsigned i = 0; i < visible_count() && strncasecmp(uuid, "MIG-", 4) == 0; i++)
        if (find_mig(visible_card(i), uuid, &found)) {
            nvmlReturn_t result = give(visible_card(i), __func__, device);
            if (result == NVML_SUCCESS)
                *device = found;
            return result;
        }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device)
{
    char text[96];
    ENTER_LIBRARY();
    NEED_POINTER(device);
    NEED_VERSION(uuid, 1);
    if (uuid->type == 1) {
        snprintf(text, sizeof text, "%.*s", (int)sizeof uuid->value.str, uuid->value.str);
        return nvmlDeviceGetHandleByUUID(text, device);
    }
    NEED(uuid->type == 2, NVML_ERROR_INVALID_ARGUMENT);
    const unsigned char *b = uuid->value.bytes;
    snprintf(text, sizeof text,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
             b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
    nvmlReturn_t result = nvmlDeviceGetHandleByUUID(text, device);
    if (result != NVML_ERROR_NOT_FOUND)
        return result;
    memcpy(text, "MIG", 3);
    return nvmlDeviceGetHandleByUUID(text, device);
}
