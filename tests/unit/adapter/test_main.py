# SPDX-License-Identifier: Apache-2.0
"""The adapter as a process: killed and started again it says the same."""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc import aio

from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.adapter.v1 import adapter_pb2_grpc
from gpudeck.vendors.simulated import machine

GPUDECK = Path(sys.executable).parent / "gpudeck"


@contextlib.contextmanager
def process(root: Path, *, log: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    places = ["--socket", f"{root}/adapter.sock", "--host-root", str(root)]
    words = [GPUDECK, "adapter", "simulated", *places, "--poll-seconds", "0.2"]
    with subprocess.Popen(words, stderr=log) as started:
        try:
            yield started
        finally:
            started.kill()


def wait_for_log(started: subprocess.Popen[bytes], words: bytes) -> None:
    """Read what the process logs up to a line with `words`."""
    assert started.stderr is not None
    assert any(words in line for line in started.stderr)


async def first_snapshot(root: Path) -> pb.Snapshot:
    async with aio.insecure_channel(f"unix:{root}/adapter.sock") as channel:
        stub = adapter_pb2_grpc.AdapterStub(channel)  # type: ignore[no-untyped-call]
        stream = stub.WatchCards(pb.WatchCardsRequest(), wait_for_ready=True, timeout=20)
        answer: pb.WatchCardsResponse = await stream.read()
        return answer.snapshot


def children_of(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()]


def wait_for_end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # It has ended already.
        descriptor = os.pidfd_open(pid)
        try:
            assert select.select([descriptor], [], [], 10)[0]
        finally:
            os.close(descriptor)


async def test_a_killed_adapter_leaves_no_process_and_says_the_same_when_it_is_back(
    tmp_path: Path,
) -> None:
    machine.Bench(tmp_path).write(machine.make(2))
    with process(tmp_path) as adapter:
        before = await first_snapshot(tmp_path)
        below = children_of(adapter.pid)
        assert len(below) == 1
        adapter.send_signal(signal.SIGKILL)
        adapter.wait()
    for pid in below:
        wait_for_end(pid)
    with process(tmp_path):
        after = await first_snapshot(tmp_path)
    assert [card.uuid for card in after.cards] == [card.uuid for card in before.cards]


async def test_sigterm_ends_the_adapter_in_order(tmp_path: Path) -> None:
    machine.Bench(tmp_path).write(machine.make(1))
    with process(tmp_path) as adapter:
        await first_snapshot(tmp_path)
        adapter.send_signal(signal.SIGTERM)
        assert adapter.wait(10) == 0


def making(address: str) -> pb.PrepareRequest:
    """One claim for a partition at the card's first slice."""
    place = pb.PartitionRequest(profile_id=19, placement=pb.Placement(start=0, size=1))
    device = pb.DeviceRequest(name="mig", pci_address=address, partition=place)
    claim = pb.ClaimRequest(claim=pb.ClaimReference(uid="u"), devices=[device])
    return pb.PrepareRequest(claims=[claim])


async def test_a_change_in_work_at_sigterm_comes_to_its_end_and_is_answered(
    tmp_path: Path,
) -> None:
    bench = machine.Bench(tmp_path)
    bench.write(machine.partitionable(1))
    with process(tmp_path, log=subprocess.PIPE) as adapter:
        snapshot = await first_snapshot(tmp_path)
        async with aio.insecure_channel(f"unix:{tmp_path}/adapter.sock") as channel:
            stub = adapter_pb2_grpc.AdapterStub(channel)  # type: ignore[no-untyped-call]
            with bench.locked():
                asked = stub.Prepare(making(snapshot.cards[0].pci_address), timeout=10)
                await asyncio.to_thread(wait_for_log, adapter, b"Changing card")
                adapter.send_signal(signal.SIGTERM)
                with pytest.raises(subprocess.TimeoutExpired):
                    await asyncio.to_thread(adapter.wait, 1.5)
            answer: pb.PrepareResponse = await asked
        assert not answer.claims[0].HasField("error"), answer
        assert await asyncio.to_thread(adapter.wait, 10) == 0
    assert len(bench.read().cards[0].reading.partitions) == 1


async def test_the_adapter_serves_on_after_sigterm_while_somebody_follows_its_cards(
    tmp_path: Path,
) -> None:
    bench = machine.Bench(tmp_path)
    bench.write(machine.partitionable(1))
    with process(tmp_path) as adapter:
        async with aio.insecure_channel(f"unix:{tmp_path}/adapter.sock") as channel:
            stub = adapter_pb2_grpc.AdapterStub(channel)  # type: ignore[no-untyped-call]
            stream = stub.WatchCards(pb.WatchCardsRequest(), wait_for_ready=True, timeout=30)
            first: pb.WatchCardsResponse = await stream.read()
            adapter.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                await asyncio.to_thread(adapter.wait, 1.5)
            address = first.snapshot.cards[0].pci_address
            answer: pb.PrepareResponse = await stub.Prepare(making(address), timeout=10)
            assert not answer.claims[0].HasField("error"), answer
            stream.cancel()
            assert await asyncio.to_thread(adapter.wait, 10) == 0
