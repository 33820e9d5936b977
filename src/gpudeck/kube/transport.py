# SPDX-License-Identifier: Apache-2.0
"""HTTP to one API server: connections, tokens, deadlines, and errors in gpudeck's words.

Used by `client` (whole answers) and `watching` (streams). Every request asks
for the SSL context and the token anew, so rotations need no teardown: running
streams stay, new connections use what is new. HTTP/1.1 only; one connection a
watch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

import aiohttp
import yarl

from gpudeck.kube import configuration, responses, translating
from gpudeck.kube.requests import JSON, Request

CONNECT_SECONDS = 10.0
"""For a connection with its TLS, or a third of what the whole request may take."""


class Response(aiohttp.ClientResponse):
    """An answer whose connection ends at once when the answer is left before its end.

    A TLS connection that is closed otherwise waits for the server's own close, up to 30 s
    (asyncio's ssl_shutdown_timeout), and outlives the session, which aborts only what is
    idle or in use (aiohttp 3.14, `BaseConnector._release`).
    """

    def close(self) -> None:
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()
        super().close()


class Transport:
    """Sends requests to one API server. `close` when done."""

    def __init__(self, access: configuration.Access) -> None:
        self._access = access
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0),
            response_class=Response,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Compressed answers would be unpacked in threads, which costs more than the bytes.
            headers={
                "Accept": JSON,
                "Accept-Encoding": "identity",
                "User-Agent": "gpudeck",
            },
        )

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()
        await asyncio.sleep(0)  # The sockets are closed in the loop's next turn.

    async def send(self, request: Request, *, seconds: float) -> bytes:
        """Return the body of a successful answer; every failure is an error of gpudeck.

        It may take `seconds` in all; 0 is without a limit.
        """
        connect_seconds = seconds and max(CONNECT_SECONDS, seconds / 3)
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=connect_seconds)
        async with self.open(request, timeout) as response:
            with translating.network(request.what, self._access.server, timeout):
                return await response.read()

    @contextlib.asynccontextmanager
    async def stream(
        self, request: Request, what: str, idle_seconds: float
    ) -> AsyncIterator[AsyncGenerator[bytes]]:
        """Give the bytes of an answer without end as they come, in all without a deadline.

        UnavailableError when it breaks, or is silent for longer than `idle_seconds`.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=idle_seconds
        )
        async with (
            self.open(request, timeout) as response,
            contextlib.aclosing(_chunks(response, what, timeout)) as chunks,
        ):
            yield chunks

    @contextlib.asynccontextmanager
    async def open(
        self, request: Request, timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send, check the status, and give the response to read from; 401 is retried once."""
        response = await self._attempt(request, timeout)
        if response.status == 401 and self._access.credential.forget():
            response.close()
            response = await self._attempt(request, timeout)
        try:
            if response.status >= 400:
                with translating.network(request.what, self._access.server, timeout):
                    body = await response.read()
                raise responses.error_of(
                    request.what,
                    response.status,
                    responses.parse(body),
                    headers=response.headers,
                )
            yield response
        finally:
            if response.content.at_eof():
                response.release()
            else:
                response.close()  # Leaving a stream early must end its connection.

    async def _attempt(
        self, request: Request, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        with translating.network(request.what, self._access.server, timeout):
            try:
                return await self._once(request, timeout)
            except aiohttp.ServerDisconnectedError:
                # A kept-alive connection that the server had closed already. aiohttp repeats
                # only the methods of RFC 9110; apply and merge patches are safe to repeat too.
                if request.method != "PATCH":
                    raise
                return await self._once(request, timeout)

    async def _once(
        self, request: Request, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        access = self._access
        headers = {"Content-Type": request.content_type} if request.body is not None else {}
        token = await access.credential.token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        secure = access.server.startswith("https://")
        return await self._session.request(
            request.method,
            # The path is ours and quoted already where it must be.
            yarl.URL(access.server + request.path, encoded=True).with_query(request.query),
            data=request.body,
            headers=headers,
            timeout=timeout,
            ssl=access.tls.context() if secure else True,
            server_hostname=access.server_name if secure else None,
            proxy=access.proxy,
            allow_redirects=False,
        )


async def _chunks(
    response: aiohttp.ClientResponse, what: str, timeout: aiohttp.ClientTimeout
) -> AsyncGenerator[bytes]:
    server = str(response.url.origin())
    while True:
        with translating.network(what, server, timeout):
            chunk = await response.content.readany()
        if not chunk:
            return
        yield chunk
        await asyncio.sleep(0)
