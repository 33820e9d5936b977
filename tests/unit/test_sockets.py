# SPDX-License-Identifier: Apache-2.0
"""A gRPC server on a socket of the node, and what it leaves."""

from __future__ import annotations

import asyncio
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc.aio
import pytest

from gpudeck import sockets


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: sockets allow 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="sock-") as path:
        yield Path(path)


def nothing(server: grpc.aio.Server) -> None:
    """No service: a connection is enough here."""


async def test_a_server_ends_although_a_folder_took_the_place_of_its_socket(folder: Path) -> None:
    path = folder / "a.sock"
    async with grpc.aio.insecure_channel(f"unix://{path}") as channel:
        async with sockets.served(path, nothing, grace_seconds=0):
            await channel.channel_ready()
            path.unlink()
            path.mkdir()
        await until_left(channel)
    assert path.is_dir()


async def test_the_socket_is_the_owners_alone_and_a_stale_one_is_replaced(folder: Path) -> None:
    path = folder / "a.sock"
    path.write_text("left behind")
    async with sockets.served(path, nothing, grace_seconds=0):
        assert sockets.answers(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_a_server_ends_that_was_cancelled_while_it_started(folder: Path) -> None:
    async def serve_for_ever() -> None:
        async with sockets.served(folder / "a.sock", nothing, grace_seconds=0):
            await asyncio.Event().wait()

    for steps in range(8):
        task = asyncio.create_task(serve_for_ever())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not sockets.answers(folder / "a.sock")


async def until_left(channel: grpc.aio.Channel) -> None:
    """Wait until nobody is at the other end."""
    async with asyncio.timeout(5):
        while (state := channel.get_state()) == grpc.ChannelConnectivity.READY:
            await channel.wait_for_state_change(state)
