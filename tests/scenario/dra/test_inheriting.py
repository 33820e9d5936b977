# SPDX-License-Identifier: Apache-2.0
"""A node that had the device plugin becomes this driver's: what that left goes, in every outcome.

The plugin and the product's own adapter run over simulated cards; the device plugin has ended at
some instant and is not here any more.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.scenario.dra.conftest import NODE, World
from tests.scenario.dra.test_kills import AT_ONCE, Plugin
from tests.scenario.dra.test_mode_change import FIRST, ON, Cards
from tests.scenario.dra.test_publishing import put_class
from tests.support import apiserver, tracing

from gpudeck.api import labels, resources
from gpudeck.cdi import plugins
from gpudeck.dra import inheriting
from gpudeck.vendors import contract
from gpudeck.vendors.simulated import machine

pytestmark = pytest.mark.asyncio

PROFILE = machine.PROFILES[1]
SPEC = plugins.file_name("gpu")
PART = "mig-0000-01-00-0-1g2gb-19-0"
CONFIGURED = {labels.MIG_CONFIG: "all-1g.2gb"}


async def leave(cards: Cards, **known: str) -> None:
    """What a device plugin leaves that was killed, and the partitions of a config.

    The adapter is of the mode that begins.
    """
    world = cards.world
    await cards.stop_adapter()
    parts = tuple(
        contract.Partition(
            profile=PROFILE.name,
            uuid=f"MIG-{start}",
            start=start,
            size=1,
            profile_id=PROFILE.profile_id,
        )
        for start in range(4)
    )
    cards.bench.change_reading(0, mode=ON, pending_mode=ON, partitions=parts)
    meta = {"name": NODE, "uid": "node-uid", "labels": known}
    world.api.put(resources.NODE, {"metadata": meta})
    world.cdi_root.mkdir(exist_ok=True)
    (world.cdi_root / SPEC).write_text("{}")
    (world.data_dir / plugins.STATE_FILE).write_text("{}")
    await cards.start_adapter()


def partitions(cards: Cards) -> int:
    return len(cards.bench.read().cards[0].reading.partitions)


def left(world: World) -> list[str]:
    """The device plugin's files that are still there."""
    found = (world.cdi_root / SPEC, world.data_dir / plugins.STATE_FILE)
    return [path.name for path in found if path.exists()]


@contextlib.asynccontextmanager
async def driven(world: World) -> AsyncIterator[Cards]:
    """The node's cards; their adapter ends with them."""
    cards = Cards(world)
    cards.bench.write(machine.partitionable(2))
    for index in (0, 1):
        cards.put_gpu(index)
    try:
        yield cards
    finally:
        await cards.stop_adapter()


@pytest.fixture
async def cards(stopped: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cards]:
    monkeypatch.setattr(inheriting, "AGAIN_SECONDS", 0.1)
    await stopped.adapter.stop()
    async with driven(stopped) as found:
        yield found
        await stopped.stop()


async def test_partitions_of_a_config_go_and_their_card_is_offered_whole(cards: Cards) -> None:
    world = cards.world
    await leave(cards, **CONFIGURED)
    await world.start()
    await world.published(2)
    assert FIRST in {each["name"] for each in world.devices()}
    assert (partitions(cards), left(world)) == (0, [])


async def test_partitions_that_were_made_by_other_means_stay(cards: Cards) -> None:
    world = cards.world
    await leave(cards)
    await world.start()
    await world.published(1)
    await world.until(lambda: left(world) == [])
    assert partitions(cards) == 4


async def test_where_no_device_plugin_was_partitions_stay(cards: Cards) -> None:
    world = cards.world
    await leave(cards, **CONFIGURED)
    plugins.remove(world.cdi_root, world.data_dir)
    await world.start()
    await world.published(1)
    assert partitions(cards) == 4


async def test_what_cannot_be_removed_yet_is_tried_again_and_the_others_are_offered(
    cards: Cards,
) -> None:
    world = cards.world
    await leave(cards, **CONFIGURED)
    cards.bench.change_card(0, used=True)
    await world.start()
    await world.published(1)
    assert (partitions(cards), left(world)) == (4, [SPEC, plugins.STATE_FILE])
    cards.bench.change_card(0, used=False)
    await world.published(2)
    await world.until(lambda: left(world) == [])
    assert partitions(cards) == 0


async def test_what_a_claim_holds_stays(cards: Cards) -> None:
    world = cards.world
    put_class(world, "parts")
    await cards.start_adapter()
    await world.start()
    claim = world.claim("held", 0, device=PART)
    assert (await world.kubelet.prepare(claim))["uid-held"].error == ""
    await world.stop()
    await leave(cards, **CONFIGURED)
    await world.start()
    await world.until(lambda: left(world) == [])
    assert [each.start for each in cards.bench.read().cards[0].reading.partitions] == [0]


async def test_cards_whose_driver_does_not_serve_them_are_waited_for(cards: Cards) -> None:
    """Their partitions cannot be seen."""
    world = cards.world
    there = cards.bench.read().driver
    away = contract.DriverState(ready=False, reason="DriverNotLoaded", message="Not loaded.")
    cards.bench.write(msgspec.structs.replace(cards.bench.read(), driver=away))
    await leave(cards, **CONFIGURED)
    await world.start()
    await world.until(lambda: "Not loaded." in str(world.api.objects(resources.PHYSICAL_GPU)))
    assert left(world) == [SPEC, plugins.STATE_FILE]
    cards.bench.write(msgspec.structs.replace(cards.bench.read(), driver=there))
    await world.published(2)
    await world.until(lambda: left(world) == [])
    assert partitions(cards) == 0


async def test_a_node_is_taken_over_whenever_the_driver_is_killed() -> None:
    @contextlib.asynccontextmanager
    async def node() -> AsyncIterator[tuple[Cards, Plugin]]:
        with tempfile.TemporaryDirectory(prefix="dra-") as folder:
            async with apiserver.ApiServer() as api:
                world = World(Path(folder), api)
                async with driven(world) as found:
                    plugin = Plugin(world)
                    try:
                        yield found, plugin
                    finally:
                        await plugin.kill()

    async def survives(at: tuple[Cards, Plugin], family: str, number: int) -> bool:
        found, plugin = at
        world = found.world
        await plugin.kill()
        await leave(found, **CONFIGURED)
        await plugin.launch_waiting()
        async with plugin.doomed(family, number) as doom:
            plugin.begin()
            await world.until(lambda: left(world) == [] or not plugin.is_alive)
        await plugin.start()
        await world.until(lambda: left(world) == [])
        assert partitions(found) == 0
        await world.published(2)
        return not doom.struck

    families = ("unlink", "sendmsg") if os.environ.get("GPUDECK_SOAK") else ("unlink",)
    await tracing.at_every_call(node, survives, families, at_once=AT_ONCE)
