# SPDX-License-Identifier: Apache-2.0
"""The adapter as a process: killed and started again it says the same."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from grpc import aio

from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.adapter.v1 import adapter_pb2_grpc
from gpudeck.vendors.simulated import machine

GPUDECK = Path(sys.executable).parent / "gpudeck"


@contextlib.contextmanager
def process(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    places = ["--socket", f"{root}/adapter.sock", "--host-root", str(root)]
    started = subprocess.Popen([GPUDECK, "adapter", "simulated", *places, "--poll-seconds", "0.2"])
    try:
        yield started
    finally:
        started.kill()
        started.wait()


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
