# SPDX-License-Identifier: Apache-2.0
"""The adapter as a process: killed and started again it says the same."""

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc import aio
from tests.support import expect

from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.adapter.v1 import adapter_pb2_grpc
from gpudeck.vendors import contract
from gpudeck.vendors.simulated import machine

GPUDECK = Path(sys.executable).parent / "gpudeck"


@contextlib.contextmanager
def process(root: Path, *more: str, log: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    places = ["--socket", f"{root}/adapter.sock", "--host-root", str(root)]
    words = [GPUDECK, "adapter", "simulated", *places, "--poll-seconds", "0.2", *more]
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


async def verdict_of_first(root: Path, wanted: str) -> pb.Health:
    """The verdict about the first card once its reason is `wanted`."""
    async with aio.insecure_channel(f"unix:{root}/adapter.sock") as channel:
        stub = adapter_pb2_grpc.AdapterStub(channel)  # type: ignore[no-untyped-call]
        stream = stub.WatchCards(pb.WatchCardsRequest(), wait_for_ready=True, timeout=20)
        while True:
            answer: pb.WatchCardsResponse = await stream.read()
            for card in answer.snapshot.cards[:1]:
                if card.health.reason == wanted:
                    return card.health


async def test_a_killed_adapter_gives_the_same_reason_when_it_is_back(tmp_path: Path) -> None:
    bench = machine.Bench(tmp_path)
    bench.write(machine.make(2))
    raised = contract.Fault(reason="HardwareXid", message="The driver raised Xid 79.")
    asked = contract.Fault(reason="RecoveryActionRequired", message="The driver asks for a reset.")
    kept = tmp_path / "run/gpudeck/raised-simulated.json"
    with process(tmp_path) as adapter:
        await verdict_of_first(tmp_path, "Healthy")
        bench.raise_event(0, 79, raised)
        before = await verdict_of_first(tmp_path, "HardwareXid")
        bench.change_reading(0, faults=(asked,), recovery=contract.Recovery.NEEDED)
        await expect.eventually(lambda: _is_there(kept), True)
        adapter.send_signal(signal.SIGKILL)
        adapter.wait()
    with process(tmp_path):
        snapshot = await first_snapshot(tmp_path)
        assert snapshot.cards[0].health.reason == "HardwareXid"
        assert snapshot.cards[0].health.message == raised.message
        assert snapshot.cards[0].health.since_unix_seconds == before.since_unix_seconds
        bench.change_reading(0, faults=(), recovery=contract.Recovery.NONE)
        await verdict_of_first(tmp_path, "Healthy")
        await expect.eventually(lambda: _is_empty(kept), True)
    with process(tmp_path):
        assert (await first_snapshot(tmp_path)).cards[0].health.reason == "Healthy"


async def test_what_was_raised_before_a_reboot_counts_no_more(tmp_path: Path) -> None:
    machine.Bench(tmp_path).write(machine.make(1))
    folder = tmp_path / "run/gpudeck"
    folder.mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("now\n")
    address = machine.make(1).cards[0].site.address
    fault = {"reason": "HardwareXid", "message": "Xid 79."}
    event = {"address": address, "xid": 79, "fault": fault}
    for boot, reason in (("before", "Healthy"), ("now", "HardwareXid")):
        content = {
            "version": "v2",
            "boot_id": boot,
            "cards": {address: {"events": [event], "since": 1}},
        }
        (folder / "raised-simulated.json").write_text(json.dumps(content))
        with process(tmp_path):
            assert (await first_snapshot(tmp_path)).cards[0].health.reason == reason
    (folder / "raised-simulated.json").write_text("{")
    with process(tmp_path):
        assert (await first_snapshot(tmp_path)).cards[0].health.reason == "Healthy"


async def test_an_xid_that_is_passed_over_is_no_verdict_in_dra_mode_either(tmp_path: Path) -> None:
    bench = machine.Bench(tmp_path)
    bench.write(machine.make(2))
    fault = contract.Fault(reason="HardwareXid", message="The driver raised an Xid.")
    with process(tmp_path, "--disable-health-checks=48,62"):
        await verdict_of_first(tmp_path, "Healthy")
        bench.raise_event(0, 48, fault)
        bench.raise_event(0, 95, fault)
        health = await verdict_of_first(tmp_path, "HardwareXid")
    assert health.xid == 95
    with process(tmp_path, "--disable-health-checks=48,62,95"):
        assert (await first_snapshot(tmp_path)).cards[0].health.reason == "Healthy"


async def _is_there(path: Path) -> bool:
    return path.exists()


async def _is_empty(path: Path) -> bool:
    return not json.loads(path.read_text())["cards"]


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
