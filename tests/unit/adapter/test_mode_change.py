# SPDX-License-Identifier: Apache-2.0
"""SetPartitioning over the protocol, on simulated cards whose mode changes by a reset."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from grpc import aio
from tests.support import expect
from tests.unit.adapter.test_partitions import FIRST, SECOND, Mode, Served, claim, part, whole
from tests.unit.adapter.test_partitions import serving as serving_parts

from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.vendors import contract


async def turn(served: Served, *, enabled: bool, address: str = FIRST) -> pb.Error:
    """Ask for the mode; the error, empty for none."""
    request = pb.SetPartitioningRequest(pci_address=address, enabled=enabled)
    answer: pb.SetPartitioningResponse = await served.stub.SetPartitioning(request, timeout=20)
    return answer.error


async def card(served: Served, address: str = FIRST) -> pb.Card:
    (found,) = [each for each in (await served.snapshot()).cards if each.pci_address == address]
    return found


async def test_the_snapshot_after_the_answer_has_the_mode(tmp_path: Path) -> None:
    async with serving_parts(tmp_path, dynamic=False) as served:
        assert (await turn(served, enabled=True)).reason == ""
        told = (await card(served)).partitioning
        assert (told.mode, told.pending) == (pb.PARTITIONING_MODE_ENABLED,) * 2
        assert (await card(served, SECOND)).partitioning.mode == pb.PARTITIONING_MODE_DISABLED
        (prepared,) = await served.prepare(claim("u", part(0)))
        assert not prepared.HasField("error")


async def test_a_refusal_names_what_is_in_the_way_and_changes_nothing(tmp_path: Path) -> None:
    async with serving_parts(tmp_path, dynamic=False) as served:
        served.bench.change_card(0, used=True)
        error = await turn(served, enabled=True)
        assert (error.reason, error.retryable) == ("CardInUse", True)
        assert FIRST in error.message
        assert served.reading().mode is Mode.DISABLED


async def test_a_reset_that_fails_leaves_the_wish_pending(tmp_path: Path) -> None:
    async with serving_parts(tmp_path, dynamic=False) as served:
        fault = contract.Fault(reason="ResetFailed", message="The card does not come back.")
        served.bench.change_card(0, reset_fails=fault)
        assert (await turn(served, enabled=True)).reason == "ResetFailed"
        told = (await card(served)).partitioning
        assert told.mode == pb.PARTITIONING_MODE_DISABLED
        assert told.pending == pb.PARTITIONING_MODE_ENABLED


async def test_a_card_whose_mode_is_being_changed_is_given_to_nobody(tmp_path: Path) -> None:
    async with serving_parts(tmp_path, dynamic=False) as served:
        served.bench.change_card(0, hangs=True)
        changing = asyncio.create_task(turn(served, enabled=True))
        while True:
            (refused,) = await served.prepare(claim("u", whole()))
            if refused.HasField("error") and refused.error.reason == "CardChanging":
                break
        assert refused.error.retryable
        (other,) = await served.prepare(claim("v", whole(SECOND)))
        assert not other.HasField("error")
        served.bench.change_card(0, hangs=False)
        await changing


async def test_what_the_library_is_needed_for_is_refused_at_once_while_a_card_is_reset(
    tmp_path: Path,
) -> None:
    """The reset needs the library's process ended, so a call would only wait for its deadline."""
    async with serving_parts(tmp_path, dynamic=False) as served:
        assert (await turn(served, enabled=True, address=SECOND)).reason == ""
        held = claim("held", part(0, address=SECOND))
        (prepared,) = await served.prepare(held)
        assert not prepared.HasField("error")
        served.bench.change_card(0, reset_hangs=True)
        changing = asyncio.create_task(turn(served, enabled=True))
        await expect.eventually(lambda: _pending(served), Mode.ENABLED)
        async with asyncio.timeout(5):
            (refused,) = await served.prepare(claim("u", part(1, address=SECOND)))
            (kept,) = await served.unprepare(held)
        for error in (refused.error, kept.error):
            assert (error.reason, error.retryable) == ("CardChanging", True)
            assert FIRST in error.message
        served.bench.change_card(0, reset_hangs=False)
        assert (await changing).reason == ""
        (removed,) = await served.unprepare(held)
        assert not removed.HasField("error")
        assert served.places(1) == []


async def _pending(served: Served) -> Mode:
    return served.reading().pending_mode


async def test_a_change_goes_on_when_its_caller_gives_up(tmp_path: Path) -> None:
    async with serving_parts(tmp_path, dynamic=False) as served:
        served.bench.change_card(0, hangs=True)
        request = pb.SetPartitioningRequest(pci_address=FIRST, enabled=True)
        with pytest.raises(aio.AioRpcError) as caught:
            await served.stub.SetPartitioning(request, timeout=0.3)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        served.bench.change_card(0, hangs=False)
        assert (await turn(served, enabled=True)).reason == ""
        assert served.reading().mode is Mode.ENABLED
