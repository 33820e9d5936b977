/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How busy a card is, and what follows: power, heat, clocks, energy. A knob that is set wins;
 * otherwise the processes that hold the card make the load.
 */
#include "library.h"

static unsigned use_percent(const struct sim_use *use, unsigned engine)
{
    switch (engine) {
    case 0: return use->sm;
    case 1: return use->memory_utilization;
    case 2: return use->encoder;
    case 3: return use->decoder;
    default: return 0;
    }
}

unsigned card_utilization(const struct view *view, unsigned engine)
{
    unsigned sum = 0;
    if (view->state.utilization[engine] != SIM_ANY)
        return view->state.utilization[engine];
    for (unsigned i = 0; i < SIM_CLIENTS; i++) {
        const struct sim_use *use = &sim_host->clients[i].uses[view->card];
        if (sim_host->clients[i].taken && use->contexts && sim_client_pid(i) >= 0)
            sum += use_percent(use, engine);
    }
    return sum > 100 ? 100 : sum;
}

unsigned card_power_mw(const struct view *view)
{
    const struct sim_facts *facts = view->facts;
    if (view->state.power_mw != SIM_ANY)
        return view->state.power_mw;
    uint64_t limit = view->state.power_limit_mw ? view->state.power_limit_mw
                                                : facts->power_idle_mw * 4;
    uint64_t span = limit > facts->power_idle_mw ? limit - facts->power_idle_mw : 0;
    return facts->power_idle_mw + (unsigned)(span * 95 / 100 * card_utilization(view, 0) / 100);
}

static int by_load(const struct view *view, int idle, int load)
{
    return idle + (load - idle) * (int)card_utilization(view, 0) / 100;
}

int card_temperature(const struct view *view)
{
    if (view->state.temperature != SIM_NO_LIMIT)
        return view->state.temperature;
    return by_load(view, view->facts->temperature_idle, view->facts->temperature_load);
}

int card_memory_temperature(const struct view *view)
{
    if (view->state.memory_temperature != SIM_NO_LIMIT)
        return view->state.memory_temperature;
    return by_load(view, view->facts->temperature_idle + 6, view->facts->temperature_load + 10);
}

unsigned card_pstate(const struct view *view)
{
    if (view->state.pstate != SIM_ANY)
        return view->state.pstate;
    /* Data-centre boards stay at P0; boards with a lower memory clock drop to P8 when idle. */
    bool drops = view->facts->idle_memory && view->facts->idle_memory != view->facts->max_memory;
    return drops && card_utilization(view, 0) == 0 ? 8 : 0;
}

static unsigned clamp(unsigned value, unsigned low, unsigned high)
{
    if (high && value > high)
        value = high;
    return value < low ? low : value;
}

/* Clock types: graphics, SM, memory, video. */
unsigned card_clock(const struct view *view, unsigned type)
{
    const struct sim_facts *facts = view->facts;
    const struct sim_state *state = &view->state;
    bool idle = card_utilization(view, 0) == 0;
    if (type == 2)
        return clamp(card_pstate(view) ? facts->idle_memory : facts->max_memory,
                     state->locked_memory_min, state->locked_memory_max);
    if (type == 3)
        return idle && facts->idle_video ? facts->idle_video : facts->max_video;
    unsigned top = type == 1 ? facts->max_sm : facts->max_graphics;
    unsigned clock = idle && facts->idle_graphics ? facts->idle_graphics : top;
    if (card_clock_reasons(view) & 0x6c)
        clock = clamp(clock, 0, top / 2);
    return clamp(clock, state->locked_min, state->locked_max);
}

static int threshold(const struct sim_facts *facts, int limit)
{
    if (limit == SIM_NO_LIMIT)
        return INT32_MAX;
    return facts->margin ? facts->margin - limit : limit;
}

uint64_t card_clock_reasons(const struct view *view)
{
    uint64_t reasons = view->state.thermal_reasons;
    unsigned busy = card_utilization(view, 0);
    int temperature = card_temperature(view);
    if (busy == 0)
        reasons |= 0x1;
    else if (view->state.locked_max)
        reasons |= 0x2;
    if (busy && view->state.power_mw != SIM_ANY && view->state.power_limit_mw &&
        view->state.power_mw >= view->state.power_limit_mw)
        reasons |= 0x4;
    if (temperature >= threshold(view->facts, view->facts->slowdown))
        reasons |= 0x8 | 0x40;
    else if (temperature >= threshold(view->facts, view->facts->gpu_max))
        reasons |= 0x20;
    return reasons;
}

/* Whoever moves the time forward adds the energy of the time that passed. */
uint64_t card_energy_mj(const struct view *view)
{
    struct sim_live *live = &sim_host->cards[view->card].live;
    uint64_t now = sim_now_ns(), at = __atomic_load_n(&live->energy_at_ns, __ATOMIC_RELAXED);
    uint64_t energy = __atomic_load_n(&live->energy_mj, __ATOMIC_RELAXED);
    if (now < at + 1000000 || sim_lock() != SIM_OK)
        return energy;
    at = live->energy_at_ns;
    if (now > at) {
        uint64_t milliseconds = (now - at) / 1000000;
        __atomic_add_fetch(&live->energy_mj, card_power_mw(view) * milliseconds / 1000,
                           __ATOMIC_RELAXED);
        __atomic_store_n(&live->energy_at_ns, now, __ATOMIC_RELAXED);
    }
    sim_unlock();
    return __atomic_load_n(&live->energy_mj, __ATOMIC_RELAXED);
}

uint64_t ecc_total(const struct view *view, unsigned error, unsigned counter)
{
    uint64_t sum = 0;
    for (unsigned where = 0; where < SIM_LOCATIONS; where++)
        sum += view->state.ecc[error][counter][where];
    return sum;
}
