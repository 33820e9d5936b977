# SPDX-License-Identifier: Apache-2.0
"""The two pages of a process, asked for by a real HTTP client and by odd ones."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from gpudeck import errors
from gpudeck.kube import serving


class World:
    """A process that serves its pages."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.wrong = ""

    @contextlib.asynccontextmanager
    async def raw(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        yield reader, writer
        writer.close()
        await asyncio.sleep(0)

    async def say(self, text: bytes) -> bytes:
        """Send bytes and return the first line of the answer."""
        async with self.raw() as (reader, writer):
            writer.write(text)
            if not text.endswith(b"\r\n\r\n"):
                writer.write_eof()
            return await reader.readline()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(free_port())
    serving_ = asyncio.create_task(
        serving.serve(world.port, metrics=lambda: b"gpudeck_up 1\n", healthy=lambda: world.wrong)
    )
    while True:
        with contextlib.suppress(OSError):
            async with world.raw():
                break
        await asyncio.sleep(0)
    yield world
    serving_.cancel()
    await asyncio.gather(serving_, return_exceptions=True)


async def test_metrics_and_health_are_answered(world: World) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{world.port}") as browser:
        metrics = await browser.get("/metrics?debug=1")
        assert await metrics.text() == "gpudeck_up 1\n"
        assert metrics.headers["Content-Type"] == serving.METRICS_TYPE
        assert (await browser.get("/healthz")).status == 200
        world.wrong = "The cache of nodes is not synced."
        sick = await browser.get("/healthz")
        assert (sick.status, await sick.text()) == (503, world.wrong)
        head = await browser.head("/metrics")
        assert (head.status, await head.read()) == (200, b"")
        assert (await browser.get("/other")).status == 404
        assert (await browser.post("/metrics")).status == 405
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    "text",
    [b"hello\r\n\r\n", b"GET /metrics\r\n\r\n", b"GET /metrics HTTP/1.1\r\n", b"x" * 100_000, b""],
    ids=["no request", "no version", "half a request", "too long", "nothing"],
)
async def test_what_is_no_request_is_refused_and_the_next_is_answered(
    world: World, text: bytes
) -> None:
    with contextlib.suppress(ConnectionError):
        assert await world.say(text) in (b"HTTP/1.1 400 Bad Request\r\n", b"")
    assert await world.say(b"GET /healthz HTTP/1.1\r\n\r\n") == b"HTTP/1.1 200 OK\r\n"


async def test_a_client_that_says_nothing_is_let_go(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.05)
    async with world.raw() as (reader, _), asyncio.timeout(10):
        assert await reader.read() == b""


async def test_a_port_that_is_taken_is_named(world: World) -> None:
    with pytest.raises(errors.UnavailableError, match=str(world.port)):
        await serving.serve(world.port, metrics=lambda: b"", healthy=lambda: "")


async def test_port_zero_serves_nothing_and_waits() -> None:
    task = asyncio.create_task(serving.serve(0, metrics=lambda: b"", healthy=lambda: ""))
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
