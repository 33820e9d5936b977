# SPDX-License-Identifier: Apache-2.0
"""What is taken off Nodes when gpudeck is gone, and what of other people's stays."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.apiserver import ApiServer

from gpudeck import errors
from gpudeck.api import labels
from gpudeck.api.core import Node, OwnedNode
from gpudeck.api.meta import Meta
from gpudeck.api.resources import DEPLOYMENT, LEASE, NODE
from gpudeck.cli import cleanup, main
from gpudeck.kube.client import Client
from gpudeck.mig import nodes, progress

pytestmark = pytest.mark.asyncio

THEIRS = {"mine": "x", labels.MODE: "dra", "nvidia.com/gpu.deploy.dcgm": "false"}
FOREIGN = {"key": "mine", "value": "x", "effect": "NoSchedule"}


def taint(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": value, "effect": "NoSchedule"}


def node(name: str = "node-0", **notes: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": dict(THEIRS), "annotations": {"mine": "x", **notes}},
        "spec": {"taints": [FOREIGN]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


async def written(client: Client, name: str = "node-0") -> None:
    """All that gpudeck's processes write, in the middle of a change of mode and of partitions."""
    record = progress.Record(
        version=progress.VERSION,
        config="all-1g.5gb",
        phase=progress.Phase.CHANGING,
        since=0,
        paused={"nvidia.com/gpu.deploy.device-plugin": "", "nvidia.com/gpu.deploy.dcgm": "true"},
    )
    pod = nodes.Pod("t", "a")
    found = await client.get(NODE, name, OwnedNode)
    body = nodes.patch(found, nodes.wish(record, drain=(pod,), why="so"))
    assert body is not None
    await client.merge_patch(NODE, name, body, Meta, manager=labels.MANAGER_MIG_MANAGER)
    for manager, given in (
        (labels.MANAGER_NODE_AGENT, {labels.VENDOR: "nvidia"}),
        (labels.MANAGER_NODE_GROUPS, {labels.NODE_GROUP: "g", labels.MIG_CONFIG: "all-1g.5gb"}),
    ):
        applied = {"metadata": {"name": name, "labels": given}}
        await client.apply(NODE, applied, Meta, manager=manager)
    for kind, manager in (
        ("GPUModeActive", labels.MANAGER_CONTROLLER),
        ("NodeGroupFollowed", labels.MANAGER_NODE_GROUPS),
        ("DevicePluginConfigured", labels.MANAGER_DEVICE_PLUGIN),
        ("MigConfigured", labels.MANAGER_MIG_MANAGER),
    ):
        said = {"type": kind, "status": "True", "reason": "R", "message": "m"}
        applied = {"metadata": {"name": name}, "status": {"conditions": [said]}}
        await client.apply(NODE, applied, Meta, manager=manager, subresource="status")
    found = await client.get(NODE, name, Node)
    taints = [{"key": each.key, "value": each.value, "effect": each.effect}
              for each in (found.spec.taints if found.spec else None) or ()]  # fmt: skip
    marks = {
        "metadata": {
            "labels": {labels.ACTIVE_MODE: "device-plugin"},
            "annotations": {labels.DRAIN_BLOCKED: "so"},
        },
        "spec": {"taints": [*taints, taint(labels.MODE_CHANGE, "dra")]},
    }
    await client.merge_patch(NODE, name, marks, Meta, manager=labels.MANAGER_CONTROLLER)


def state(server: ApiServer, name: str = "node-0") -> tuple[Any, ...]:
    """Labels, annotations, taints and conditions of a Node."""
    found = server.objects(NODE)[name]
    meta, conditions = found["metadata"], found.get("status", {}).get("conditions", [])
    return (
        meta.get("labels"),
        meta.get("annotations"),
        found["spec"].get("taints"),
        [each["type"] for each in conditions],
    )


CLEAN = (THEIRS, {"mine": "x"}, [FOREIGN], ["Ready"])


async def test_a_node_that_was_left_in_the_middle_of_changes_is_given_back() -> None:
    async with ApiServer() as server, server.client() as client:
        for name in ("node-0", "node-1"):
            server.put(NODE, node(name))
        await written(client)
        assert len(state(server)[2]) == 3
        outcome = await cleanup.clean(client, features=False)
        assert state(server) == state(server, "node-1") == CLEAN
        assert outcome == cleanup.Outcome(2, 1, {labels.MODE: 2})
        before = len(server.writes)
        assert (await cleanup.clean(client, features=False)).cleaned == 0
        assert len(server.writes) == before


@pytest.mark.parametrize("killed_at", range(1, 7))
async def test_one_that_is_killed_at_any_write_is_gone_on_with(killed_at: int) -> None:
    async with ApiServer() as server, server.client() as client:
        server.put(NODE, node())
        await written(client)
        ends = len(server.writes) + killed_at
        task = asyncio.create_task(cleanup.clean(client, features=False))
        await server.until(lambda: len(server.writes) >= ends or task.done())
        task.cancel()
        await asyncio.wait([task])
        await cleanup.clean(client, features=False)
        assert state(server) == CLEAN


async def test_marks_of_other_programs_of_the_same_names_stay() -> None:
    """Without the record of a change its taint and its state are NVIDIA's own."""
    async with ApiServer() as server, server.client() as client:
        body = node()
        body["metadata"]["labels"] |= {labels.MIG_STATE: "pending", labels.VENDOR: "mine"}
        body["spec"]["taints"] = [taint(labels.MIG_TAINT, "true")]
        server.put(NODE, body)
        before = state(server)
        await cleanup.clean(client, features=False)
        assert state(server) == before


@pytest.mark.parametrize(
    ("manager", "left"), [(labels.MANAGER_MIG_MANAGER, None), ("kubectl", True)]
)
@pytest.mark.parametrize("has_record", [True, False])
async def test_a_node_is_uncordoned_where_a_change_of_partitions_has_cordoned_it(
    manager: str, left: bool | None, *, has_record: bool
) -> None:
    async with ApiServer() as server, server.client() as client:
        record = progress.Record(
            version=progress.VERSION,
            config="all-1g.5gb",
            phase=progress.Phase.REBOOTING,
            since=0,
        )
        notes = {labels.MIG_CHANGE: progress.encode(record)} if has_record else {}
        server.put(NODE, node(**notes))
        cordon = {"spec": {"unschedulable": True}}
        await client.merge_patch(NODE, "node-0", cordon, Meta, manager=manager)
        await cleanup.clean(client, features=False)
        assert server.objects(NODE)["node-0"]["spec"].get("unschedulable") is left


async def test_what_node_features_gave_goes_where_that_is_asked_for() -> None:
    async with ApiServer() as server, server.client() as client:
        body = node(**{labels.FEATURES_LABELS: "nvidia.com/gpu.count,pci-10de.present"})
        body["metadata"]["labels"] |= {
            "nvidia.com/gpu.count": "4",
            "feature.node.kubernetes.io/pci-10de.present": "true",
        }
        server.put(NODE, body)
        before = state(server)
        await cleanup.clean(client, features=False)
        assert state(server) == before
        await cleanup.clean(client, features=True)
        assert state(server) == CLEAN


async def test_a_node_that_others_write_to_is_read_again() -> None:
    async with ApiServer() as server, server.client() as client:
        server.put(NODE, node())
        await written(client)
        server.fail(2, 409, method="PATCH", path="/nodes/node-0", reason="Conflict")
        await cleanup.clean(client, features=False)
        assert state(server) == CLEAN


async def test_a_refusal_names_the_node_and_the_others_are_cleaned() -> None:
    async with ApiServer() as server, server.client() as client:
        for name in ("node-0", "node-1"):
            server.put(NODE, node(name))
            await written(client, name)
        server.fail(100, 403, method="PATCH", path="/nodes/node-0", reason="Forbidden")
        with pytest.raises(errors.UnavailableError, match="1 of 2 Nodes are not clean: node-0: "):
            await cleanup.clean(client, features=False)
        assert state(server, "node-1") == CLEAN


async def ran(server: ApiServer, *words: str) -> tuple[int, str]:
    """The exit code of the command and all that it said."""
    line = ["cleanup", "--kubeconfig", server.kubeconfig(), *words]
    found = await asyncio.to_thread(CliRunner().invoke, main.main, line)
    return found.exit_code, found.output


async def test_the_command_says_what_it_did_and_what_it_leaves() -> None:
    async with ApiServer() as server, server.client() as client:
        server.put(NODE, node())
        await written(client)
        code, said = await ran(server)
        assert code == 0
        assert said.startswith(
            "Nodes that gpudeck had written to: 1 of 1.\n"
            "The label gpu.deckhouse.io/mode stays on 1, as an administrator's.\n"
            "What is not on Nodes stays: partitions of cards;"
        )
        code, said = await ran(server, "--json")
        assert json.loads(said) == {"nodes": 1, "cleaned": 0, "kept": {labels.MODE: 1}}


async def test_nothing_is_done_while_the_controller_is_installed() -> None:
    async with ApiServer() as server:
        server.put(NODE, node())
        server.put(DEPLOYMENT, {"metadata": {"name": "gpu-controller", "namespace": "s"}})
        code, said = await ran(server, "--namespace", "s")
        assert code == 1
        assert "the Deployment s/gpu-controller is there" in said
        code, _ = await ran(server, "--namespace", "other")
        assert code == 0
        # Helm has deleted it, and its pods are still to go: they have no rights any more.
        meta = {"name": "gpu-controller", "namespace": "s", "finalizers": ["foregroundDeletion"]}
        server.put(DEPLOYMENT, {"metadata": {**meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        code, _ = await ran(server, "--namespace", "s")
        assert code == 0


@pytest.mark.parametrize(
    ("words", "left"), [([], {"s/node-feature-discovery-master"}), (["--features"], set())]
)
async def test_leases_of_processes_that_are_gone_go_too(words: list[str], left: set[str]) -> None:
    """Those of other namespaces and of other programs stay."""
    others = {"other/gpu-controller", "s/mine"}
    async with ApiServer() as server:
        for name in (*others, "s/gpu-controller", "s/node-feature-discovery-master"):
            namespace, _, own = name.partition("/")
            server.put(LEASE, {"metadata": {"name": own, "namespace": namespace}})
        for _ in range(2):
            code, _ = await ran(server, "--namespace", "s", *words)
            assert code == 0
            assert set(server.objects(LEASE)) == others | left


async def test_a_server_that_does_not_answer_is_waited_for_so_long_and_no_longer() -> None:
    async with ApiServer() as server:
        server.stall()
        code, said = await ran(server, "--seconds", "1")
        server.resume()
        assert code == 1
        assert "not all Nodes are clean after 1 s; run `gpudeck cleanup` again" in said
