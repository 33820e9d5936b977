# SPDX-License-Identifier: Apache-2.0
"""The plugin and the product's own adapter process, on simulated cards.

The other scenarios use a stand-in for the adapter; this one shows that the stand-in
speaks as the real one does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.scenario.dra.conftest import World
from tests.scenario.dra.standins import device
from tests.scenario.dra.test_claimstatus import told as statuses
from tests.scenario.dra.test_metadata import attributes

from gpudeck import sockets
from gpudeck.adapter import main, server
from gpudeck.adapter.settings import Settings
from gpudeck.api import names
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import main as plugins
from gpudeck.vendors.simulated import machine

ADDRESS = PciAddress.parse("0000:01:00.0")
"""Of the first simulated card."""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter ends without the plugin, for which it need not wait."""
    monkeypatch.setattr(server, "READERS_SECONDS", 0.0)


@pytest.fixture
async def simulated(stopped: World) -> AsyncIterator[World]:
    """A world whose adapter is the real one with two simulated cards."""
    await stopped.adapter.stop()
    bench = machine.Bench(stopped.folder)
    bench.write(machine.make(2))
    try:
        async with adapter(stopped):
            await stopped.start()
            await stopped.published(2)
            yield stopped
    finally:
        await stopped.stop()


@contextlib.asynccontextmanager
async def adapter(world: World) -> AsyncIterator[None]:
    """The product's adapter runs inside the block."""
    settings = Settings(vendor="simulated", socket=world.adapter.socket, host_root=world.folder)
    task = asyncio.create_task(main.run(settings))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_cards_of_the_adapter_are_published_and_prepared(simulated: World) -> None:
    first = simulated.devices()[0]
    assert first["attributes"]["vendor"] == {"string": "simulated"}
    claim = claim_of(simulated, first["name"])
    assert (await simulated.kubelet.prepare(claim))["uid-c"].error == ""
    spec = simulated.spec("c")
    (given,) = spec["devices"]
    assert given["containerEdits"]["deviceNodes"][0]["path"] == "/dev/simulated0"
    assert spec["containerEdits"]["env"] == ["SIMULATED_DRIVER=1.2.3"]
    assert await simulated.kubelet.unprepare(claim) == {"uid-c": ""}
    assert simulated.specs() == []


async def test_a_container_is_told_of_the_partition_that_was_made_for_it(stopped: World) -> None:
    world, bench = stopped, machine.Bench(stopped.folder)
    await world.adapter.stop()
    bench.write(machine.partitionable(1))
    async with adapter(world):
        await world.start()
        await world.published(1)
        claim = claim_of(world, names.mig_device_name(ADDRESS, "1g.2gb", 19, 1))
        assert (await world.kubelet.prepare(claim))["uid-c"].error == ""
        (made,) = bench.read().cards[0].reading.partitions
        told = attributes(world, "c")
        assert (told["uuid"], told["profile"]) == ({"string": made.uuid}, {"string": "1g.2gb"})
        assert told["memory"] == {"int": 2 << 30}
        await world.until(lambda: statuses(world, "c"))
        (entry,) = statuses(world, "c")
        assert entry["data"]["uuid"] == made.uuid
        await world.stop()


async def test_the_status_of_a_claim_follows_what_a_newer_driver_made(stopped: World) -> None:
    world, bench = stopped, machine.Bench(stopped.folder)
    await world.adapter.stop()
    bench.write(machine.partitionable(1))
    claim = claim_of(world, names.mig_device_name(ADDRESS, "1g.2gb", 19, 1))
    async with adapter(world):
        await world.start()
        await world.published(1)
        assert (await world.kubelet.prepare(claim))["uid-c"].error == ""
        await world.until(lambda: statuses(world, "c"))
    found = bench.read()
    (made,) = found.cards[0].reading.partitions
    bench.change(driver=msgspec.structs.replace(found.driver, version="2.0.0"))
    bench.change_reading(0, partitions=(msgspec.structs.replace(made, uuid="MIG-newer"),))
    async with adapter(world):
        await world.until(
            lambda: all(
                each["attributes"]["driverVersion"] == {"version": "2.0.0"}
                for each in world.devices()
            )
        )
        assert (await world.kubelet.prepare(claim))["uid-c"].error == ""
        assert attributes(world, "c")["uuid"] == {"string": "MIG-newer"}
        await world.until(lambda: statuses(world, "c")[0]["data"]["uuid"] == "MIG-newer")
        await world.stop()


async def test_a_card_that_the_adapter_does_not_know_is_refused(simulated: World) -> None:
    claim = claim_of(simulated, device(0))
    error = (await simulated.kubelet.prepare(claim))["uid-c"].error
    assert error.startswith("CardNotFound: ")


async def test_a_prepare_after_a_restart_of_the_adapter_waits_for_its_cards(
    stopped: World,
) -> None:
    world, bench = stopped, machine.Bench(stopped.folder)
    await world.adapter.stop()
    bench.write(machine.make(2))
    async with adapter(world):
        await world.start()
        await world.published(2)
    claim = claim_of(world, world.devices()[0]["name"])
    bench.change(opening_hangs=True)
    async with adapter(world):
        await world.until(lambda: sockets.answers(world.adapter.socket))
        prepared = asyncio.create_task(world.kubelet.prepare(claim))
        await world.until(
            lambda: any(each.path.endswith("/resourceclaims/c") for each in world.api.seen)
        )
        bench.change(opening_hangs=False)
        assert (await prepared)["uid-c"].error == ""
        await world.stop()


async def test_the_plugins_page_has_the_adapters_metrics_while_it_answers(stopped: World) -> None:
    await stopped.adapter.stop()
    machine.Bench(stopped.folder).write(machine.make(2))
    async with adapter(stopped), plugins.opened(stopped.settings()) as plugin:
        await stopped.until(lambda: sockets.answers(stopped.adapter.socket))
        text = (await plugin.metrics()).decode()
    assert "gpudeck_dra_prepared_claims" in text
    assert "gpudeck_adapter_driver_ready" in text


async def test_the_plugins_page_is_there_without_the_adapter(stopped: World) -> None:
    await stopped.adapter.stop()
    async with plugins.opened(stopped.settings()) as plugin:
        text = (await plugin.metrics()).decode()
    assert "gpudeck_dra_prepared_claims" in text
    assert "gpudeck_adapter_" not in text


def claim_of(world: World, name: str) -> dict[str, object]:
    """A claim that is allocated the device of that name."""
    return world.claim("c", 0, device=name)
