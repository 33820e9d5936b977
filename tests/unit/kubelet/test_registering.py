# SPDX-License-Identifier: Apache-2.0
"""Sockets over the life of a plugin."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from gpudeck import sockets
from gpudeck.kubelet import registering, services
from gpudeck.kubelet.wire import dra_pb2


class Idle:
    """A plugin that nobody calls."""

    async def prepare(self, request: Any, context: Any) -> Any:
        raise AssertionError

    async def unprepare(self, request: Any, context: Any) -> Any:
        raise AssertionError

    async def health(self, request: Any, context: Any) -> AsyncIterator[Any]:
        raise AssertionError
        yield


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="reg-") as path:
        yield Path(path)


def endpoint(folder: Path, pod_uid: str = "") -> registering.Endpoint:
    return registering.Endpoint("gpu.example.com", folder, folder, pod_uid)


def serve(folder: Path, pod_uid: str = "") -> Any:
    return registering.served(endpoint(folder, pod_uid), Idle(), lambda accepted, why: None)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_both_sockets_are_there_and_go_with_the_plugin(folder: Path) -> None:
    async with serve(folder):
        assert names(folder) == ["dra.sock", "gpu.example.com-reg.sock"]
    assert names(folder) == []


class Slow(Idle):
    """A plugin whose answers wait for the test."""

    def __init__(self) -> None:
        self.asked, self.allowed = asyncio.Event(), asyncio.Event()

    async def prepare(self, request: Any, context: Any) -> Any:
        self.asked.set()
        await self.allowed.wait()
        return dra_pb2.NodePrepareResourcesResponse()


async def test_the_registration_stays_until_calls_in_flight_are_answered(folder: Path) -> None:
    plugin, started, ending = Slow(), asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with registering.served(endpoint(folder), plugin, lambda accepted, why: None):
            started.set()
            await ending.wait()

    serving = asyncio.create_task(run())
    await started.wait()
    async with grpc.aio.insecure_channel(f"unix://{endpoint(folder).plugin_socket}") as channel:
        name = f"/{services.DRA_SERVICES['v1.DRAPlugin']}/NodePrepareResources"
        call: Any = channel.unary_unary(name)
        answer = asyncio.ensure_future(call(b""))
        await plugin.asked.wait()
        ending.set()
        for _ in range(100):
            await asyncio.sleep(0)
        assert names(folder) == ["dra.sock", "gpu.example.com-reg.sock"]
        plugin.allowed.set()
        assert await answer == b""
    await serving
    assert names(folder) == []


async def test_dead_sockets_are_removed_and_living_ones_stay(folder: Path) -> None:
    for name in ("dra-dead.sock", "gpu.example.com-dead-reg.sock", "other-reg.sock"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder / name))
    async with serve(folder, "old"), serve(folder, "new"):
        assert names(folder) == [
            "dra-new.sock",
            "dra-old.sock",
            "gpu.example.com-new-reg.sock",
            "gpu.example.com-old-reg.sock",
            "other-reg.sock",
        ]
    assert names(folder) == ["other-reg.sock"]


async def test_a_killed_plugins_own_sockets_are_taken_over(folder: Path) -> None:
    for path in (endpoint(folder).plugin_socket, endpoint(folder).registration_socket):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    async with serve(folder):
        assert sockets.answers(endpoint(folder).plugin_socket)
