/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPM: metrics computed from two samples. The simulation keeps the load at each sample.
 */
#include "library.h"

#include <stdlib.h>

struct nvmlGpmSample_st {
    uint64_t at_ns;
    unsigned sm, memory, decoder, jpeg, ofa, encoder;
};

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    ENTER(device, WHOLE);
    NEED_POINTER(support);
    NEED(support->version == 1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    support->isSupportedDevice = !sim_lacks(view.facts, SIM_F_GPM);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
    ENTER_LIBRARY();
    NEED_POINTER(sample);
    *sample = calloc(1, sizeof **sample);
    return *sample ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

EXPORT nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    ENTER_LIBRARY();
    NEED_POINTER(sample);
    free(sample);
    return NVML_SUCCESS;
}

static void take(const struct view *view, nvmlGpmSample_t sample)
{
    sample->at_ns = sim_now_ns();
    sample->sm = card_utilization(view, 0);
    sample->memory = card_utilization(view, 1);
    sample->encoder = card_utilization(view, 2);
    sample->decoder = card_utilization(view, 3);
    sample->jpeg = card_utilization(view, 4);
    sample->ofa = card_utilization(view, 5);
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
    ENTER(device, WHOLE);
    NEED_POINTER(sample);
    NEED_FEATURE(GPM);
    take(&view, sample);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gi,
                                        nvmlGpmSample_t sample)
{
    ENTER(device, WHOLE);
    NEED_POINTER(sample);
    NEED_FEATURE(GPM);
    NEED(view.state.mig_current, NVML_ERROR_NOT_SUPPORTED);
    NEED(gi < SIM_INSTANCES && view.state.instances[gi].present, NVML_ERROR_NOT_FOUND);
    take(&view, sample);
    return NVML_SUCCESS;
}

static double average(unsigned first, unsigned second) { return (first + second) / 2.0; }

static nvmlReturn_t metric(const nvmlGpmMetricsGet_t *get, nvmlGpmMetric_t *metric)
{
    nvmlGpmSample_t a = get->sample1, b = get->sample2;
    switch (metric->metricId) {
    case 1: case 2: metric->value = average(a->sm, b->sm); return NVML_SUCCESS;
    case 3: case 5: metric->value = average(a->sm, b->sm) * 0.6; return NVML_SUCCESS;
    case 10: metric->value = average(a->memory, b->memory); return NVML_SUCCESS;
    case 4: case 6: case 7: case 8: case 9: case 11: case 12: case 13: case 20: case 21:
        metric->value = 0;
        return NVML_SUCCESS;
    case 30: metric->value = average(a->decoder, b->decoder); return NVML_SUCCESS;
    case 40: metric->value = average(a->jpeg, b->jpeg); return NVML_SUCCESS;
    case 50: metric->value = average(a->ofa, b->ofa); return NVML_SUCCESS;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

EXPORT nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
    ENTER_LIBRARY();
    NEED_POINTER(get);
    NEED(get->version == 1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    NEED(get->sample1 && get->sample2 && get->numMetrics <= 477, NVML_ERROR_INVALID_ARGUMENT);
    NEED(get->sample1->at_ns && get->sample2->at_ns, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < get->numMetrics; i++)
        get->metrics[i].nvmlReturn = metric(get, &get->metrics[i]);
    return NVML_SUCCESS;
}
