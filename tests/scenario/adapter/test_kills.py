# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's library process is killed at its n-th change, for every n, while partitions are made.

The adapter answers with an error that may be tried again, and the next try, in another
library process, must bring the card to where the claim wants it: what is half made is
finished, what is there is not made twice, nothing is left when the claim is gone. Looked at
in the mock's own state.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from grpc import aio
from tests.contract.vendors import benches
from tests.support import tracing

from gpudeck.adapter import main
from gpudeck.adapter.settings import Settings
from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.adapter.v1 import adapter_pb2_grpc

TRIES = 20
CLAIM = pb.ClaimRequest(
    claim=pb.ClaimReference(uid="u"),
    devices=[
        pb.DeviceRequest(
            name=f"mig-{start}",
            pci_address="0000:1b:00.0",
            partition=pb.PartitionRequest(
                profile="1g.10gb", profile_id=19, placement=pb.Placement(start=start, size=1)
            ),
        )
        for start in (0, 3)
    ],
)


class World:
    """The product's adapter over the mock of a host with H100 cards."""

    def __init__(self, bench: benches.NvidiaBench, stub: adapter_pb2_grpc.AdapterStub) -> None:
        self.bench = bench
        self.stub = stub

    async def prepare(self) -> pb.PreparedClaim:
        request = pb.PrepareRequest(claims=[CLAIM])
        answer = await self.stub.Prepare(request, wait_for_ready=True, timeout=30)
        claim: pb.PreparedClaim = answer.claims[0]
        return claim

    async def unprepare(self) -> pb.UnpreparedClaim:
        request = pb.UnprepareRequest(claims=[CLAIM])
        answer = await self.stub.Unprepare(request, wait_for_ready=True, timeout=30)
        claim: pb.UnpreparedClaim = answer.claims[0]
        return claim

    def capabilities(self) -> list[str]:
        """The instances on the first card, as the driver's files show them."""
        folder = self.bench.folder / "proc/driver/nvidia/capabilities/gpu0/mig"
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("access"))


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    bench = benches.make_partitionable("nvidia-on-mock", tmp_path, monkeypatch)
    assert isinstance(bench, benches.NvidiaBench)
    socket = tmp_path / "adapter.sock"
    settings = Settings(vendor="nvidia", socket=socket, host_root=bench.tree, poll_seconds=0.2)
    task = asyncio.create_task(main.run(settings))
    try:
        async with aio.insecure_channel(f"unix:{socket}") as channel:
            stub = adapter_pb2_grpc.AdapterStub(channel)  # type: ignore[no-untyped-call]
            stream = stub.WatchCards(pb.WatchCardsRequest(), wait_for_ready=True, timeout=30)
            await stream.read()
            stream.cancel()
            yield World(bench, stub)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def library() -> int:
    """The library process that this process has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and "gpudeck" in (folder / "comm").read_text():
                return int(folder.name)
    raise AssertionError("no library process runs")


async def until_prepared(world: World) -> pb.PreparedClaim:
    """Ask as the kubelet does: again and again."""
    for _ in range(TRIES):
        prepared = await world.prepare()
        if not prepared.HasField("error"):
            return prepared
        assert prepared.error.retryable, prepared.error.message
    raise AssertionError(prepared.error.message)


async def until_unprepared(world: World) -> None:
    for _ in range(TRIES):
        gone = await world.unprepare()
        if not gone.HasField("error"):
            return
        assert gone.error.retryable, gone.error.message
    raise AssertionError(gone.error.message)


async def test_whenever_the_library_dies_the_card_becomes_what_the_claim_wants(
    world: World,
) -> None:
    for number in itertools.count(1):
        try:
            async with tracing.doomed(library(), "rename", number) as doom:
                await world.prepare()
        except tracing.CannotTraceError as why:
            pytest.skip(str(why))
        prepared = await until_prepared(world)
        assert len({device.uuid for device in prepared.devices}) == 2
        assert len(world.capabilities()) == 4  # A GPU instance and a compute instance each.
        for device in prepared.devices:
            assert len(device.edits.device_nodes) == 3
        await until_unprepared(world)
        assert world.capabilities() == []
        if not doom.struck:
            assert number > 4
            return


async def test_whenever_the_library_dies_what_the_claim_had_goes(world: World) -> None:
    for number in itertools.count(1):
        await until_prepared(world)
        try:
            async with tracing.doomed(library(), "unlink", number) as doom:
                await world.unprepare()
        except tracing.CannotTraceError as why:
            pytest.skip(str(why))
        await until_unprepared(world)
        assert world.capabilities() == []
        if not doom.struck:
            assert number > 4
            return


async def test_a_library_that_dies_by_itself_is_not_passed_over() -> None:
    """Only a machine that does not allow ptrace is."""
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    with pytest.raises(AssertionError, match="has ended before anybody killed it"):
        async with tracing.doomed(process.pid, "rename", 1):
            pass
