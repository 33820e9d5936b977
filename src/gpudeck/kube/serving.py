# SPDX-License-Identifier: Apache-2.0
"""/healthz of a process over plain HTTP, and /metrics over TLS for who may read it.

Called by the main module of each process that goes on. Two pages need
no framework: one request a connection, read and answered here, spares each process of a
node the 2.5 MiB of aiohttp.web. `/healthz` is for the kubelet's probes, which present no
token; `/metrics` asks `reviewing` about each reader's. The certificate is renewed in the
running TLS context, so no connection and no listener ends for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Awaitable, Callable

import msgspec

from gpudeck import errors, logs
from gpudeck.kube import client, pacing, reviewing
from gpudeck.settings import KubeSettings

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TEXT_TYPE = "text/plain; charset=utf-8"
REQUEST_SECONDS = 10.0
"""A request that is not complete by then is dropped, so idle connections do not pile up."""
CONNECTIONS = 64
"""Open connections a port; more are closed at once."""
RENEWAL_SECONDS = 10 * 24 * 3600.0
"""A third of a certificate's life."""
RETRY_SECONDS = 1.0
_REQUEST_LIMIT = 16 * 1024
_PHRASES = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 503: "Service Unavailable",
}  # fmt: skip
_log = logs.get(__name__)


class Request(msgspec.Struct, frozen=True):
    """What the pages look at; all empty for bytes that are no request."""

    method: str = ""
    path: str = ""
    authorization: str = ""


class Answer(msgspec.Struct, frozen=True):
    """Status, body and content type."""

    status: int
    body: bytes
    kind: str = _TEXT_TYPE


Page = Callable[[Request], Awaitable[Answer]]
Text = Callable[[], Awaitable[bytes]]
"""Gives the text of /metrics, or a key with its certificate as PEM."""


async def serve(
    settings: KubeSettings,
    api: client.Client | None,
    *,
    hanging: Callable[[], str] = lambda: "",
    text: Text,
    certificate: Text,
) -> None:
    """Serve both for ever, on the ports that the settings say. As `health` and `metrics`.

    Without an API server nobody can say who may read metrics, so there are none.
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(health(settings.health_port, hanging), name="health")
        if api is not None:
            guard = reviewing.Guard(api, "/metrics")
            group.create_task(
                metrics(settings.metrics_port, text, guard=guard, certificate=certificate),
                name="metrics",
            )


async def health(port: int, healthy: Callable[[], str]) -> None:
    """Serve /healthz for ever on all addresses; port 0 serves nothing.

    `healthy` returns "" or what is wrong (status 503); it is called in the loop.
    UnavailableError if the port is taken.
    """

    async def page(request: Request) -> Answer:
        return health_page(request, healthy)

    await listen(port, page, what="health")


async def metrics(port: int, text: Text, *, guard: reviewing.Guard, certificate: Text) -> None:
    """Serve /metrics over TLS for ever on all addresses; port 0 serves nothing.

    UnavailableError if the port is taken; a certificate that cannot be had is waited for.
    """

    async def page(request: Request) -> Answer:
        return await metrics_page(request, text, guard)

    if port == 0:
        await asyncio.Event().wait()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    await _renew(context, certificate)
    async with asyncio.TaskGroup() as group:
        group.create_task(_keep_fresh(context, certificate), name="certificate")
        group.create_task(listen(port, page, what="metrics", tls=context), name="port")


async def _keep_fresh(context: ssl.SSLContext, made: Text) -> None:
    while True:
        await asyncio.sleep(RENEWAL_SECONDS)
        await _renew(context, made)


async def _renew(context: ssl.SSLContext, made: Text) -> None:
    """Load a new certificate, however often it takes: metrics are no reason to end."""
    pace = pacing.Backoff(RETRY_SECONDS, 300.0)
    while True:
        try:
            load(context, await made())
        except errors.RetryableError as error:
            _log.warning("No certificate for the metrics port", error=error)
            await asyncio.sleep(pace.after(error))
        else:
            return


def load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load key and certificate; ssl takes files only, so for a moment memory is one.

    UnavailableError if they are none or not of each other; the context serves on as before.
    """
    descriptor = os.memfd_create("gpudeck-certificate", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
        file.flush()
        path = f"/proc/self/fd/{descriptor}"
        try:
            # A load that fails leaves half of it in the context (OpenSSL 3), which serves nobody.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise errors.UnavailableError(
                f"the certificate of a port cannot be loaded: {error}",
                reason="NoCertificate",
            ) from error


async def listen(port: int, page: Page, *, what: str, tls: ssl.SSLContext | None = None) -> None:
    """Answer one request a connection, for ever; port 0 waits for ever."""
    if port == 0:
        await asyncio.Event().wait()
    open_connections = 0

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_connections
        open_connections += 1
        try:
            if open_connections <= CONNECTIONS:
                with contextlib.suppress(ConnectionError, TimeoutError, ssl.SSLError):
                    async with asyncio.timeout(REQUEST_SECONDS):
                        await _exchange(reader, writer, page)
        finally:
            open_connections -= 1
            writer.close()

    try:
        # Opened in two steps: asyncio forgets the sockets of a start that is cancelled.
        async with await asyncio.start_server(
            connected,
            port=port,
            limit=_REQUEST_LIMIT,
            ssl=tls,
            ssl_handshake_timeout=REQUEST_SECONDS if tls else None,
            start_serving=False,
        ) as server:
            await server.start_serving()
            _log.debug("Serving", page=what, port=port)
            await server.serve_forever()
    except OSError as error:
        raise errors.UnavailableError(
            f"{what} port {port} cannot be opened: {error.strerror}", reason="PortTaken"
        ) from error


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, page: Page) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        writer.write(render(Answer(400, b"bad request"), with_body=True))
    else:
        request = parse(head)
        writer.write(render(await page(request), with_body=request.method != "HEAD"))
    await writer.drain()


def parse(head: bytes) -> Request:
    """Return a request's method, path without the query, and token; empty if it is none."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return Request()
    given = ""
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "authorization":
            given = value.strip()
    return Request(words[0], words[1].partition("?")[0], given)


def health_page(request: Request, healthy: Callable[[], str]) -> Answer:
    """Return the answer on the port of the probes."""
    refused = _refused(request, "/healthz")
    if refused is not None:
        return refused
    wrong = healthy()
    return Answer(503 if wrong else 200, (wrong or "ok").encode())


async def metrics_page(request: Request, text: Text, guard: reviewing.Guard) -> Answer:
    """Return the answer on the port of the metrics."""
    refused = _refused(request, "/metrics")
    if refused is not None:
        return refused
    verdict = await guard.judge(request.authorization)
    if verdict.status != 200:
        return Answer(verdict.status, verdict.message.encode())
    return Answer(200, await text(), METRICS_TYPE)


def _refused(request: Request, path: str) -> Answer | None:
    """Return the answer to what is not a reading of `path`."""
    if not request.method:
        return Answer(400, b"bad request")
    if request.method not in ("GET", "HEAD"):
        return Answer(405, b"only GET and HEAD")
    if request.path != path:
        return Answer(404, f"not found; this port serves {path}".encode())
    return None


def render(answer: Answer, *, with_body: bool) -> bytes:
    """Return an answer as it goes over the wire; the connection ends with it."""
    challenge = "WWW-Authenticate: Bearer\r\n" if answer.status == 401 else ""
    head = (
        f"HTTP/1.1 {answer.status} {_PHRASES[answer.status]}\r\nContent-Type: {answer.kind}\r\n"
        f"Content-Length: {len(answer.body)}\r\n{challenge}Connection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")
