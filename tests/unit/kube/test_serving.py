# SPDX-License-Identifier: Apache-2.0
"""The two ports of a process, asked by a real HTTP client and by odd ones."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from tests.support import ports, reviews

from gpudeck import errors
from gpudeck.controller import selfsigned
from gpudeck.kube import client, reviewing, serving
from gpudeck.settings import KubeSettings


class World:
    """A process that serves its pages, and the API server that knows its readers."""

    def __init__(self, server: reviews.Reviewer) -> None:
        self.server = server
        self.health_port, self.port = ports.free(), ports.free()
        self.wrong = ""
        self.certificates = 0

    async def certificate(self) -> bytes:
        self.certificates += 1
        if self.certificates == 1:
            raise errors.UnavailableError("no certificate yet")
        return selfsigned.make("gpudeck.test", 1)

    @contextlib.asynccontextmanager
    async def raw(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.health_port)
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

    async def get(self, path: str, token: str = "", method: str = "GET") -> tuple[int, str]:
        """Ask the port of the metrics."""
        given = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"https://127.0.0.1:{self.port}{path}"
        async with aiohttp.ClientSession() as browser:
            answer = await browser.request(method, url, headers=given, ssl=False)
            found = (answer.status, await answer.text())
        await asyncio.sleep(0)
        return found


async def opened(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(serving, "RETRY_SECONDS", 0.01)
    async with reviews.Reviewer() as server, await client.Client.connect(server.kubeconfig) as api:
        world = World(server)

        async def text() -> bytes:
            return b"gpudeck_up 1\n"

        async with serving_at(world, api, text):
            await opened(world.health_port)
            await opened(world.port)
            yield world


@contextlib.asynccontextmanager
async def serving_at(
    world: World, api: client.Client | None, text: serving.Text
) -> AsyncIterator[None]:
    """Both pages, inside the block."""
    task = asyncio.create_task(
        serving.serve(
            KubeSettings(health_port=world.health_port, metrics_port=world.port),
            api,
            hanging=lambda: world.wrong,
            text=text,
            certificate=world.certificate,
        )
    )
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_probes_need_no_token_and_see_nothing_but_health(world: World) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{world.health_port}") as browser:
        assert (await browser.get("/healthz")).status == 200
        world.wrong = "The cache of nodes is not synced."
        sick = await browser.get("/healthz?verbose")
        assert (sick.status, await sick.text()) == (503, world.wrong)
        head = await browser.head("/healthz")
        assert (head.status, await head.read()) == (503, b"")
        assert (await browser.get("/metrics")).status == 404
        assert (await browser.post("/healthz")).status == 405
    await asyncio.sleep(0)


async def test_metrics_are_for_a_token_that_may_get_them(world: World) -> None:
    assert await world.get("/metrics?debug=1", "reader") == (200, "gpudeck_up 1\n")
    assert (await world.get("/metrics"))[0] == 401
    status, why = await world.get("/metrics", "stranger")
    assert status == 401
    assert "not one of this cluster" in why
    status, why = await world.get("/metrics", "worker")
    assert status == 403
    assert "system:serviceaccount:default:worker may not get /metrics" in why
    assert (await world.get("/healthz", "reader"))[0] == 404
    assert (await world.get("/metrics", "reader", "POST"))[0] == 405


async def test_a_certificate_that_is_not_to_be_had_is_waited_for(world: World) -> None:
    assert world.certificates == 2
    assert (await world.get("/metrics", "reader"))[0] == 200


async def test_a_port_whose_opening_is_cancelled_is_closed_again() -> None:
    async def page(_: serving.Request) -> serving.Answer:
        return serving.Answer(200, b"")

    port = ports.free()
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always")
        for turns in range(12):
            opening = asyncio.create_task(serving.listen(port, page, what="health"))
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        gc.collect()
    assert [str(each.message) for each in left_open] == []


@contextlib.asynccontextmanager
async def shown_by(context: ssl.SSLContext) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
    """What asks a server with this context for its certificate, in PEM."""
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    port = server.sockets[0].getsockname()[1]

    async def shown() -> bytes:
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return ssl.DER_cert_to_PEM_cert(found).encode()

    async with server:
        yield shown


async def test_a_renewed_certificate_serves_the_next_connection() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    first, second = selfsigned.make("one.test", 1), selfsigned.make("two.test", 1)
    serving.load(context, first)
    async with shown_by(context) as shown:
        before = await shown()
        serving.load(context, second)
        after = await shown()
    assert before in first
    assert after in second


async def test_a_certificate_that_is_not_of_the_key_leaves_the_one_before_it() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    first, second = selfsigned.make("one.test", 1), selfsigned.make("two.test", 1)
    serving.load(context, first)
    begin = b"-----BEGIN CERTIFICATE"
    odd = first.partition(begin)[0] + begin + second.partition(begin)[2]
    assert b"PRIVATE KEY" in odd
    async with shown_by(context) as shown:
        with pytest.raises(errors.UnavailableError, match="cannot be loaded"):
            serving.load(context, odd)
        assert await shown() in first


def test_what_is_no_certificate_is_named() -> None:
    with pytest.raises(errors.UnavailableError, match="cannot be loaded"):
        serving.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), b"nothing")


@pytest.mark.parametrize(
    "text",
    [b"hello\r\n\r\n", b"GET /healthz\r\n\r\n", b"GET /healthz HTTP/1.1\r\n", b"x" * 100_000, b""],
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


async def test_without_an_api_server_probes_are_answered_and_nobody_reads_metrics() -> None:
    async def text() -> bytes:
        return b"gpudeck_up 1\n"

    async with reviews.Reviewer() as server:
        world = World(server)
        async with serving_at(world, None, text):
            await opened(world.health_port)
            assert await world.say(b"GET /healthz HTTP/1.1\r\n\r\n") == b"HTTP/1.1 200 OK\r\n"
            with pytest.raises(OSError, match=str(world.port)):
                await world.get("/metrics", "reader")
            assert world.certificates == 0


async def test_a_port_that_is_taken_is_named(world: World) -> None:
    with pytest.raises(errors.UnavailableError, match=str(world.health_port)):
        await serving.health(world.health_port, lambda: "")


async def test_a_renewal_that_dies_of_a_bug_is_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the last certificate would expire some weeks later, and nobody would know why."""
    monkeypatch.setattr(serving, "RENEWAL_SECONDS", 0.01)
    made = [selfsigned.make("gpudeck.test", 1)]

    async def certificate() -> bytes:
        return made.pop()

    async def text() -> bytes:
        return b""

    async with await client.Client.connect(world.server.kubeconfig) as api:
        guard = reviewing.Guard(api, "/metrics")
        served = serving.metrics(ports.free(), text, guard=guard, certificate=certificate)
        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.wait_for(served, 10)
    assert caught.group_contains(IndexError)


async def test_port_zero_serves_nothing_and_waits() -> None:
    task = asyncio.create_task(serving.health(0, lambda: ""))
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
