# SPDX-License-Identifier: Apache-2.0
"""A process of a node asks for evictions on its Node, against an API server in memory."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tests.scenario.controller.machines import allow, protect, user_pod
from tests.scenario.controller.test_controller import controller
from tests.support.apiserver import ApiServer

from gpudeck.api import labels
from gpudeck.api.resources import EVENT, NODE, POD
from gpudeck.controller.draining import eviction, reconciler

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(eviction, "FIRST_SECONDS", 0.02)


def ask(server: ApiServer, *names: str, text: str | None = None) -> None:
    """Write the annotation as a process of node-0 does; no names take it away."""
    named = [{"namespace": "t", "name": name, "uid": f"uid-{name}"} for name in names]
    wanted = {"by": "mig-manager", "why": "partitions change", "pods": named}
    node = copy.deepcopy(server.objects(NODE).get("node-0") or {"metadata": {"name": "node-0"}})
    notes = node["metadata"].setdefault("annotations", {})
    notes.pop(labels.DRAIN, None)
    if names or text is not None:
        notes[labels.DRAIN] = json.dumps(wanted) if text is None else text
    server.put(NODE, node)


def blocked(server: ApiServer) -> str:
    notes = server.objects(NODE)["node-0"]["metadata"].get("annotations", {})
    found: str = notes.get(labels.DRAIN_BLOCKED, "")
    return found


def pods(server: ApiServer) -> set[str]:
    return {key.removeprefix("t/") for key in server.objects(POD)}


def other_node(name: str) -> dict[str, Any]:
    pod = user_pod(name)
    pod["spec"]["nodeName"] = "node-1"
    return pod


async def test_the_named_pods_of_the_node_go_and_no_others() -> None:
    async with ApiServer() as server:
        for name in ("a", "b", "stays"):
            server.put(POD, user_pod(name))
        server.put(POD, other_node("elsewhere"))
        ask(server, "a", "b", "elsewhere")
        async with controller(server, attended=False):
            await server.until(lambda: pods(server) == {"stays", "elsewhere"})
            ask(server, "stays")
            await server.until(lambda: pods(server) == {"elsewhere"})
        assert blocked(server) == ""


async def test_all_pods_of_the_node_go_and_who_asked_is_told_of_the_end() -> None:
    def drained() -> str:
        notes = server.objects(NODE)["node-0"]["metadata"].get("annotations", {})
        found: str = notes.get(labels.DRAINED, "")
        return found

    async with ApiServer() as server:
        daemon = user_pod("daemon")
        owner = {"kind": "DaemonSet", "name": "d", "uid": "u", "apiVersion": "apps/v1"}
        daemon["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        for each in (user_pod("a"), user_pod("b"), daemon, other_node("elsewhere")):
            server.put(POD, each)
        protect(server, "a")
        ask(server, text='{"by": "mig-manager", "why": "a reboot", "all": true, "id": "7"}')
        async with controller(server, attended=False):
            await server.until(lambda: pods(server) == {"a", "daemon", "elsewhere"})
            await server.until(lambda: "t/a is not evicted" in blocked(server))
            assert "DaemonSet" not in blocked(server)
            assert drained() == ""
            allow(server, "a")
            await server.until(lambda: drained() == "7")
            assert pods(server) == {"daemon", "elsewhere"}
            # Nothing of the Node is left to be looked at when the request goes.
            notes = {labels.DRAIN: '{"pods": []}', labels.DRAIN_BLOCKED: "Said before."}
            server.put(NODE, {"metadata": {"name": "node-9", "annotations": notes}})
            await server.until(lambda: "Said" not in str(server.objects(NODE)["node-9"]))
            ask(server)
            await server.until(lambda: drained() == "")


async def test_a_budget_is_respected_said_and_tried_again() -> None:
    async with ApiServer() as server:
        for name in ("a", "b"):
            server.put(POD, user_pod(name))
        protect(server, "a")
        ask(server, "a", "b")
        async with controller(server, attended=False):
            await server.until(lambda: pods(server) == {"a"} and blocked(server))
            assert blocked(server) == (
                "mig-manager waits for pods to go (partitions change): t/a is not evicted: Cannot "
                "evict pod as it would violate the pod's disruption budget. The disruption budget "
                "a needs 1 healthy pods and has 1 currently."
            )
            await server.until(
                lambda: "DrainBlocked" in {each["reason"] for each in events(server)}
            )
            allow(server, "a")
            await server.until(lambda: pods(server) == set() and not blocked(server))


async def test_who_takes_the_request_away_has_nothing_more_evicted() -> None:
    async with ApiServer() as server:
        server.put(POD, user_pod("a"))
        protect(server, "a")
        ask(server, "a")
        async with controller(server, attended=False):
            await server.until(lambda: blocked(server))
            ask(server)
            await server.until(lambda: not blocked(server))
            allow(server, "a")
            server.put(POD, user_pod("b"))
            ask(server, "b")
            await server.until(lambda: pods(server) == {"a"})


async def test_a_request_that_is_none_is_told_and_touches_nobody() -> None:
    async with ApiServer() as server:
        server.put(POD, user_pod("a"))
        ask(server, text='{"pods": "all"}')
        async with controller(server, attended=False):
            await server.until(lambda: blocked(server))
            assert blocked(server).startswith("annotation gpu.deckhouse.io/drain: Expected `array`")
            await server.until(
                lambda: "DrainInvalid" in {each["reason"] for each in events(server)}
            )
        assert pods(server) == {"a"}


async def test_a_server_that_is_overloaded_is_no_budget() -> None:
    async with ApiServer() as server:
        server.put(POD, user_pod("a"))
        server.fail(2, status=429, method="POST", path="/eviction")
        ask(server, "a")
        async with controller(server, attended=False):
            await server.until(lambda: pods(server) == set())
        assert blocked(server) == ""


def events(server: ApiServer) -> list[dict[str, Any]]:
    return list(server.objects(EVENT).values())
