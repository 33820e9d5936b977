# SPDX-License-Identifier: Apache-2.0
"""The device plugin's process is killed from outside at its n-th system call, for every n.

The calls are those that leave something behind: fsync, rename, unlink and, in a soak,
sendmsg. Whenever it dies it is started again, as the kubelet does with its container; then
what the node has on disk, what the kubelet is shown and what pods are given must be as if
nothing had been.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc.aio
from tests.scenario.deviceplugin.conftest import PATIENCE_SECONDS, World
from tests.support import apiserver, tracing

from gpudeck import settings
from gpudeck.cdi import plugins

GPUDECK = Path(sys.executable).with_name("gpudeck")
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
CARD = "GPU-00000000-0000-0000-0000-{:012d}"
FAMILIES = ("rename", "fsync", "unlink", *(["sendmsg"] if os.environ.get("GPUDECK_SOAK") else []))

Survives = Callable[["Program", str, int], Awaitable[bool]]
"""Kill at the n-th call of a family, look at the world; True if it had fewer calls."""


class Program:
    """The process on its node. Inside `kept` it is started again whenever it ends."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def launch(self, *before: str) -> asyncio.subprocess.Process:
        """Start it with `before` as the head of its command line."""
        values = self.world.settings()
        env = dict(os.environ)
        for option in settings.describe(type(values)):
            value = getattr(values, option.name)
            env[option.env] = ",".join(value) if isinstance(value, tuple) else str(value)
        self._process = await asyncio.create_subprocess_exec(
            *(*before, str(GPUDECK), "device-plugin"),
            env=env,
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return self._process

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Inside the block, start it again whenever it ends."""

        async def keep() -> None:
            while True:
                if self._process is None:
                    await self.launch()
                elif await self._process.wait() is not None:
                    self._process = None

        keeper = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def end(self) -> None:
        """End it, and wait until the kubelet knows."""
        if self._process is not None:
            tracing.send(self._process, signal.SIGKILL)
            await self._process.wait()
        self._process = None
        endpoints = self.world.kubelet.endpoints
        await self.world.api.until(lambda: not any(each.is_open for each in endpoints.values()))

    async def offers(self, **counts: int) -> None:
        """Wait until the kubelet shows so many."""
        wanted = {f"nvidia.com/{name.replace('_', '.')}": each for name, each in counts.items()}
        kubelet = self.world.kubelet
        await self.world.api.until(
            lambda: {name: kubelet.allocatable(name) for name in wanted} == wanted,
            seconds=PATIENCE_SECONDS,
        )

    async def gives(self, resource: str, device: str) -> None:
        """Have a container given a device, asking again where the connection broke."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError, KeyError):
                    answer = await self.world.kubelet.allocate(resource, device)
                    break
                await asyncio.sleep(0.05)
        (named,) = [each.name.partition("=")[2] for each in answer.cdi_devices]
        assert named in [each["name"] for each in cdi(self.world)["devices"]]


@contextlib.asynccontextmanager
async def node() -> AsyncIterator[Program]:
    """A node of its own with four cards, a kubelet and an API server."""
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        async with apiserver.ApiServer() as api:
            world = World(Path(folder), api)
            await world.kubelet.start()
            program = Program(world)
            try:
                yield program
            finally:
                await program.end()
                await world.kubelet.stop()


def cdi(world: World) -> dict[str, list[dict[str, str]]]:
    """The CDI file of the cards."""
    path = world.folder / "cdi" / plugins.file_name("gpu")
    found: dict[str, list[dict[str, str]]] = json.loads(path.read_text())
    return found


def is_clean(world: World) -> None:
    """Nothing is half written, and what is written is whole."""
    for folder in ("cdi", "data", "plugins"):
        assert not list((world.folder / folder).glob(".*.tmp"))
    assert {each["name"] for each in cdi(world)["devices"]} == set(map(CARD.format, range(4)))
    json.loads((world.folder / "data" / plugins.STATE_FILE).read_text())


async def at_every_call(survives: Survives, families: tuple[str, ...] = FAMILIES) -> None:
    """Try every call of each family, all families at once."""
    await tracing.at_every_call(node, survives, families, at_once=len(families))


async def test_a_config_comes_and_goes_whenever_the_plugin_is_killed() -> None:
    async def survives(program: Program, family: str, number: int) -> bool:
        world = program.world
        async with program.kept():
            await program.offers(gpu=4)
            # Another name each time, so that each time there is something to write.
            world.configure(**{f"shares-{number}": SHARES})
            async with tracing.doomed(program.pid, family, number) as doom:
                world.label(f"shares-{number}")
                await program.offers(gpu=0, gpu_shared=8)
                await program.gives(SHARED, f"{CARD.format(1)}::1")
                world.kubelet.held = {SHARED: [f"{CARD.format(1)}::1"]}
                world.label(None)
                await program.offers(gpu=3)
                await world.api.until(lambda: is_empty_chosen(world), seconds=PATIENCE_SECONDS)
        await program.end()
        world.kubelet.held = {}
        async with program.kept():
            await program.offers(gpu=4)
            is_clean(world)
            await program.gives(GPU, CARD.format(1))
        await program.end()
        return not doom.struck

    await at_every_call(survives)


async def test_a_start_is_finished_by_the_next_whenever_it_is_killed() -> None:
    async def survives(program: Program, family: str, number: int) -> bool:
        world = program.world
        for path in [*world.folder.glob("cdi/*"), *world.folder.glob("data/*")]:
            path.unlink()
        process = await program.launch("/bin/sh", "-c", 'read -r line; exec "$0" "$@"')
        async with tracing.doomed(process.pid, family, number) as doom:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            started = asyncio.create_task(program.offers(gpu=4))
            ended = asyncio.create_task(process.wait())
            await asyncio.wait([started, ended], return_when=asyncio.FIRST_COMPLETED)
            saved = world.folder / "data" / plugins.STATE_FILE
            if not ended.done():
                await world.api.until(saved.exists, seconds=PATIENCE_SECONDS)
            for task in (started, ended):
                task.cancel()
            await asyncio.gather(started, ended, return_exceptions=True)
        await program.end()
        async with program.kept():
            await program.offers(gpu=4)
            await world.api.until(saved.exists, seconds=PATIENCE_SECONDS)
            is_clean(world)
            await program.gives(GPU, CARD.format(1))
        await program.end()
        return not doom.struck

    await at_every_call(survives)


SHARES = "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}"


def is_empty_chosen(world: World) -> bool:
    """Whether the empty config is kept for the next start."""
    state = json.loads((world.folder / "data" / plugins.STATE_FILE).read_text())
    return not state["text"]
