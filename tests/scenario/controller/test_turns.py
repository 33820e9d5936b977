# SPDX-License-Identifier: Apache-2.0
"""Nodes that change their modes take turns, and so do those that cannot begin or end."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from tests.scenario.controller.machines import (
    CARD,
    CARDS,
    DRA,
    PLUGIN,
    allow,
    is_said,
    protect,
    user_pod,
    workload,
)
from tests.scenario.controller.test_controller import controller
from tests.support.apiserver import ApiServer

from gpudeck.api import labels
from gpudeck.api.resources import (
    EVENT,
    NODE,
    POD,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("quick")]


async def test_a_new_default_moves_one_node_after_the_other() -> None:
    async with ApiServer() as server:
        known = CARDS | {labels.ACTIVE_MODE: DRA}
        names = [f"node-{number}" for number in range(1, 4)]
        for name in names:
            server.put(NODE, {"metadata": {"name": name, "labels": known}})
            server.put(POD, user_pod(name, **CARD) | {"spec": pod_spec(name)})
            protect(server, name)

        def tainted() -> list[str]:
            found = server.objects(NODE)
            return [name for name in names if found[name].get("spec", {}).get("taints")]

        def waiting() -> int:
            found = [server.objects(NODE)[name].get("status", {}) for name in names]
            said = itertools.chain.from_iterable(each.get("conditions", []) for each in found)
            return sum(each["reason"] == "WaitingForTurn" for each in said)

        async with controller(server, attended=False, default_mode=PLUGIN):
            await server.until(lambda: (waiting(), len(tainted())) == (2, 1))
            first = tainted()[0]
            allow(server, first)
            server.put(POD, other_workload(first))
            await server.until(
                lambda: (
                    server.objects(NODE)[first]["metadata"]["labels"].get(labels.ACTIVE_MODE)
                    == PLUGIN
                )
            )
            node = copy.deepcopy(server.objects(NODE)[first])
            node["status"]["allocatable"] = CARD
            server.put(NODE, node)
            await server.until(lambda: tainted() not in ([], [first]))
            assert len(tainted()) == 1


def tainted(server: ApiServer, name: str) -> bool:
    return bool(server.objects(NODE)[name].get("spec", {}).get("taints"))


def label(server: ApiServer, name: str, mode: str | None) -> None:
    """Give a node a wish of its own, or take it away."""
    node = copy.deepcopy(server.objects(NODE)[name])
    known = node["metadata"]["labels"]
    known.pop(labels.MODE, None)
    node["metadata"]["labels"] = known | ({labels.MODE: mode} if mode else {})
    server.put(NODE, node)


async def test_a_node_that_is_kept_back_at_its_start_gives_its_turn_to_the_next() -> None:
    async with ApiServer() as server:
        for name in ("node-1", "node-2"):
            known = CARDS | {labels.ACTIVE_MODE: DRA, labels.MODE: DRA}
            server.put(NODE, {"metadata": {"name": name, "labels": known}})
        async with controller(server, attended=False, default_mode=DRA):
            await server.until(
                lambda: all(is_said(server, name, "ModeActive") for name in ("node-1", "node-2"))
            )
        async with controller(server, attended=False, default_mode=PLUGIN):
            server.fail(1000, 409, method="PATCH", path="/nodes/node-1", reason="Conflict")
            label(server, "node-1", None)
            await server.until(lambda: any("/node-1" in each.path for each in server.writes[-1:]))
            label(server, "node-1", DRA)
            label(server, "node-2", None)
            await server.until(lambda: tainted(server, "node-2"))


def put_held(server: ApiServer, name: str) -> None:
    """A node in DRA mode whose one pod has a card and may not go."""
    known = CARDS | {labels.ACTIVE_MODE: DRA}
    server.put(NODE, {"metadata": {"name": name, "labels": known}})
    server.put(POD, user_pod(name, **CARD) | {"spec": pod_spec(name)})
    protect(server, name)


async def test_a_node_that_takes_long_gives_its_turn_away_by_the_label() -> None:
    """Nothing is forced, so else one pod that may not go would keep back the whole cluster."""
    async with ApiServer() as server:
        for name in ("node-1", "node-2"):
            put_held(server, name)
        async with controller(server, attended=False, default_mode=PLUGIN):
            found = await server.until(
                lambda: [name for name in ("node-1", "node-2") if tainted(server, name)]
            )
            other = {"node-1": "node-2", "node-2": "node-1"}[found[0]]
            await server.until(lambda: is_said(server, other, "WaitingForTurn"))
            label(server, found[0], PLUGIN)
            await server.until(lambda: tainted(server, other))
            assert tainted(server, found[0])


def ready(server: ApiServer, name: str, status: str) -> None:
    """The node's kubelet, or who misses it, says whether it is Ready."""
    node = copy.deepcopy(server.objects(NODE)[name])
    known = node.setdefault("status", {}).get("conditions", [])
    others = [each for each in known if each["type"] != "Ready"]
    node["status"]["conditions"] = [*others, {"type": "Ready", "status": status, "reason": "X"}]
    server.put(NODE, node)


async def test_a_node_that_is_not_ready_begins_when_it_is_and_keeps_no_other_waiting() -> None:
    async with ApiServer() as server:
        for name in ("away", "node-1"):
            put_held(server, name)
        ready(server, "away", "Unknown")
        async with controller(server, attended=False, default_mode=PLUGIN):
            await server.until(lambda: tainted(server, "node-1"))
            await server.until(lambda: is_said(server, "away", "WaitingForNode"))
            label(server, "node-1", PLUGIN)  # It gives its turn away.
            ready(server, "away", "True")
            await server.until(lambda: tainted(server, "away"))


@pytest.mark.parametrize("restart", [False, True])
async def test_a_node_that_goes_away_in_its_turn_gives_it_to_the_next(restart: bool) -> None:
    async with ApiServer() as server:
        names = ("node-1", "node-2")
        for name in names:
            known = CARDS | {labels.ACTIVE_MODE: DRA}
            server.put(NODE, {"metadata": {"name": name, "labels": known}})
            server.put(POD, user_pod(name, **CARD) | {"spec": pod_spec(name)})
            protect(server, name)
        async with controller(server, attended=False, default_mode=PLUGIN):
            [first] = await server.until(lambda: [each for each in names if tainted(server, each)])
            [other] = set(names) - {first}
            await server.until(lambda: is_said(server, other, "WaitingForTurn"))
            if not restart:
                ready(server, first, "Unknown")
                await server.until(lambda: tainted(server, other))
        ready(server, first, "Unknown")
        async with controller(server, attended=False, default_mode=PLUGIN):
            await server.until(lambda: tainted(server, other))
            await server.until(lambda: "once the node is Ready, and no" in said(server, first))
            allow(server, first)
            await server.until(lambda: is_said(server, first, "WaitingForOffer"))


def said(server: ApiServer, name: str) -> str:
    """The message of a node's condition GPUModeActive."""
    known = server.objects(NODE)[name]["status"]["conditions"]
    return next(str(each["message"]) for each in known if each["type"] == "GPUModeActive")


async def test_a_node_that_only_waits_for_its_turn_is_no_news() -> None:
    """The condition says it; of a big cluster there would be thousands of Events at once."""
    async with ApiServer() as server:
        names = ("node-1", "node-2")
        for name in names:
            known = CARDS | {labels.ACTIVE_MODE: DRA}
            server.put(NODE, {"metadata": {"name": name, "labels": known}})
            server.put(POD, user_pod(name, **CARD) | {"spec": pod_spec(name)})
        async with controller(server, attended=False, default_mode=DRA):
            await server.until(lambda: all(is_said(server, name, "ModeActive") for name in names))

        def told(name: str) -> set[str]:
            found = server.objects(EVENT).values()
            return {each["reason"] for each in found if each["involvedObject"]["name"] == name}

        async def passed(name: str) -> None:
            """Wait until the Events before one that comes now are written."""
            known = CARDS | {labels.ACTIVE_MODE: DRA, labels.MODE: "mps"}
            server.put(NODE, {"metadata": {"name": name, "labels": known}})
            await server.until(lambda: told(name) == {"ModeUnknown"})

        async with controller(server, attended=False, default_mode=PLUGIN):
            [waits] = await server.until(
                lambda: [name for name in names if is_said(server, name, "WaitingForTurn")]
            )
            await passed("first")
        async with controller(server, attended=False, default_mode=DRA):
            await server.until(lambda: is_said(server, waits, "ModeActive"))
            await passed("second")
        assert told(waits) == set()


async def test_a_new_node_that_waits_for_another_plugin_takes_no_turn() -> None:
    async with ApiServer() as server:
        server.put(
            NODE,
            {
                "metadata": {"name": "node-1", "labels": CARDS},
                "status": {"allocatable": {"nvidia.com/gpu": "1"}},
            },
        )
        known = CARDS | {labels.ACTIVE_MODE: PLUGIN, labels.MODE: PLUGIN}
        server.put(NODE, {"metadata": {"name": "node-2", "labels": known}})
        async with controller(server, attended=False, default_mode=DRA):
            await server.until(lambda: is_said(server, "node-1", "WaitingForOfferToGo"))
            label(server, "node-2", None)
            await server.until(lambda: not is_said(server, "node-2", "ModeActive"))
            assert not is_said(server, "node-2", "WaitingForTurn")


def pod_spec(node: str) -> dict[str, Any]:
    return {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": CARD}}]}


def other_workload(node: str) -> dict[str, Any]:
    pod = workload(PLUGIN)
    pod["metadata"]["name"] = f"plugin-{node}"
    pod["spec"]["nodeName"] = node
    return pod


async def test_a_node_with_somebody_elses_plugin_takes_nobodys_turn() -> None:
    async with ApiServer() as server:
        offer = {"status": {"allocatable": CARD}}
        server.put(NODE, {"metadata": {"name": "foreign", "labels": CARDS}} | offer)
        server.put(POD, user_pod("theirs", **CARD) | {"spec": pod_spec("foreign")})

        def node(name: str) -> dict[str, Any]:
            found: dict[str, Any] = server.objects(NODE)[name]
            return found

        async with controller(server, attended=False, default_mode=DRA):
            await server.until(lambda: "are to end: t/theirs" in str(node("foreign")["status"]))
            known = CARDS | {labels.ACTIVE_MODE: PLUGIN}
            server.put(NODE, {"metadata": {"name": "ours", "labels": known}})
            await server.until(lambda: node("ours").get("spec", {}).get("taints"))
        assert "taints" not in node("foreign").get("spec", {})
        assert list(server.objects(POD)) == ["t/theirs"]
