# SPDX-License-Identifier: Apache-2.0
"""What a node offers at API servers that drop some of its fields without a word.

Kubernetes 1.34 takes devices out of a pool of which some slices are still missing, so an unsafe
slice must not be stored for a moment: every stored state is looked at, not the last one alone.
"""

from __future__ import annotations

import pytest
from tests.contract.dra.conftest import World
from tests.scenario.dra import standins
from tests.support import expect

from gpudeck.api import resource

pytestmark = pytest.mark.asyncio

PARTS = {"mig", "share"}


def kind(device: resource.Device) -> str:
    return device.name.partition("-")[0]


def expected(world: World) -> set[str]:
    """What may be offered at that server."""
    kinds = {"gpu"}
    kinds |= {"mig"} if world.server.counters else set()
    return kinds | ({"share"} if world.server.shares else set())


def is_safe(found: resource.ResourceSlice) -> bool:
    """Whether no device of it could be given out beside another of its card, or twice."""
    return all(
        device.consumes_counters and (kind(device) != "share" or device.allow_multiple_allocations)
        for device in found.spec.devices or ()
        if kind(device) in PARTS
    )


async def test_parts_are_offered_only_where_the_server_keeps_what_guards_them(
    world: World,
) -> None:
    async with world.plugin():
        await world.until(lambda: world.kinds() == expected(world) and is_complete(world))
        (whole,) = (each for each in world.devices() if kind(each) == "gpu")
        assert bool(whole.consumes_counters) == world.server.counters
    assert [each.metadata.name for each in world.stored if not is_safe(each)] == []


def is_complete(world: World) -> bool:
    """Whether the pool has all its slices, and all of one generation."""
    pools = {
        (each.spec.pool.generation, each.spec.pool.resource_slice_count)
        for each in world.cache.objects.values()
    }
    return len(pools) == 1 and pools.pop()[1] == len(world.cache.objects)


async def test_the_card_says_why_it_is_not_offered_in_parts(world: World) -> None:
    async with world.plugin():
        await world.until(lambda: world.kinds() == expected(world))
        whole = expected(world) >= PARTS
        said = ("True", "Published" if whole else "PartsWithheld")
        await expect.eventually(world.verdict, said)


async def test_a_restart_leaves_a_pool_that_is_right_alone(world: World) -> None:
    async with world.plugin():
        await world.until(lambda: world.kinds() == expected(world) and is_complete(world))
    before = len(world.stored)
    async with world.plugin():
        world.adapter.show([standins.partitionable(0), standins.card(1)])
        await world.until(
            lambda: len([each for each in world.devices() if kind(each) == "gpu"]) == 2
        )
    assert all(is_safe(each) for each in world.stored)
    assert len(world.stored) > before


async def test_a_sick_card_is_never_offered_without_its_taint(world: World) -> None:
    async with world.plugin():
        await world.until(lambda: world.kinds() == expected(world) and is_complete(world))
        before = len(world.stored)
        world.show(health=standins.sick(0).health)
        if world.server.taints:
            await world.until(lambda: all(each.taints for each in world.devices()))
        else:
            await world.until(lambda: world.devices() == [])
        sick = world.stored[before:]
        world.show()
        await world.until(lambda: world.kinds() == expected(world) and is_complete(world))
        await world.until(lambda: not any(each.taints for each in world.devices()))
    assert all(device.taints for each in sick for device in each.spec.devices or ())
