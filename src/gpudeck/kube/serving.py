# SPDX-License-Identifier: Apache-2.0
"""/metrics and /healthz of a process, over plain HTTP.

The caller renders the metrics and says whether it is healthy; both are called in
the loop at each request and must not block. Requests are not authenticated: the
text holds no secrets, and the port is not meant to leave the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from gpudeck import errors, logs

KEEP_ALIVE_SECONDS = 120.0
"""Longer than the 90 s for which Go's HTTP clients keep idle connections."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_log = logs.get(__name__)


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
    runner = web.AppRunner(
        application(metrics, healthy), access_log=None, keepalive_timeout=KEEP_ALIVE_SECONDS
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, port=port).start()
        except OSError as error:
            raise errors.UnavailableError(
                f"metrics port {port} cannot be opened: {error.strerror}", reason="PortTaken"
            ) from error
        _log.debug("Serving metrics", port=port)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def application(metrics: Callable[[], bytes], healthy: Callable[[], str]) -> web.Application:
    """Return the two pages as an application, for `serve` and for tests."""

    async def answer_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": METRICS_TYPE})

    async def answer_health(_: web.Request) -> web.Response:
        wrong = healthy()
        return web.Response(status=503 if wrong else 200, text=wrong or "ok")

    app = web.Application()
    app.router.add_get("/metrics", answer_metrics)
    app.router.add_get("/healthz", answer_health)
    return app
