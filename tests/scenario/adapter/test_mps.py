# SPDX-License-Identifier: Apache-2.0
"""Shares by MPS on the mock of a host: the adapter, mps-control, the daemon, and workloads.

Workloads are given what a container would be given, read from the adapter's own answer; what
became of the card is read from the mock's state. Each of the processes is killed in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from grpc import aio
from tests.contract.vendors import benches
from tests.native import hosts
from tests.scenario.adapter import test_kills
from tests.support import expect, tracing
from tests.support.mps import Keeper

from gpudeck.adapter import main
from gpudeck.adapter.settings import Settings
from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.adapter.v1 import adapter_pb2_grpc

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes and mounts")

GIB = 1 << 30
PREFIX = "/mnt/host"
EXCLUSIVE = 3


def share(name: str, address: str, *, memory: int = 8 * GIB, cores: int = 25) -> pb.ClaimRequest:
    wanted = pb.ShareRequest(
        share_id=name,
        memory_bytes=memory,
        cores=cores,
        strategy=pb.SHARING_STRATEGY_MPS,
        enforce_memory=True,
    )
    device = pb.DeviceRequest(name=name, pci_address=address, share=wanted)
    return pb.ClaimRequest(claim=pb.ClaimReference(uid=name), devices=[device])


def whole(address: str) -> pb.ClaimRequest:
    device = pb.DeviceRequest(name="gpu", pci_address=address)
    return pb.ClaimRequest(claim=pb.ClaimReference(uid="whole"), devices=[device])


class World:
    """An adapter that can be killed and started again, over a host whose daemons are kept."""

    def __init__(self, folder: Path, bench: benches.NvidiaBench) -> None:
        self.bench, self.keeper = bench, Keeper(bench.tree)
        self.address = bench.machine.cards[0].address
        self._socket = folder / "adapter.sock"
        # The path of a socket has 107 bytes at most, and that of a test's folder is long.
        self._short = Path(tempfile.mkdtemp(prefix="mps"))
        (self._short / "root").symlink_to(bench.tree)

    @contextlib.asynccontextmanager
    async def adapter(self) -> AsyncIterator[adapter_pb2_grpc.AdapterStub]:
        """The product's adapter runs inside the block; the card offers MPS at its start."""
        settings = Settings(
            vendor="nvidia",
            socket=self._socket,
            host_root=self.bench.tree,
            host_root_on_node=PREFIX,
            poll_seconds=0.2,
        )
        task = asyncio.create_task(main.run(settings))
        try:
            async with aio.insecure_channel(f"unix:{self._socket}") as channel:
                stub = adapter_pb2_grpc.AdapterStub(channel)  # type: ignore[no-untyped-call]
                yield stub
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def card(self) -> dict[str, object]:
        """The first card in the mock's own state."""
        words = [str(self.bench.artifacts / "simctl"), "show", str(self.bench.folder), "--json"]
        shown = subprocess.run(words, check=True, capture_output=True)
        state: dict[str, object] = json.loads(shown.stdout)["cards"][0]["state"]
        return state

    async def mode(self) -> object:
        return self.card()["compute-mode"]

    def burn(self, given: pb.PreparedClaim | None, mebibytes: int) -> subprocess.Popen[str]:
        """A workload with what the claim gives to its container; None for no claim at all."""
        environment = dict(os.environ, LD_LIBRARY_PATH=str(self.bench.artifacts))
        environment["CUDA_VISIBLE_DEVICES"] = "0"
        if given is not None:
            edits = given.devices[0].edits
            environment |= dict(word.partition("=")[::2] for word in edits.env)
            inside = {each.container_path: each.host_path for each in edits.mounts}
            pipe = inside[environment["CUDA_MPS_PIPE_DIRECTORY"]].removeprefix(PREFIX)
            environment["CUDA_MPS_PIPE_DIRECTORY"] = f"{self._short}/root{pipe}"
        return subprocess.Popen(
            [str(self.bench.artifacts / "gpu-burn"), "-m", str(mebibytes), "60"],
            env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def close(self) -> None:
        self.keeper.kill()
        (self._short / "root").unlink()
        self._short.rmdir()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    bench = benches.make_partitionable("nvidia-on-mock", tmp_path, monkeypatch)
    assert isinstance(bench, benches.NvidiaBench)
    made = World(tmp_path, bench)
    made.keeper.start()
    yield made
    made.close()


async def prepare(stub: adapter_pb2_grpc.AdapterStub, asked: pb.ClaimRequest) -> pb.PreparedClaim:
    request = pb.PrepareRequest(claims=[asked])
    answer = await stub.Prepare(request, wait_for_ready=True, timeout=10)
    given: pb.PreparedClaim = answer.claims[0]
    return given


async def prepared(stub: adapter_pb2_grpc.AdapterStub, asked: pb.ClaimRequest) -> pb.PreparedClaim:
    """Prepare until it succeeds, as the kubelet does."""
    found: list[pb.PreparedClaim] = []

    async def error() -> str:
        with contextlib.suppress(aio.AioRpcError):
            found.append(await prepare(stub, asked))
        return found[-1].error.message if found else "no answer"

    await expect.eventually(error, "", seconds=30)
    return found[-1]


async def unprepare(stub: adapter_pb2_grpc.AdapterStub, asked: pb.ClaimRequest) -> str:
    request = pb.UnprepareRequest(claims=[asked])
    answer = await stub.Unprepare(request, wait_for_ready=True, timeout=10)
    return str(answer.claims[0].error.message)


async def unprepared(stub: adapter_pb2_grpc.AdapterStub, asked: pb.ClaimRequest) -> None:
    """Unprepare until it succeeds."""

    async def error() -> str:
        try:
            return await unprepare(stub, asked)
        except aio.AioRpcError:
            return "no answer"

    await expect.eventually(error, "", seconds=30)


async def test_shares_work_at_the_same_time_each_within_its_amount(world: World) -> None:
    async with world.adapter() as stub:
        one = await prepared(stub, share("one", world.address))
        two = await prepared(stub, share("two", world.address, memory=4 * GIB, cores=1))
        assert set(two.devices[0].edits.env) == {
            "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M",
        }
        assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25" in one.devices[0].edits.env
        mounts = {each.container_path: each.host_path for each in one.devices[0].edits.mounts}
        folder = f"{PREFIX}/run/gpudeck/mps/0000-1b-00-0"
        assert mounts == {"/tmp/nvidia-mps": f"{folder}/pipe", "/dev/shm": f"{folder}/shm"}
        assert await world.mode() == EXCLUSIVE
        with (
            hosts.ended(world.burn(one, 7168)) as first,
            hosts.ended(world.burn(two, 3072)) as second,
        ):
            hosts.read_until(first, "holding 7168 MiB")
            hosts.read_until(second, "holding 3072 MiB")
            with hosts.ended(world.burn(two, 5000)) as greedy:
                assert greedy.wait(10) == 1
                assert "CUDA_ERROR_OUT_OF_MEMORY" in greedy.communicate()[1]
            with hosts.ended(world.burn(None, 1)) as stranger:
                assert stranger.wait(10) == 1
                assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in stranger.communicate()[1]


async def test_the_card_is_as_before_when_its_last_share_is_given_back(world: World) -> None:
    async with world.adapter() as stub:
        for name in ("one", "two"):
            await prepared(stub, share(name, world.address))
        assert await unprepare(stub, share("one", world.address)) == ""
        assert await world.mode() == EXCLUSIVE
        await world.keeper.ready(world.address)
        assert await unprepare(stub, share("two", world.address)) == ""
        assert await world.mode() == 0
        await prepared(stub, whole(world.address))
        assert world.keeper.daemon(world.address) is None
        with hosts.ended(world.burn(None, 1)) as anybody:
            hosts.read_until(anybody, "holding")


async def test_an_adapter_that_is_killed_disturbs_no_client(world: World) -> None:
    async with world.adapter() as stub:
        one = await prepared(stub, share("one", world.address))
    with hosts.ended(world.burn(one, 1024)) as client:
        hosts.read_until(client, "holding")
        daemon = world.keeper.daemon(world.address)
        async with world.adapter() as stub:
            await prepared(stub, share("one", world.address))
            two = await prepared(stub, share("two", world.address))
            with hosts.ended(world.burn(two, 1024)) as beside:
                hosts.read_until(beside, "holding")
            assert world.keeper.daemon(world.address) == daemon
            assert client.poll() is None
            client.kill()
            for name in ("one", "two"):
                assert await unprepare(stub, share(name, world.address)) == ""
        assert await world.mode() == 0
        await world.keeper.gone(world.address)


async def test_when_the_daemon_dies_its_clients_fail_and_new_ones_work(world: World) -> None:
    async with world.adapter() as stub:
        one = await prepared(stub, share("one", world.address))
        with hosts.ended(world.burn(one, 1024)) as client:
            hosts.read_until(client, "holding")
            first = await world.keeper.ready(world.address)
            os.kill(first, signal.SIGKILL)
            assert client.wait(10) == 1
            assert "CUDA_ERROR_MPS_RPC_FAILURE" in client.communicate()[1]

        async def is_another() -> bool:
            return world.keeper.daemon(world.address) not in (None, first)

        await expect.eventually(is_another, True)
        await world.keeper.ready(world.address)
        # The kubelet starts the container again with the edits that it has.
        with hosts.ended(world.burn(one, 1024)) as again:
            hosts.read_until(again, "holding")


async def test_without_mps_control_shares_wait_and_say_why_and_end_all_the_same(
    world: World,
) -> None:
    async with world.adapter() as stub:
        one = share("one", world.address)
        await prepared(stub, one)
        world.keeper.kill()
        refused = await prepare(stub, one)
        assert refused.error.retryable
        assert refused.error.message == (
            "No gpudeck mps-control runs on the node; see the DaemonSet nvidia-mps-control-daemon."
        )
        assert await unprepare(stub, one) == ""
        assert await world.mode() == 0
        await prepared(stub, whole(world.address))


@pytest.mark.parametrize("family", ["write", "rename", "unlink"])
async def test_whenever_the_library_dies_the_share_joins_and_leaves_in_the_end(
    world: World, family: str
) -> None:
    async with world.adapter() as stub:
        one = share("one", world.address)
        await prepared(stub, one)
        await unprepared(stub, one)
        for number in itertools.count(1):
            try:
                async with tracing.doomed(test_kills.library(), family, number) as joining:
                    await prepare(stub, one)
                await prepared(stub, one)
                assert await world.mode() == EXCLUSIVE
                assert world.keeper.card(world.address).shares() == ("one",)
                async with tracing.doomed(test_kills.library(), family, number) as leaving:
                    await unprepare(stub, one)
            except tracing.CannotTraceError as why:
                pytest.skip(str(why))
            await unprepared(stub, one)
            assert await world.mode() == 0
            assert world.keeper.card(world.address).shares() == ()
            if not joining.struck and not leaving.struck:
                assert number > 1
                return
