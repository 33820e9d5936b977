# SPDX-License-Identifier: Apache-2.0
"""/metrics and /healthz of a process, over plain HTTP.

The caller renders the metrics and says whether it is healthy; both are called in
the loop at each request and must not block. Two pages need no framework: one
request a connection, read and answered here, spares each process of a node the
2.5 MiB of aiohttp.web. Requests are not authenticated: the text holds no
secrets, and the port is not meant to leave the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from gpudeck import errors, logs

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TEXT_TYPE = "text/plain; charset=utf-8"
REQUEST_SECONDS = 10.0
"""A request that is not complete by then is dropped, so idle connections do not pile up."""
_REQUEST_LIMIT = 16 * 1024
_PHRASES = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
    503: "Service Unavailable",
}  # fmt: skip
_log = logs.get(__name__)

Answer = tuple[int, str, bytes]
"""Status, content type and body."""


async def serve(
    port: int,
    *,
    metrics: Callable[[], bytes],
    healthy: Callable[[], str],
) -> None:
    """Serve for ever on all addresses; port 0 serves nothing.

    `healthy` returns "" or what is wrong (status 503). UnavailableError if the port is
    taken.
    """
    if port == 0:
        await asyncio.Event().wait()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(REQUEST_SECONDS):
                await _exchange(reader, writer, metrics, healthy)
        writer.close()

    try:
        server = await asyncio.start_server(connected, port=port, limit=_REQUEST_LIMIT)
    except OSError as error:
        raise errors.UnavailableError(
            f"metrics port {port} cannot be opened: {error.strerror}", reason="PortTaken"
        ) from error
    _log.debug("Serving metrics", port=port)
    async with server:
        await server.serve_forever()


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    metrics: Callable[[], bytes],
    healthy: Callable[[], str],
) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        writer.write(render((400, _TEXT_TYPE, b"bad request"), with_body=True))
    else:
        method, path = parse(head)
        answer = page(method, path, metrics, healthy)
        writer.write(render(answer, with_body=method != b"HEAD"))
    await writer.drain()


def parse(head: bytes) -> tuple[bytes, bytes]:
    """Return method and path, without the query, of a request's head; empty if it is none."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return b"", b""
    return words[0], words[1].partition(b"?")[0]


def page(
    method: bytes, path: bytes, metrics: Callable[[], bytes], healthy: Callable[[], str]
) -> Answer:
    """Return the answer to a request."""
    if not method:
        return 400, _TEXT_TYPE, b"bad request"
    if method not in (b"GET", b"HEAD"):
        return 405, _TEXT_TYPE, b"only GET and HEAD"
    if path == b"/metrics":
        return 200, METRICS_TYPE, metrics()
    if path == b"/healthz":
        wrong = healthy()
        return 503 if wrong else 200, _TEXT_TYPE, (wrong or "ok").encode()
    return 404, _TEXT_TYPE, b"not found"


def render(answer: Answer, *, with_body: bool) -> bytes:
    """Return an answer as it goes over the wire; the connection ends with it."""
    status, kind, body = answer
    head = (
        f"HTTP/1.1 {status} {_PHRASES[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
