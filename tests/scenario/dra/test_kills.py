# SPDX-License-Identifier: Apache-2.0
"""The plugin's process is killed from outside at its n-th system call, for every n.

strace sends SIGKILL when a thread enters its n-th fsync, rename or sendmsg, n from 1 until
a whole life from start to Unprepare has fewer. Whatever n is, the kubelet's calls succeed
in the end, once the plugin was started again, and nothing is left behind. By default only
some n are tried, since each costs two processes; GPUDECK_TEST_KILLS=all tries each.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from tests.scenario.dra.conftest import World
from tests.scenario.dra.standins import device

from gpudeck import settings

GPUDECK = Path(sys.executable).with_name("gpudeck")
ALL = os.environ.get("GPUDECK_TEST_KILLS") == "all"
PATIENCE_SECONDS = 30.0

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


class Plugin:
    """The plugin's process; strace kills its first life at the `number`-th `call`."""

    def __init__(self, world: World, call: str, number: int) -> None:
        self.world = world
        self.lives = 0
        fault = f"inject={call}:signal=KILL:when={number}"
        self._fault = [
            "strace",
            "-D",
            "-f",
            "-qq",
            "-o",
            os.devnull,
            "-e",
            f"trace={call}",
            "-e",
            fault,
        ]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, with the fault the first time, and wait until it is registered or dead."""
        wrapped = self._fault if self.lives == 0 else []
        self.lives += 1
        self._process = await asyncio.create_subprocess_exec(
            *wrapped,
            str(GPUDECK),
            "dra-plugin",
            env={**os.environ, **environment(self.world)},
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.is_alive:
                with contextlib.suppress(grpc.aio.AioRpcError, ValueError):
                    await self.world.kubelet.register()
                    return
                await asyncio.sleep(0.02)

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def insist(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Call as the kubelet does: again after an error, on a new process after a death."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                while not self.is_alive:
                    await self.start()
                if await self._succeeds(call):
                    return
                await asyncio.sleep(0.02)

    async def _succeeds(self, call: Callable[[], Awaitable[Any]]) -> bool:
        try:
            answer = await asyncio.wait_for(call(), 10)
        except (grpc.aio.AioRpcError, TimeoutError):
            return False
        (outcome,) = answer.values()
        return not (outcome if isinstance(outcome, str) else outcome.error)

    async def stop(self) -> None:
        if self._process is not None:
            if self.is_alive:
                self._process.terminate()
            await self._process.wait()
        await self.world.kubelet.close()


def environment(world: World) -> dict[str, str]:
    """The settings of the world's plugin as environment variables."""
    values = world.settings()
    return {
        option.env: str(getattr(values, option.name)) for option in settings.describe(type(values))
    }


@pytest.mark.parametrize(("call", "step"), [("fsync", 2), ("rename", 3), ("sendmsg", 5)])
async def test_a_claim_comes_and_goes_whenever_the_plugin_is_killed(
    stopped: World, call: str, step: int
) -> None:
    for number in itertools.count(1, 1 if ALL else step):
        if await lives(stopped, call, number) == 1:
            assert number > 5
            return


async def lives(world: World, call: str, number: int) -> int:
    """Go through a claim's whole life; return how many lives of the plugin it took."""
    claim, other = world.claim("c", 1), world.claim("other", 1)
    plugin = Plugin(world, call, number)
    try:
        await plugin.start()
        await plugin.insist(lambda: world.kubelet.prepare(claim))
        assert world.spec("c")["devices"][0]["name"] == f"uid-c-{device(1)}"
        assert world.states() == {"c": "PrepareCompleted"}
        await plugin.insist(lambda: world.kubelet.unprepare(claim))
        assert world.states() == {}
        await plugin.insist(lambda: world.kubelet.prepare(other))
        assert (world.specs(), world.states()) == (["other"], {"other": "PrepareCompleted"})
        await world.published(4)
        await plugin.insist(lambda: world.kubelet.unprepare(other))
        assert (world.specs(), world.states()) == ([], {})
        return plugin.lives
    finally:
        await plugin.stop()
