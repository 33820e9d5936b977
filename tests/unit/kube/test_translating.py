# SPDX-License-Identifier: Apache-2.0
"""Failures of the network are sentences for people, whatever aiohttp calls them."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest
from tests.support import apiserver

from gpudeck import errors
from gpudeck.api.core import ConfigMap
from gpudeck.api.resources import CONFIG_MAP
from gpudeck.kube import client, configuration, credentials, pacing, translating

SERVER = "https://10.0.0.1:6443"
LIMITS = aiohttp.ClientTimeout(total=0.5, sock_connect=2.0, sock_read=5.0)


def access(server: str, proxy: str | None = None) -> configuration.Access:
    return configuration.Access(
        server=server, tls=credentials.Tls(), credential=credentials.FixedToken(), proxy=proxy
    )


@pytest.fixture
async def closed() -> AsyncIterator[str]:
    """The address of a port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


async def failure(of: configuration.Access) -> errors.GpudeckError:
    async with client.Client(of) as connection:
        with pytest.raises(errors.GpudeckError) as caught:
            await connection.list(CONFIG_MAP, ConfigMap)
    return caught.value


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_refused_connection_is_said_in_words(closed: str, scheme: str) -> None:
    error = await failure(access(f"{scheme}://{closed}"))
    expected = f"the API server at {scheme}://{closed} cannot be reached: connection refused"
    assert str(error) == expected
    assert isinstance(error, errors.UnavailableError)
    assert error.reason == pacing.UNREACHABLE


async def test_a_proxy_that_is_away_is_named_without_its_password(closed: str) -> None:
    error = await failure(access("http://10.0.0.1:6443", f"http://me:secret@{closed}"))
    assert str(error) == (
        f"the API server at http://10.0.0.1:6443 cannot be reached through the proxy {closed}: "
        "connection refused"
    )


async def test_a_server_without_tls_is_said_to_have_none() -> None:
    async with apiserver.ApiServer() as server:
        error = await failure(access(server.url.replace("http:", "https:")))
    assert "cannot be reached: TLS failed: " in str(error)
    assert "_ssl.c" not in str(error)


async def test_a_connection_that_breaks_names_the_request_and_is_not_unreachable() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        error = await failure(access(f"http://127.0.0.1:{port}"))
    assert str(error).startswith("GET /api/v1/configmaps: the API server at http://127.0.0.1:")
    assert "does not answer: " in str(error)
    assert error.reason == errors.UnavailableError.reason


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (aiohttp.ServerDisconnectedError(), "it closed the connection"),
        (aiohttp.ClientPayloadError("<TransferEncodingError: 400>"), "its answer broke off"),
        (aiohttp.SocketTimeoutError("Timeout on reading data from socket"), "timed out after 5 s"),
        (TimeoutError(), "timed out after 0.5 s"),
        (OSError(errno.ETIMEDOUT, "Connect call failed ('::1', 1)"), "connection timed out"),
        (aiohttp.ClientOSError(errno.ECONNRESET, "x"), "connection reset by peer"),
        (OSError(errno.EHOSTUNREACH, "Connect call failed ('::1', 1)"), "no route to host"),
        (OSError("Multiple exceptions: …"), "none of its addresses answers"),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (ssl.SSLError(1, "[SSL] x (_ssl.c:1)"), "TLS failed: no reason given"),
    ],
)
def test_each_cause_has_words(raised: Exception, words: str) -> None:
    with (
        pytest.raises(errors.UnavailableError) as caught,
        translating.network("GET /x", SERVER, LIMITS),
    ):
        raise raised
    assert str(caught.value) == f"GET /x: the API server at {SERVER} does not answer: {words}"
    assert caught.value.__cause__ is raised


def test_a_connection_that_does_not_come_is_said_with_its_own_limit() -> None:
    with (
        pytest.raises(errors.UnavailableError) as caught,
        translating.network("GET /x", SERVER, LIMITS),
    ):
        raise aiohttp.ConnectionTimeoutError("Connection timeout to host")
    assert str(caught.value) == f"the API server at {SERVER} cannot be reached: timed out after 2 s"
