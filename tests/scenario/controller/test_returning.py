# SPDX-License-Identifier: Apache-2.0
"""A node that mig-manager left in the middle of a change, where nobody deploys it any more."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scenario.controller.replicas import controller
from tests.support import gpus
from tests.support.apiserver import ApiServer

from gpudeck.api import labels
from gpudeck.api.core import OwnedNode
from gpudeck.api.meta import Meta
from gpudeck.api.resources import EVENT, NODE, POD
from gpudeck.controller import returning
from gpudeck.mig import nodes, progress

pytestmark = pytest.mark.asyncio

PLUGIN, DCGM = f"{labels.DEPLOY}device-plugin", f"{labels.DEPLOY}dcgm"
SYSTEM = "gpudeck-system"
KNOWN = {labels.VENDOR: "nvidia", labels.ACTIVE_MODE: "device-plugin", DCGM: "true"}


async def leave(server: ApiServer, phase: progress.Phase) -> None:
    """Write what a mig-manager does that is then gone."""
    record = progress.Record(
        version=progress.VERSION, config="all-1g.5gb", phase=phase, since=1,
        paused={} if phase is progress.Phase.DONE else nodes.pauses(KNOWN),
    )  # fmt: skip
    manager = labels.MANAGER_MIG_MANAGER
    async with server.client() as client:
        node = await client.get(NODE, "node-0", OwnedNode)
        wish = nodes.wish(record, drain=(nodes.Pod("team", "trains"),), why="a test")
        if phase is progress.Phase.DONE:
            wish = nodes.Wish(state="success")
        patch = nodes.patch(node, wish)
        assert patch is not None
        await client.merge_patch(NODE, "node-0", patch, Meta, manager=manager)
        said = {"type": "MigConfigured", "status": "False", "reason": "Draining", "message": "m"}
        body = {"metadata": {"name": "node-0"}, "status": {"conditions": [said]}}
        await client.apply(NODE, body, Meta, manager=manager, subresource="status")


def put(server: ApiServer) -> None:
    meta = {"name": "node-0", "labels": KNOWN, "annotations": {"mine": "x"}}
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    server.put(
        NODE,
        {"metadata": meta, "spec": {"taints": [taint]}, "status": {"conditions": [ready]}},
    )


def told(server: ApiServer) -> list[dict[str, Any]]:
    return [each for each in server.objects(EVENT).values() if each["reason"] == "MigChangeLeft"]


def is_in_service(server: ApiServer) -> bool:
    node = server.objects(NODE)["node-0"]
    spec, meta = node["spec"], node["metadata"]
    return (
        not spec.get("unschedulable")
        and [each["key"] for each in spec["taints"]] == ["team"]
        and meta["annotations"] == {"mine": "x"}
        and {key: meta["labels"].get(key) for key in (PLUGIN, DCGM, labels.MIG_STATE)}
        == {PLUGIN: None, DCGM: "true", labels.MIG_STATE: None}
        and "MigConfigured" not in {each["type"] for each in node["status"]["conditions"]}
    )


@pytest.mark.parametrize("phase", [each for each in progress.Phase if each != "Done"])
async def test_a_node_that_mig_manager_left_is_given_back(phase: progress.Phase) -> None:
    async with ApiServer() as server:
        put(server)
        await leave(server, phase)
        assert server.objects(NODE)["node-0"]["spec"]["unschedulable"]
        async with controller(server, attended=False, mig_manager=False):
            await server.until(lambda: is_in_service(server))
            await server.until(lambda: told(server))
    (event,) = told(server)
    assert event["involvedObject"]["name"] == "node-0"


async def test_a_node_is_left_to_a_mig_manager_that_is_there_or_deployed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(returning, "LOOK_SECONDS", 0.02)
    pod = gpus.adapter_pod(name="mig")
    pod["metadata"]["labels"][labels.COMPONENT] = "nvidia-mig-manager"
    async with ApiServer() as server:
        put(server)
        await leave(server, progress.Phase.CHANGING)
        async with controller(server, attended=False):
            await server.until(
                lambda: "GPUModeActive" in str(server.objects(NODE)["node-0"]["status"])
            )
        assert server.objects(NODE)["node-0"]["spec"]["unschedulable"]
        server.put(POD, pod)
        async with controller(server, attended=False, mig_manager=False):
            looks = ("GET", "/api/v1/pods")
            await server.until(
                lambda: [(each.method, each.path) for each in server.seen].count(looks) > 5
            )
            assert server.objects(NODE)["node-0"]["spec"]["unschedulable"]
            server.remove(POD, f"{SYSTEM}/mig")
            await server.until(lambda: is_in_service(server))


async def test_what_is_left_of_a_change_that_has_ended_stays() -> None:
    async with ApiServer() as server:
        put(server)
        await leave(server, progress.Phase.DONE)
        async with controller(server, attended=False, mig_manager=False):
            await server.until(
                lambda: "GPUModeActive" in str(server.objects(NODE)["node-0"]["status"])
            )
        node = server.objects(NODE)["node-0"]
        assert node["metadata"]["labels"][labels.MIG_STATE] == "success"
        assert told(server) == []
