# SPDX-License-Identifier: Apache-2.0
"""The plugin's process is killed from outside at its n-th system call, for every n.

The calls are those that leave something behind: fsync, rename, unlink, sendmsg and their
kin. n goes from 1 until a whole Prepare and Unprepare, or a whole start on what a killed
plugin left, has fewer. Whatever n is, the plugin is started again, the kubelet repeats
the call that broke as it does on a node, and then the world must be as it should.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from tests.scenario.dra.conftest import World
from tests.scenario.dra.standins import device, partition, partitionable
from tests.support import apiserver, tracing

from gpudeck import settings
from gpudeck.cdi import files, rendering
from gpudeck.dra import allocations, checkpoint, exposing

Survives = Callable[["Plugin", str, int], Awaitable[bool]]
"""Kill at the n-th call of a family, look at the world; True if it had fewer calls."""

GPUDECK = Path(sys.executable).with_name("gpudeck")
PATIENCE_SECONDS = 30.0
RESIDENT = "resident"
"""A claim that is prepared before the first kill and must not be touched by any."""
PLACE = ("0000:11:00.0", 2, 2)
"""Of `partition(1, 2)`: PCI address, start and size."""
AT_ONCE = 3
"""Nodes that a test has at a time."""
QUIET = (3, 0.03, 1_000_000)
"""A process is idle when it used less than so many ns in each of three periods of 30 ms."""

THREADS = """
import os, threading
def work(name, file):
    for _ in range(2):
        os.fsync(file)
        print(name, flush=True)
file = os.memfd_create("x")
input()
for name in range(3):
    thread = threading.Thread(target=work, args=(name, file))
    thread.start()
    thread.join()
"""


class Plugin:
    """The plugin's process on its node: whoever needs it starts it again when it is dead."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def launch(self, *before: str) -> None:
        """Start the process with `before` as the head of its command line."""
        self._process = await asyncio.create_subprocess_exec(
            *(*before, str(GPUDECK), "dra-plugin"),
            env={**os.environ, **environment(self.world)},
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def start(self) -> None:
        """Start it, unless it runs, and register it as the kubelet does."""
        if not self.is_alive:
            await self.launch()
            await self.registered()
            assert self.is_alive, "the plugin ended at its start"

    async def start_doomed(self, family: str, number: int) -> bool:
        """Start it and kill it at the `number`-th call since its exec; False if it had fewer."""
        await self.launch_waiting()
        async with self.doomed(family, number) as doom:
            self.begin()
            await self.registered()
        return doom.struck

    async def launch_waiting(self) -> None:
        """Start the process so that it is its own only after `begin`."""
        await self.launch("/bin/sh", "-c", 'read -r line; exec "$0" "$@"')

    def begin(self) -> None:
        """Let the process be the plugin."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    @contextlib.asynccontextmanager
    async def doomed(self, family: str, number: int) -> AsyncIterator[tracing.Doom]:
        """Inside the block, the process that runs now is killed at its `number`-th call."""
        process = self._process
        assert process is not None
        async with tracing.doomed(process.pid, family, number) as doom:
            yield doom
        if doom.struck:
            await process.wait()

    async def registered(self) -> None:
        """Wait until the kubelet has registered it, or until it is dead."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.is_alive:
                with contextlib.suppress(grpc.aio.AioRpcError, ValueError):
                    await self.world.kubelet.register()
                    return
                await asyncio.sleep(0.01)

    async def idle(self) -> None:
        """Wait until it is started and has nothing to do, so that what follows is the call's."""
        await self.start()
        periods, seconds, most = QUIET
        quiet, last = 0, self._used()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while quiet < periods:
                await asyncio.sleep(seconds)
                now = self._used()
                quiet, last = (quiet + 1 if now - last < most else 0), now

    def _used(self) -> int:
        """Nanoseconds that its threads have run."""
        stats = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[0]) for each in stats)

    async def insist(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call as the kubelet does: again when the connection broke or the adapter is not there.

        Returns the answer for the one claim.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                await self.start()
                with contextlib.suppress(grpc.aio.AioRpcError):
                    (answer,) = (await call()).values()
                    error = answer if isinstance(answer, str) else answer.error
                    if not error.startswith("AdapterUnavailable: "):
                        return answer
                await asyncio.sleep(0.01)

    async def prepare(self, claim: dict[str, Any]) -> Any:
        return await self.insist(lambda: self.world.kubelet.prepare(claim))

    async def unprepare(self, claim: dict[str, Any]) -> Any:
        return await self.insist(lambda: self.world.kubelet.unprepare(claim))

    async def kill(self) -> None:
        """End it at once, wherever it is; its sockets stay behind."""
        if self._process is not None:
            tracing.send(self._process, signal.SIGKILL)
            await self._process.wait()
        await self.world.kubelet.close()


@contextlib.asynccontextmanager
async def node() -> AsyncIterator[Plugin]:
    """A node of its own with four cards, one of them held by the resident claim throughout."""
    with tempfile.TemporaryDirectory(prefix="dra-") as folder:
        async with apiserver.ApiServer() as api:
            world = World(Path(folder), api)
            world.adapter.show(map(partitionable, range(4)))
            await world.adapter.start()
            plugin = Plugin(world)
            resident = world.claim(RESIDENT, 3)
            try:
                assert (await plugin.prepare(resident)).error == ""
                yield plugin
            finally:
                await plugin.kill()
                await world.adapter.stop()


def environment(world: World) -> dict[str, str]:
    """The settings of the world's plugin as environment variables."""
    values = world.settings()
    return {
        option.env: str(getattr(values, option.name)) for option in settings.describe(type(values))
    }


async def at_every_call(survives: Survives, *families: str) -> None:
    """Try every call of each family, a few families at a time."""
    await tracing.at_every_call(node, survives, families, at_once=AT_ONCE)


async def test_calls_of_all_threads_of_a_process_count_together() -> None:
    """Each of three threads makes two calls; the kill comes instead of the fourth call."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", THREADS),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with tracing.doomed(process.pid, "fsync", 4) as doom:
            written, _ = await process.communicate(b"\n")
    except tracing.CannotTraceError as error:
        process.kill()
        await process.communicate()
        pytest.skip(str(error))
    assert (doom.struck, written.split()) == (True, [b"0", b"0", b"1"])
    assert process.returncode == -signal.SIGKILL


async def test_a_claim_comes_and_goes_whenever_the_plugin_is_killed() -> None:
    async def survives(plugin: Plugin, family: str, number: int) -> bool:
        claim, other = (plugin.world.claim(f"{each}{number}", 1) for each in ("claim", "other"))
        await plugin.idle()
        traced = plugin.pid
        async with plugin.doomed(family, number) as doom:
            await comes(plugin, claim)
            if plugin.pid != traced:
                await is_refused(plugin, other, claim)
            await goes(plugin, claim)
        await comes(plugin, other)
        await goes(plugin, other)
        return not doom.struck

    more = ["write"] if os.environ.get("GPUDECK_SOAK") else []
    await at_every_call(survives, *more, "sendmsg", "rename", "fsync", "unlink")


async def test_a_partition_comes_and_goes_whenever_the_plugin_is_killed() -> None:
    async def survives(plugin: Plugin, family: str, number: int) -> bool:
        world = plugin.world
        claim = world.claim(f"claim{number}", 1, device=partition(1, 2))
        await plugin.idle()
        async with plugin.doomed(family, number) as doom:
            await comes(plugin, claim)
            assert world.adapter.partitions == {PLACE}
            assert await plugin.unprepare(claim) == ""
        await plugin.start()
        await settled(plugin)
        has_nothing_but(world)
        assert world.adapter.partitions == set()
        return not doom.struck

    await at_every_call(survives, "sendmsg", "rename", "fsync", "unlink")


async def test_a_partition_is_not_left_when_nobody_asks_again_after_a_kill() -> None:
    async def survives(plugin: Plugin, family: str, number: int) -> bool:
        world, name = plugin.world, f"claim{number}"
        claim = world.claim(name, 1, device=partition(1, 2))
        await plugin.idle()
        async with plugin.doomed(family, number) as doom:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await world.kubelet.prepare(claim)
        await plugin.start()
        await settled(plugin)
        is_there = name in world.states()
        has_nothing_but(world, *([name] if is_there else []))
        assert world.adapter.partitions == ({PLACE} if is_there else set())
        await goes(plugin, claim)
        assert world.adapter.partitions == set()
        return not doom.struck

    await at_every_call(survives, "sendmsg", "rename")


async def test_a_start_on_leftovers_is_finished_by_the_next_whenever_it_is_killed() -> None:
    async def survives(plugin: Plugin, family: str, number: int) -> bool:
        kept, begun, other = (
            plugin.world.claim(f"{name}{number}", card)
            for name, card in (("kept", 1), ("begun", 2), ("other", 1))
        )
        await comes(plugin, kept)
        await plugin.kill()
        leave_behind(plugin.world, begun)
        struck = await plugin.start_doomed(family, number)
        await plugin.start()
        told = is_prepared(plugin.world, kept)
        await is_refused(plugin, other, kept)
        assert ids(await plugin.prepare(kept)) == told
        await goes(plugin, kept)
        await comes(plugin, begun)
        await goes(plugin, begun)
        return not struck

    await at_every_call(survives, "unlink", "rename", "fsync")


async def test_a_damaged_checkpoint_is_replaced_whenever_the_start_is_killed() -> None:
    async def survives(plugin: Plugin, family: str, number: int) -> bool:
        kept, other = (plugin.world.claim(f"{name}{number}", 1) for name in ("kept", "other"))
        await comes(plugin, kept)
        await plugin.kill()
        plugin.world.checkpoint.write_bytes(b'{"version":"v1","che')
        struck = await plugin.start_doomed(family, number)
        await plugin.start()
        (aside,) = plugin.world.data_dir.glob("checkpoint.corrupt-*")
        aside.unlink()
        await is_refused(plugin, other, kept)
        plugin.world.forget_claim(f"other{number}")
        assert (await plugin.prepare(plugin.world.claim(RESIDENT, 3))).error == ""
        await comes(plugin, kept)
        await goes(plugin, kept)
        return not struck

    await at_every_call(survives, "rename")


async def comes(plugin: Plugin, claim: dict[str, Any]) -> None:
    """Prepare succeeds, and what it answers is what the node has."""
    answer = await plugin.prepare(claim)
    assert answer.error == ""
    assert ids(answer) == is_prepared(plugin.world, claim)


async def settled(plugin: Plugin) -> None:
    """Wait until the plugin has undone what was half done, as it does without any call."""
    await plugin.world.until(lambda: set(plugin.world.states().values()) == {"PrepareCompleted"})


async def is_refused(plugin: Plugin, claim: dict[str, Any], holder: dict[str, Any]) -> None:
    """Prepare is refused because of the holder, and changes nothing."""
    name = holder["metadata"]["name"]
    error = (await plugin.prepare(claim)).error
    assert error.startswith(f"DeviceHeld: device {device(1)} is held by claim t/{name} ")
    await plugin.start()
    assert plugin.world.specs() == sorted([name, RESIDENT])


async def goes(plugin: Plugin, claim: dict[str, Any]) -> None:
    """Unprepare succeeds and leaves nothing."""
    assert await plugin.unprepare(claim) == ""
    has_nothing_but(plugin.world)


def is_prepared(world: World, claim: dict[str, Any]) -> list[str]:
    """The node has this claim and nothing else; return the ids of its CDI devices."""
    name = claim["metadata"]["name"]
    has_nothing_but(world, name)
    return [
        f"{spec['kind']}={each['name']}"
        for spec in (world.spec(name), world.metadata_spec(name))
        for each in spec["devices"]
    ]


def has_nothing_but(world: World, *claims: str) -> None:
    """The resident and these claims are prepared; of no other there is any file or entry."""
    held = {RESIDENT, *claims}
    assert world.states() == dict.fromkeys(held, "PrepareCompleted")
    assert names(world) == {name for each in held for name in files_of(each)}


def files_of(claim: str) -> list[str]:
    """Its two CDI specs, and what its containers are told of its one request."""
    return [
        f"k8s.gpu.deckhouse.io-claim_uid-{claim}.json",
        f"gpu.deckhouse.io-metadata_uid-{claim}.json",
        f"uid-{claim}_r0.json",
    ]


def ids(answer: Any) -> list[str]:
    """The CDI devices that the kubelet was told."""
    return [each for given in answer.devices for each in given.cdi_device_ids]


def names(world: World) -> set[str]:
    """Every file of the plugin beside those that it has without any claim."""
    found = {
        path.name
        for folder in (world.data_dir, world.registry_dir, world.cdi_root)
        for path in folder.rglob("*")
        if path.suffix != ".lock" and not path.is_dir()
    }
    return found - {"checkpoint.json", "dra.sock", "gpu.deckhouse.io-reg.sock"}


def leave_behind(world: World, begun: dict[str, Any]) -> None:
    """What plugins leave that were killed in the middle of Prepare, of a write, and of an update.

    A claim that is only begun, the files of one that nobody knows, files that were not
    renamed yet, and the socket of another pod; its own sockets are left by the kill.
    """
    content = checkpoint.decode(world.checkpoint.read_bytes())
    uid = begun["metadata"]["uid"]
    held = allocations.HeldDevice(name=device(2), pool="node-0", requests=["r0"])
    content.claims[uid] = checkpoint.Entry(
        state=checkpoint.State.STARTED,
        namespace="t",
        name=begun["metadata"]["name"],
        devices=[held],
    )
    world.checkpoint.write_bytes(checkpoint.encode(content))
    files.Folder(world.cdi_root).write("uid-orphan", rendering.render("uid-orphan", {}))
    orphan = checkpoint.Entry(
        state=checkpoint.State.COMPLETED, devices=[held], metadata=checkpoint.Metadata()
    )
    exposing.Exposure(world.data_dir, world.cdi_root).write(
        allocations.Reference("uid-orphan", "t", "orphan"), orphan
    )
    for folder, name in (
        (world.data_dir, "checkpoint.json"),
        (world.data_dir / exposing.FOLDER, "uid-x_r0.json"),
        (world.cdi_root, "k8s.gpu.deckhouse.io-claim_uid-x.json"),
        (world.cdi_root, "gpu.deckhouse.io-metadata_uid-x.json"),
    ):
        (folder / f".{name}.0123456789ab.tmp").write_bytes(b"{")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(world.registry_dir / "gpu.deckhouse.io-gone-reg.sock"))
