# SPDX-License-Identifier: Apache-2.0
"""Each pod is asked for at its own pace, and none is forgotten for another's sake."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenario.controller.machines import allow, protect, user_pod
from tests.support.apiserver import ApiServer

from gpudeck import errors
from gpudeck.api.resources import POD
from gpudeck.controller.draining import eviction
from gpudeck.kube import evicting

pytestmark = pytest.mark.asyncio

A, B = evicting.Pod("t", "a", "uid-a"), evicting.Pod("t", "b", "uid-b")


def asked(server: ApiServer, pod: evicting.Pod) -> int:
    return sum(each.path.endswith(f"/{pod.name}/eviction") for each in server.writes)


def left(server: ApiServer) -> list[str]:
    return list(server.objects(POD))


async def test_a_pod_that_may_not_go_is_asked_for_less_often_and_the_others_go() -> None:
    async with ApiServer() as server, server.client() as client:
        server.put(POD, user_pod("a"))
        server.put(POD, user_pod("b"))
        protect(server, "a")
        evictor = eviction.Evictor(client)
        blocked = await evictor.evict("node-0", [A, B])
        assert list(blocked) == [A]
        assert "disruption budget" in blocked[A]
        assert left(server) == ["t/a"]
        for _ in range(5):
            assert await evictor.evict("node-0", [A]) == blocked
        assert asked(server, A) == 1


async def test_who_is_forgotten_is_asked_for_at_once() -> None:
    async with ApiServer() as server, server.client() as client:
        server.put(POD, user_pod("a"))
        protect(server, "a")
        evictor = eviction.Evictor(client)
        await evictor.evict("node-0", [A])
        allow(server, "a")
        evictor.forget("node-0")
        assert await evictor.evict("node-0", [A]) == {}
        assert left(server) == []


async def test_a_webhook_that_is_away_is_told_and_asked_for_again() -> None:
    """Who reads of a change that does not go on must not take it for a slow one."""
    async with ApiServer() as server, server.client() as client:
        server.put(POD, user_pod("a"))
        away = 'Internal error occurred: failed calling webhook "keeps.example.com"'
        server.fail(1, 500, method="POST", path="/pods/a/eviction", message=away)
        evictor = eviction.Evictor(client)
        assert await evictor.evict("node-0", [A]) == {A: f"{away}."}


@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_a_pod_that_somebody_else_keeps_is_told_and_asked_for_again(status: int) -> None:
    """A webhook refuses with any status, and in a namespace that ends nothing is made."""
    async with ApiServer() as server, server.client() as client:
        server.put(POD, user_pod("a"))
        server.fail(1, status, method="POST", path="/pods/a/eviction")
        evictor = eviction.Evictor(client)
        blocked = await evictor.evict("node-0", [A])
        assert list(blocked) == [A]
        assert "POST" not in blocked[A]
        evictor.forget("node-0")
        assert await evictor.evict("node-0", [A]) == {}
        assert left(server) == []


async def test_a_webhook_that_takes_its_time_holds_up_no_other_pod() -> None:
    """One that is away is waited for ten seconds by default, and a node has a hundred pods."""
    async with ApiServer() as server, server.client() as client:
        pods = [evicting.Pod("t", name, f"uid-{name}") for name in "abcd"]
        for each in pods:
            server.put(POD, user_pod(each.name))
        server.stall()
        evicted = asyncio.create_task(eviction.Evictor(client).evict("node-0", pods))
        await server.until(lambda: all(asked(server, each) for each in pods))
        server.resume()
        assert await evicted == {}
        assert left(server) == []


async def test_a_server_that_fails_is_told_after_all_were_asked_for() -> None:
    async with ApiServer() as server, server.client() as client:
        server.put(POD, user_pod("a"))
        server.put(POD, user_pod("b"))
        server.fail(1, 500, method="POST", path="/pods/a/eviction")
        evictor = eviction.Evictor(client)
        with pytest.raises(errors.UnavailableError):
            await evictor.evict("node-0", [A, B])
        assert left(server) == ["t/a"]
        assert await evictor.evict("node-0", [A]) == {}
        assert left(server) == []
