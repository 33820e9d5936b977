# SPDX-License-Identifier: Apache-2.0
"""The two pages of a process."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest
from aiohttp import test_utils

from gpudeck import errors
from gpudeck.kube import serving


async def test_metrics_and_health_are_answered() -> None:
    wrong = ""
    app = serving.application(lambda: b"gpudeck_up 1\n", lambda: wrong)
    async with test_utils.TestClient(test_utils.TestServer(app)) as browser:
        metrics = await browser.get("/metrics")
        assert await metrics.text() == "gpudeck_up 1\n"
        assert metrics.headers["Content-Type"] == serving.METRICS_TYPE
        assert (await browser.get("/healthz")).status == 200
        wrong = "The cache of nodes is not synced."
        sick = await browser.get("/healthz")
        assert sick.status == 503
        assert await sick.text() == wrong
        assert (await browser.get("/other")).status == 404


async def test_a_port_is_served_until_cancelled() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    task = asyncio.create_task(serving.serve(port, metrics=lambda: b"x 1\n", healthy=lambda: ""))
    async with aiohttp.ClientSession() as session:
        text = await _first_answer(session, f"http://127.0.0.1:{port}/metrics")
    assert text == "x 1\n"
    with pytest.raises(errors.UnavailableError, match=str(port)):
        await serving.serve(port, metrics=lambda: b"", healthy=lambda: "")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_port_zero_serves_nothing_and_waits() -> None:
    task = asyncio.create_task(serving.serve(0, metrics=lambda: b"", healthy=lambda: ""))
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _first_answer(session: aiohttp.ClientSession, url: str) -> str:
    for _ in range(1000):
        try:
            async with session.get(url) as answer:
                return await answer.text()
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0)
    raise AssertionError(f"{url} is not served")
