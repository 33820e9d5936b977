# SPDX-License-Identifier: Apache-2.0
"""The plugin and the product's own adapter process, on simulated cards.

The other scenarios use a stand-in for the adapter; this one shows that the stand-in
speaks as the real one does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.scenario.dra.conftest import World
from tests.scenario.dra.standins import device

from gpudeck.adapter import main
from gpudeck.adapter.settings import Settings
from gpudeck.vendors.simulated import machine


@pytest.fixture
async def simulated(stopped: World) -> AsyncIterator[World]:
    """A world whose adapter is the real one with two simulated cards."""
    await stopped.adapter.stop()
    bench = machine.Bench(stopped.folder)
    bench.write(machine.make(2))
    settings = Settings(vendor="simulated", socket=stopped.adapter.socket, host_root=stopped.folder)
    adapter = asyncio.create_task(main.run(settings))
    try:
        await stopped.start()
        await stopped.published(2)
        yield stopped
    finally:
        await stopped.stop()
        adapter.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await adapter


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


async def test_a_card_that_the_adapter_does_not_know_is_refused(simulated: World) -> None:
    claim = claim_of(simulated, device(0))
    error = (await simulated.kubelet.prepare(claim))["uid-c"].error
    assert error.startswith("CardNotFound: ")


def claim_of(world: World, name: str) -> dict[str, object]:
    """A claim that is allocated the device of that name."""
    return world.claim("c", 0, device=name)
