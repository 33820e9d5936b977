# SPDX-License-Identifier: Apache-2.0
"""Verdicts are kept for a while, and an outage of the API server does not blind who watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support import reviews

from gpudeck.kube import client, reviewing


class World:
    """A guard with a clock of its own."""

    def __init__(self, server: reviews.Reviewer, api: client.Client) -> None:
        self.server = server
        self.time = 1000.0
        self.guard = reviewing.Guard(api, "/metrics", now=lambda: self.time)

    async def status(self, token: str) -> int:
        return (await self.guard.judge(f"Bearer {token}")).status


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with reviews.Reviewer() as server, await client.Client.connect(server.kubeconfig) as api:
        yield World(server, api)
    await asyncio.sleep(0)


async def test_a_verdict_is_asked_for_once_a_minute(world: World) -> None:
    assert [await world.status("reader") for _ in range(3)] == [200] * 3
    assert world.server.reviewed == ["reader"]
    world.time += reviewing.ALLOWED_SECONDS
    assert await world.status("reader") == 200
    assert world.server.reviewed == ["reader"] * 2


async def test_a_refusal_is_kept_for_a_shorter_time(world: World) -> None:
    assert [await world.status("worker") for _ in range(2)] == [403] * 2
    assert world.server.reviewed == ["worker"]
    world.time += reviewing.REFUSED_SECONDS
    assert await world.status("worker") == 403
    assert world.server.reviewed == ["worker"] * 2


async def test_scrapes_at_the_same_moment_cost_one_review(world: World) -> None:
    # As many as may ask at once ask; the rest wait and find the verdict.
    assert set(await asyncio.gather(*(world.status("reader") for _ in range(40)))) == {200}
    assert len(world.server.reviewed) <= reviewing.AT_ONCE


@pytest.mark.parametrize("given", ["", "Basic cmVhZGVyOg==", "Bearer", "Bearer  "])
async def test_without_a_token_nobody_is_asked(world: World, given: str) -> None:
    assert (await world.guard.judge(given)).status == 401
    assert world.server.reviewed == []


async def test_while_the_api_server_is_away_a_known_reader_goes_on(world: World) -> None:
    assert await world.status("reader") == 200
    world.server.down = True
    world.time += reviewing.ALLOWED_SECONDS
    assert await world.status("reader") == 200
    world.time += reviewing.STALE_SECONDS
    assert await world.status("reader") == 503
    assert await world.status("worker") == 503


async def test_made_up_tokens_do_not_fill_the_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviewing, "REMEMBERED", 2)
    for number in range(5):
        assert await world.status(f"made-up-{number}") == 401
    assert await world.status("made-up-0") == 401
    assert world.server.reviewed.count("made-up-0") == 2
