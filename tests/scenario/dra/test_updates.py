# SPDX-License-Identifier: Apache-2.0
"""Old and new plugin of a rolling update serve one kubelet at once (kubelet 1.33 and later)."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest
from tests.scenario.dra.conftest import World
from tests.scenario.dra.standins import partition, partitionable

from gpudeck.dra import ledger
from gpudeck.host import locks
from gpudeck.kubelet import registering

PLACE = ("0000:11:00.0", 2, 2)
"""Of `partition(1, 2)`: PCI address, start and size."""


@pytest.fixture
async def old(stopped: World) -> World:
    """A world whose cards can be partitioned, with the plugin of the pod `old`."""
    stopped.adapter.show(map(partitionable, range(4)))
    await stopped.start("old")
    await stopped.published(4)
    return stopped


async def test_a_new_plugin_leaves_what_the_old_one_is_preparing(old: World) -> None:
    claim = old.claim("c", 1, device=partition(1, 2))
    old.adapter.may_answer.clear()
    asked = asyncio.create_task(old.kubelet.prepare(claim))
    await old.until(lambda: old.adapter.working)
    assert (old.states(), old.adapter.partitions) == ({"c": "PrepareStarted"}, {PLACE})
    starting = asyncio.create_task(old.start("new"))
    await old.until(lambda: old.adapter.readers == 2)
    assert old.states() == {"c": "PrepareStarted"}
    old.adapter.may_answer.set()
    assert (await asked)["uid-c"].error == ""
    await starting
    assert (old.states(), old.adapter.partitions) == ({"c": "PrepareCompleted"}, {PLACE})


async def test_a_call_in_flight_when_the_old_plugin_is_told_to_end_is_answered(old: World) -> None:
    claim = old.claim("c", 1, device=partition(1, 2))
    old.adapter.may_answer.clear()
    asked = asyncio.create_task(old.kubelet.prepare(claim))
    await old.until(lambda: old.adapter.working)
    ending = asyncio.create_task(old.end("old"))
    for _ in range(100):
        await asyncio.sleep(0)
    # The kubelet would cut the call with the registration.
    assert list(old.registry_dir.iterdir())
    # An adapter that is told to end at the same moment serves on while it has a reader.
    assert old.adapter.readers == 1
    old.adapter.may_answer.set()
    assert (await asked)["uid-c"].error == ""
    await ending
    assert old.states() == {"c": "PrepareCompleted"}


async def test_a_call_that_outlasts_the_old_plugin_is_finished_by_the_new_one(
    old: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registering, "GRACE_SECONDS", 0.05)
    await old.end("old")
    await old.start("old")
    claim = old.claim("c", 1, device=partition(1, 2))
    old.adapter.may_answer.clear()
    asked = asyncio.create_task(old.kubelet.prepare(claim))
    await old.until(lambda: old.adapter.working)
    starting = asyncio.create_task(old.start("new"))
    await old.until(lambda: old.adapter.readers == 2)
    await old.end("old")
    with pytest.raises(grpc.aio.AioRpcError):
        await asked
    await starting
    old.adapter.may_answer.set()
    assert (await old.kubelet.prepare(claim))["uid-c"].error == ""
    assert (old.states(), old.adapter.partitions) == ({"c": "PrepareCompleted"}, {PLACE})
    assert await old.kubelet.unprepare(claim) == {"uid-c": ""}
    assert (old.states(), old.adapter.partitions) == ({}, set())


async def test_the_names_of_both_are_their_own(old: World) -> None:
    await old.start("new")
    assert sorted(path.name for path in old.registry_dir.iterdir()) == [
        "gpu.deckhouse.io-new-reg.sock",
        "gpu.deckhouse.io-old-reg.sock",
    ]
    assert sorted(path.name for path in old.data_dir.glob("*.sock")) == [
        "dra-new.sock",
        "dra-old.sock",
    ]


async def test_a_new_plugin_waits_for_as_long_as_the_old_one_works(
    old: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ledger, "LOCK_SECONDS", 0.05)
    async with locks.held(old.data_dir / "prepare.lock", deadline_seconds=1):
        starting = asyncio.create_task(old.start("new"))
        await old.until(lambda: "Cannot clean up yet" in caplog.text)
        assert not starting.done()
    await starting
    claim = old.claim("c", 1, device=partition(1, 2))
    assert (await old.kubelet.prepare(claim))["uid-c"].error == ""
