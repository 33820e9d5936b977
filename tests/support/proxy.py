# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of any API server that breaks requests as tests ask.

    async with Proxy(kubeconfig) as proxy:
        async with await Client.connect(proxy.kubeconfig) as client: ...
        proxy.cut()

It takes plain HTTP on loopback and speaks to the server with the credentials of
the kubeconfig it was given, so HTTP faults can be put before a real TLS server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from pathlib import Path
from typing import Self

import aiohttp
import yarl
from aiohttp import web
from tests.support import ports

from gpudeck.kube import configuration, transport

_HOP = {"Connection", "Transfer-Encoding", "Content-Length", "Keep-Alive", "Host"}


class Proxy:
    """Forwards everything until told otherwise."""

    def __init__(self, kubeconfig: str) -> None:
        self._access = configuration.load(kubeconfig)
        self._folder = tempfile.TemporaryDirectory(prefix="gpudeck-proxy-")
        self._failures: list[tuple[str, int, dict[str, str]]] = []
        self._open: dict[int, web.Request] = {}  # By id: requests compare as mappings.
        self._streams: dict[int, web.StreamResponse] = {}
        self._gate = asyncio.Event()
        self._gate.set()
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._port = ports.free()
        self.requests: list[str] = []
        """Method and path with query of each request, oldest first."""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            response_class=transport.Response, auto_decompress=False
        )
        await self.come_back()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.resume()
        await self.go_away()
        assert self._session is not None
        await self._session.close()
        await asyncio.sleep(0)  # The sockets are closed in the loop's next turn.
        self._folder.cleanup()

    @property
    def open_watches(self) -> int:
        """How many watches have begun to be passed on and have not ended."""
        return len(self._streams)

    @property
    def kubeconfig(self) -> str:
        """The path of a kubeconfig for the proxy."""
        content = {
            "current-context": "proxy",
            "clusters": [
                {"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}
            ],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy"}}],
        }
        path = Path(self._folder.name) / "kubeconfig"
        path.write_text(json.dumps(content))
        return str(path)

    # Faults

    def fail(
        self, status: int, *, count: int = 1, query: str = "", retry_after: str | None = None
    ) -> None:
        """Answer the next `count` requests whose URL holds `query` with `status` and no Status."""
        headers = {} if retry_after is None else {"Retry-After": retry_after}
        self._failures += [(query, status, headers)] * count

    def cut(self) -> None:
        """Reset every open connection, in the middle of whatever it carries."""
        for request in list(self._open.values()):
            if request.transport is not None:
                request.transport.abort()

    async def say(self, text: bytes) -> None:
        """Put bytes of our own into every open watch."""
        for stream in list(self._streams.values()):
            await stream.write(text)

    def stall(self) -> None:
        """Keep connections open, and pass nothing on, until `resume`."""
        self._gate.clear()

    def resume(self) -> None:
        """Pass on again."""
        self._gate.set()

    async def go_away(self) -> None:
        """Cut everything and refuse connections until `come_back`."""
        self.cut()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def come_back(self) -> None:
        """Take connections again, on the same port."""
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()

    # Forwarding

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path_qs}")
        self._open[id(request)] = request
        try:
            await self._gate.wait()
            for failure in self._failures:
                query, status, headers = failure
                if query in request.path_qs:
                    self._failures.remove(failure)
                    return web.Response(status=status, text="as asked", headers=headers)
            return await self._forward(request)
        finally:
            del self._open[id(request)]

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        access = self._access
        headers = {name: value for name, value in request.headers.items() if name not in _HOP}
        async with self._session.request(
            request.method,
            yarl.URL(access.server + request.path_qs, encoded=True),
            data=await request.read() or None,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None),
            ssl=access.tls.context() if access.server.startswith("https") else True,
        ) as upstream:
            kept = {name: value for name, value in upstream.headers.items() if name not in _HOP}
            response = web.StreamResponse(status=upstream.status, headers=kept)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                await self._pass_on(upstream, response, is_watch="watch" in request.query)
            return response

    async def _pass_on(
        self, upstream: aiohttp.ClientResponse, response: web.StreamResponse, *, is_watch: bool
    ) -> None:
        if is_watch:
            self._streams[id(response)] = response
        try:
            async for chunk in upstream.content.iter_any():
                await self._gate.wait()
                await response.write(chunk)
            await response.write_eof()
        finally:
            self._streams.pop(id(response), None)
