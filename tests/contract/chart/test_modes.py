# SPDX-License-Identifier: Apache-2.0
"""What the controller may do to Nodes and their pods, asked with its token of a real API server.

The chart's roles and policies are installed as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from tests.contract.chart import test_policies as policies
from tests.contract.chart.test_policies import refusal
from tests.support import realapiserver

from gpudeck import errors
from gpudeck.api import conditions, core, labels
from gpudeck.api.core import Node, Pod
from gpudeck.api.meta import Meta
from gpudeck.api.resources import DEVICE_TAINT_RULE, NODE, POD, RESOURCE_SLICE
from gpudeck.controller import events, returning
from gpudeck.controller.modes import cordons, deciding, looking, writing
from gpudeck.controller.nodegroups import groups, telling
from gpudeck.kube import evicting, recording
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.mig import nodes, progress

pytestmark = pytest.mark.asyncio

CONTROLLER = "gpu-controller"
DRA, PLUGIN = labels.MODES


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[str]:
    """An administrator's, of an API server with the chart's accounts, roles and policies."""
    with realapiserver.running(realapiserver.required()) as found:
        asyncio.run(policies.install(found))
        asyncio.run(_bite(found))
        yield found


async def _bite(kubeconfig: str) -> None:
    """The API server takes policies up a moment after they were made."""
    async with policies.connected(kubeconfig, CONTROLLER, "") as client:

        async def is_refused() -> bool:
            body = {"metadata": {"name": "node-0", "annotations": {"early": "yes"}}}
            return "ValidatingAdmissionPolicy" in await refusal(client, NODE, body)

        await policies.until(is_refused)


@pytest_asyncio.fixture
async def admin(kubeconfig: str) -> AsyncIterator[Client]:
    async with await Client.connect(kubeconfig) as client:
        yield client


@pytest_asyncio.fixture
async def controller(kubeconfig: str) -> AsyncIterator[Client]:
    async with policies.connected(kubeconfig, CONTROLLER, "") as client:
        yield client


async def test_each_step_of_a_change_of_mode_may_be_written(controller: Client) -> None:
    writer = writing.Writer(controller, recording.Recorder(controller, "test"))
    steps = [
        deciding.Step(deciding.Phase.STARTING, DRA, PLUGIN, message="It starts."),
        deciding.Step(deciding.Phase.ENDING, None, PLUGIN, message="It ends."),
        deciding.Step(deciding.Phase.ACTIVE, PLUGIN, None, message="It is done."),
        deciding.Step(deciding.Phase.NO_CARDS),
    ]
    for step in steps:
        node = await controller.get(NODE, "node-0", Node)
        await writer.mark(node, step)
        await writer.say(node, step, is_slow=False)
        found = await controller.get(NODE, "node-0", Node)
        assert (found.metadata.labels or {}).get(labels.ACTIVE_MODE) == step.active
        assert looking.taint_of(found) == step.taint
        said = writing.condition_of(found)
        is_said = step.phase is not deciding.Phase.NO_CARDS
        assert (said.message if said else None) == (step.message if is_said else None)


async def test_what_a_killed_device_plugin_has_said_goes_and_nothing_is_said_for_it(
    controller: Client, admin: Client
) -> None:
    said = {"type": conditions.PLUGIN_CONFIGURED, "status": "True", "reason": "R", "message": "m"}
    body = {"metadata": {"name": "node-0"}, "status": {"conditions": [said]}}

    async def write(client: Client) -> None:
        await client.apply(
            NODE, body, Meta, manager=labels.MANAGER_DEVICE_PLUGIN, subresource="status"
        )

    with pytest.raises(
        errors.ForbiddenError, match="DevicePluginConfigured and MigConfigured removed"
    ):
        await write(controller)
    await write(admin)
    writer = writing.Writer(controller, recording.Recorder(controller, "test"))
    for step, is_there in (
        (deciding.Step(deciding.Phase.ENDING, None, DRA), True),
        (deciding.Step(deciding.Phase.ACTIVE, DRA), False),
    ):
        await writer.say(await controller.get(NODE, "node-0", Node), step, is_slow=False)
        found = await controller.get(NODE, "node-0", Node)
        types = [each.type for each in (found.status.conditions if found.status else None) or ()]
        assert (conditions.PLUGIN_CONFIGURED in types) is is_there


async def test_what_the_mig_manager_has_said_goes_with_the_last_card(
    controller: Client, admin: Client
) -> None:
    said = {"type": conditions.MIG_CONFIGURED, "status": "True", "reason": "R", "message": "m"}
    meta = {"labels": {labels.MIG_STATE: "success"}, "annotations": {labels.MIG_CHANGE: "{}"}}
    await admin.merge_patch(NODE, "node-0", {"metadata": meta}, Meta)
    body = {"metadata": {"name": "node-0"}, "status": {"conditions": [said]}}
    for client in (controller, admin):
        with contextlib.suppress(errors.ForbiddenError):
            await client.apply(
                NODE, body, Meta, manager=labels.MANAGER_MIG_MANAGER, subresource="status"
            )
            assert client is admin
    writer = writing.Writer(controller, recording.Recorder(controller, "test"))
    node, step = await controller.get(NODE, "node-0", Node), deciding.Step(deciding.Phase.NO_CARDS)
    await writer.mark(node, step)
    await writer.say(node, step, is_slow=False)
    found = await controller.get(NODE, "node-0", Node)
    assert labels.MIG_STATE not in (found.metadata.labels or {})
    assert labels.MIG_CHANGE not in (found.metadata.annotations or {})
    types = [each.type for each in (found.status.conditions if found.status else None) or ()]
    assert conditions.MIG_CONFIGURED not in types


async def test_a_stale_look_at_a_node_is_not_written(controller: Client, admin: Client) -> None:
    writer = writing.Writer(controller, recording.Recorder(controller, "test"))
    node = await controller.get(NODE, "node-1", Node)
    await admin.merge_patch(NODE, "node-1", {"metadata": {"labels": {"colour": "red"}}}, Meta)
    with pytest.raises(errors.ConflictError):
        await writer.mark(node, deciding.Step(deciding.Phase.BEGINNING, DRA, DRA))


@pytest.mark.parametrize(
    ("patch", "word"),
    [
        ({"spec": {"unschedulable": True}}, "spec:"),
        ({"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}}, "spec:"),
        ({"metadata": {"annotations": {labels.DRAIN: "{}"}}}, "metadata.annotations:"),
        ({"metadata": {"labels": {"kubernetes.io/os": "other"}}}, "metadata.labels:"),
    ],
)
async def test_nothing_else_of_a_node_may_be_changed(
    controller: Client, patch: dict[str, Any], word: str
) -> None:
    with pytest.raises(errors.ForbiddenError, match=word):
        await controller.merge_patch(NODE, "node-0", patch, Meta)


async def test_no_other_status_of_a_node_may_be_written(controller: Client) -> None:
    ready = [{"type": "Ready", "status": "False", "reason": "No", "message": ""}]
    for status in ({"conditions": ready}, {"capacity": {"nvidia.com/gpu": "8"}}):
        with pytest.raises(errors.ForbiddenError, match="only the conditions GPUModeActive"):
            await controller.merge_patch(
                NODE, "node-0", {"status": status}, Meta, subresource="status"
            )


async def test_what_keeps_a_node_from_its_group_is_said_until_nothing_does(
    controller: Client,
) -> None:
    recorder = recording.Recorder(controller, "test")
    teller = telling.Teller(controller, events.Events(recorder))
    for problem in (groups.Problem("NodeGroupUnknown", "It is not there."), None):
        await teller.tell(await controller.get(NODE, "node-0", Node), problem)
        said = telling.condition_of(await controller.get(NODE, "node-0", Node))
        assert (said.message if said else None) == (problem.message if problem else None)


async def leave(admin: Client) -> None:
    """Write what a mig-manager does that is then gone."""
    known = {"metadata": {"labels": {"nvidia.com/gpu.deploy.dcgm": "true"}}}
    await admin.merge_patch(NODE, "node-0", known, Meta)
    record = progress.Record(
        version=progress.VERSION, config="all-1g.5gb", phase=progress.Phase.APPROVING, since=1,
        asked=True, paused=nodes.pauses({"nvidia.com/gpu.deploy.dcgm": "true"}),
    )  # fmt: skip
    wish = nodes.wish(record, drain=(nodes.Pod("team", "trains"),), why="a test")
    patch = nodes.patch(await admin.get(NODE, "node-0", core.OwnedNode), wish)
    assert patch is not None
    manager = labels.MANAGER_MIG_MANAGER
    await admin.merge_patch(NODE, "node-0", patch, Meta, manager=manager)
    said = {"type": conditions.MIG_CONFIGURED, "status": "False", "reason": "R", "message": "m"}
    body = {"metadata": {"name": "node-0"}, "status": {"conditions": [said]}}
    await admin.apply(NODE, body, Meta, manager=manager, subresource="status")


async def test_what_a_change_of_partitions_took_is_given_back_as_a_whole_and_not_in_parts(
    controller: Client, admin: Client
) -> None:
    await leave(admin)
    for part in (
        {"spec": {"unschedulable": None}},
        {"spec": {"taints": None}},
        {"metadata": {"labels": {"nvidia.com/gpu.deploy.dcgm": "true"}}},
        {"metadata": {"annotations": {labels.DRAIN: None}}},
    ):
        with pytest.raises(errors.ForbiddenError, match="of a Node only"):
            await controller.merge_patch(NODE, "node-0", part, Meta)
    followed: Cache[Node] = Cache(controller, NODE, Node)
    recorder = recording.Recorder(controller, "test")
    found = returning.Returning(controller, recorder, followed, policies.SYSTEM)
    await found.reconcile("node-0")
    node = await admin.get(NODE, "node-0", core.OwnedNode)
    assert not nodes.is_taken(node)
    assert node.spec is not None
    assert not node.spec.unschedulable
    assert (node.metadata.labels or {})["nvidia.com/gpu.deploy.dcgm"] == "true"
    assert labels.DRAIN not in (node.metadata.annotations or {})
    types = [each.type for each in (node.status.conditions if node.status else None) or ()]
    assert conditions.MIG_CONFIGURED not in types


async def test_why_a_pod_does_not_go_may_be_said(controller: Client) -> None:
    for text in ("It may not.", None):
        patch = {"metadata": {"annotations": {labels.DRAIN_BLOCKED: text, labels.DRAINED: text}}}
        await controller.merge_patch(NODE, "node-0", patch, Meta)


async def test_pods_of_all_namespaces_are_evicted_and_not_deleted(
    controller: Client, admin: Client
) -> None:
    body = {
        "metadata": {"name": "victim", "namespace": "default"},
        "spec": {
            "nodeName": "node-0",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    await admin.create(POD, body, Meta)
    found = await controller.list(POD, core.Pod, field_selector="spec.nodeName=node-0")
    victim = next(each for each in found.items if each.metadata.name == "victim")
    with pytest.raises(errors.ForbiddenError):
        await controller.delete(POD, "victim", namespace="default")
    pod = evicting.Pod("default", "victim", victim.metadata.uid or "")
    assert await evicting.evict(controller, pod) == ""
    after = await admin.list(POD, Pod, namespace="default")
    assert all(
        each.metadata.deletion_timestamp for each in after.items if each.metadata.name == "victim"
    )


async def test_slices_are_looked_at_and_not_touched(controller: Client) -> None:
    await controller.list(RESOURCE_SLICE, Meta, field_selector="spec.nodeName=node-0")
    with pytest.raises(errors.ForbiddenError):
        await controller.delete(RESOURCE_SLICE, "any")


async def test_cordoned_cards_are_followed_and_not_touched(
    controller: Client, admin: Client
) -> None:
    changed: asyncio.Queue[str] = asyncio.Queue()
    found = cordons.Cordons(controller, changed.put_nowait)
    following = asyncio.create_task(found.run())
    taint = {"key": labels.CORDONED, "effect": "NoSchedule"}
    body = {
        "metadata": {
            "name": "cordon-node-0",
            "labels": {labels.CARD: "card-0"},
            "annotations": {labels.REASON: "loud"},
        },
        "spec": {"deviceSelector": {"driver": labels.DRIVER, "device": "gpu"}, "taint": taint},
    }
    try:
        await asyncio.wait_for(found.known(), 20)
        try:
            await admin.create(DEVICE_TAINT_RULE, body, Meta)
        except errors.NotFoundError:
            return  # Kubernetes before 1.37: nothing is cordoned, and nobody is kept from leading.
        assert await asyncio.wait_for(changed.get(), 20) == "card-0"
        assert found.of_card("card-0") == "It is cordoned: loud."
        with pytest.raises(errors.ForbiddenError):
            await controller.delete(DEVICE_TAINT_RULE, "cordon-node-0")
        await admin.delete(DEVICE_TAINT_RULE, "cordon-node-0")
        assert await asyncio.wait_for(changed.get(), 20) == "card-0"
        assert found.of_card("card-0") == ""
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
