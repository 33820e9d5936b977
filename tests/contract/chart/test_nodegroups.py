# SPDX-License-Identifier: Apache-2.0
"""Node groups on a real API server, with the rights of the chart and no more.

The controller itself runs with the token of its account; the other accounts are tried by
single writes. No node runs anything: what is asked is what the API server lets through.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.chart import rendering
from tests.contract.chart import test_policies as policies
from tests.support import deckhouse, realapiserver
from tests.support.expect import eventually

from gpudeck import errors
from gpudeck.api import conditions as node_conditions
from gpudeck.api import core, labels
from gpudeck.api.meta import Meta
from gpudeck.api.resources import (
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    DAEMON_SET,
    EVENT,
    NODE,
    NODE_GROUP,
    PHYSICAL_GPU,
    POD,
    ROLE,
    Resource,
)
from gpudeck.api.v1alpha1 import physicalgpu
from gpudeck.controller import main
from gpudeck.controller.settings import Settings
from gpudeck.deviceplugin import reporting
from gpudeck.kube.client import Client
from gpudeck.pluginconfig import selecting
from gpudeck.statuses import writing

pytestmark = pytest.mark.asyncio

SYSTEM = policies.SYSTEM
CONTROLLER, PLUGIN, DISCOVERY = (
    "gpu-controller",
    "nvidia-device-plugin",
    "nvidia-gpu-feature-discovery",
)
GROUP, CONFIG = "node.deckhouse.io/group", "node.deckhouse.io/device-gpu.config"


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[str]:
    """An administrator's, of an API server with the chart and two nodes, one of them with cards."""
    with realapiserver.running(realapiserver.required()) as found:
        asyncio.run(_install(found))
        yield found


async def _install(kubeconfig: str) -> None:
    await policies.install(kubeconfig)
    async with await Client.connect(kubeconfig) as admin:
        for each in rendering.golden("default"):
            if each["metadata"]["name"] == labels.NODE_WORKLOADS:
                await admin.apply(CONFIG_MAP, each, Meta, manager="helm")
        vendor = {"metadata": {"labels": {labels.VENDOR: "nvidia"}}}
        await admin.merge_patch(NODE, "node-0", vendor, Meta)
        for account in (PLUGIN, DISCOVERY):
            await admin.create(POD, policies.pod(account, "node-0"), Meta)


@pytest_asyncio.fixture
async def admin(kubeconfig: str) -> AsyncIterator[Client]:
    async with await Client.connect(kubeconfig) as client:
        yield client


@contextlib.asynccontextmanager
async def leading(kubeconfig: str) -> AsyncIterator[None]:
    """The controller with the rights of its account."""
    async with policies.connected(kubeconfig, CONTROLLER, "") as client:
        settings = Settings(namespace=SYSTEM, node_workloads=labels.NODE_WORKLOADS)
        task = asyncio.create_task(main.Controller(client, settings).run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_the_controller_keeps_groups_with_the_rights_of_its_account(
    kubeconfig: str, admin: Client
) -> None:
    async def made() -> set[str]:
        found = await admin.list(DAEMON_SET, Meta, namespace=SYSTEM)
        return {each.metadata.name for each in found.items}

    async def known(key: str) -> str | None:
        node = await admin.get(NODE, "node-0", Meta)
        return (node.metadata.labels or {}).get(key)

    default = {"nvidia-device-plugin-default", "gpu-feature-discovery-default"}
    async with leading(kubeconfig):
        await eventually(made, default, seconds=60)
        await eventually(lambda: known(labels.NODE_GROUP), "default", seconds=60)
        await admin.apply(
            CUSTOM_RESOURCE_DEFINITION, deckhouse.NODE_GROUPS, Meta, manager="deckhouse"
        )
        await admin.merge_patch(NODE, "node-0", {"metadata": {"labels": {GROUP: "a"}}}, Meta)
        group = {"metadata": {"name": "a"}, "spec": {"gpu": {"sharing": "TimeSlicing"}}}
        await policies.until(lambda: taken(admin, NODE_GROUP, group))
        await eventually(lambda: known(CONFIG), "TimeSlicing", seconds=60)
        both = default | {"nvidia-device-plugin-a", "gpu-feature-discovery-a"}
        await eventually(made, both, seconds=60)
        config = await admin.get(CONFIG_MAP, "nvidia-device-plugin-a", dict, namespace=SYSTEM)
        assert set(config["data"]) == {"Exclusive", "TimeSlicing", "MIG"}
        for account in (PLUGIN, DISCOVERY):
            async with policies.connected(kubeconfig, account, "node-0") as process:
                await policies.until(lambda: may_read(process, "nvidia-device-plugin-a"))
                assert await may_follow(process, "nvidia-device-plugin-a")
                assert not await may_read(process, labels.NODE_WORKLOADS)
                assert not await may_follow(process, labels.NODE_WORKLOADS)
                assert not await may_follow(process, "")
        wrong = {**group, "spec": {"gpu": {"sharing": "No"}}}
        await admin.apply(NODE_GROUP, wrong, Meta, manager="test")

        async def told() -> bool:
            found = await admin.list(EVENT, dict)
            return any(each["reason"] == "NodeGroupInvalid" for each in found.items)

        await eventually(told, True, seconds=60)
        await admin.delete(CUSTOM_RESOURCE_DEFINITION, "nodegroups.deckhouse.io")
        await eventually(lambda: known(labels.NODE_GROUP), "default", seconds=60)
        await eventually(lambda: known(CONFIG), None, seconds=60)
        await eventually(made, default, seconds=60)


async def may_read(process: Client, name: str) -> bool:
    try:
        await process.get(CONFIG_MAP, name, Meta, namespace=SYSTEM)
    except errors.ForbiddenError:
        return False
    return True


async def may_follow(process: Client, name: str) -> bool:
    """Whether it may list, as its cache does; "" lists all."""
    selector = f"metadata.name={name}" if name else ""
    try:
        await process.list(CONFIG_MAP, Meta, namespace=SYSTEM, field_selector=selector)
    except errors.ForbiddenError:
        return False
    return True


async def taken(admin: Client, resource: Resource, body: dict[str, Any]) -> bool:
    """Whether the server takes the object: a definition is served a moment after it was made."""
    try:
        await admin.apply(resource, body, Meta, manager="test")
    except errors.NotFoundError:
        return False
    return True


async def test_the_controller_s_token_touches_no_other_workload_or_config(
    kubeconfig: str, admin: Client
) -> None:
    (template,) = [
        each
        for each in rendering.golden("default")
        if each["metadata"]["name"] == "gpu-node-agent" and each["kind"] == "DaemonSet"
    ]
    await admin.apply(DAEMON_SET, template, Meta, manager="helm")
    foreign = {"metadata": {"name": "settings", "namespace": SYSTEM}, "data": {"a": "b"}}
    await admin.apply(CONFIG_MAP, foreign, Meta, manager="helm")
    async with policies.connected(kubeconfig, CONTROLLER, "") as controller:
        only = "only what it made for node groups"
        assert only in await policies.refusal(controller, DAEMON_SET, template)
        assert only in await policies.refusal(controller, CONFIG_MAP, foreign)
        named = {**foreign, "metadata": {**foreign["metadata"], "labels": {labels.NODE_GROUP: ""}}}
        assert only in await policies.refusal(controller, CONFIG_MAP, named)
        with pytest.raises(errors.ForbiddenError, match=only):
            await controller.delete(CONFIG_MAP, "settings", namespace=SYSTEM)
        disguised = {
            **template,
            "metadata": {
                "name": "nvidia-device-plugin-x",
                "namespace": SYSTEM,
                "labels": {labels.NODE_GROUP: "x"},
            },
        }
        assert "serviceAccountName must be" in await policies.refusal(
            controller, DAEMON_SET, disguised
        )
        for names, said in (
            (["settings"], "by their names"),
            ([], "by their names"),
            (["nvidia-device-plugin-x"], ""),
        ):
            assert said in await policies.refusal(controller, ROLE, role(names)), names


def role(names: list[str]) -> dict[str, Any]:
    """The Role that lets nodes read ConfigMaps of these names; all if there is none."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
    meta = {
        "name": labels.GROUP_CONFIGS_READER,
        "namespace": SYSTEM,
        "labels": {labels.NODE_GROUP: ""},
    }
    return {"metadata": meta, "rules": [rule | ({"resourceNames": names} if names else {})]}


async def test_the_controller_s_token_changes_no_label_that_is_not_its_own(
    kubeconfig: str,
) -> None:
    async with policies.connected(kubeconfig, CONTROLLER, "") as controller:

        def node(**known: str) -> dict[str, Any]:
            return {"metadata": {"name": "node-1", "labels": known}}

        for key in (labels.NODE_GROUP, labels.ACTIVE_MODE, CONFIG, "nvidia.com/mig.config"):
            assert await policies.refusal(controller, NODE, node(**{key: "x"})) == ""
        role = {"node-role.kubernetes.io/control-plane": ""}
        assert "of a Node only those of gpu.deckhouse.io" in await policies.refusal(
            controller, NODE, node(**role)
        )


async def test_the_plugin_writes_its_condition_of_its_own_node_and_nothing_else(
    kubeconfig: str,
) -> None:
    def status(node: str = "node-0", type_: str = "DevicePluginConfigured", **more: Any) -> Any:
        condition = {"type": type_, "status": "True", "reason": "Tested", "message": "m"}
        return {"metadata": {"name": node}, "status": {"conditions": [condition], **more}}

    async with policies.connected(kubeconfig, PLUGIN, "node-0") as plugin:
        assert await policies.refusal(plugin, NODE, status(), "status") == ""
        assert 'of Node "node-0", the node of the token' in await policies.refusal(
            plugin, NODE, status("node-1"), "status"
        )
        assert "of a Node only those of the types DevicePluginConfigured" in await policies.refusal(
            plugin, NODE, status(type_="Ready"), "status"
        )
        more = status(capacity={"nvidia.com/gpu": "100"})
        assert "of a Node's status only conditions" in await policies.refusal(
            plugin, NODE, more, "status"
        )
        vendor = {"metadata": {"name": "node-0", "labels": {labels.VENDOR: "metax"}}}
        assert await policies.refusal(plugin, NODE, vendor) != ""
        assert await policies.refusal(plugin, policies.PHYSICAL_GPU, policies.gpu("node-1")) != ""


async def test_the_plugin_takes_its_words_of_cards_back_and_leaves_those_of_others(
    kubeconfig: str, admin: Client
) -> None:
    name = policies.gpu("node-0")["metadata"]["name"]
    holder = {"namespace": "t", "pod": "p", "container": "c", "resource": "r", "device": "d"}
    occupancy = msgspec.convert({"plugin": [holder]}, physicalgpu.Occupancy)
    offered = [physicalgpu.OfferedResource(resource="nvidia.com/gpu", devices=1)]
    said = physicalgpu.PhysicalGPUStatus(extended_resources=offered, occupancy=occupancy)
    state = {"metadata": {"name": name}, "status": {"occupancy": {"state": "Full"}}}

    async def is_told() -> bool:
        node = await admin.get(NODE, "node-0", core.Node)
        found = (node.status.conditions if node.status else None) or ()
        return any(each.type == node_conditions.PLUGIN_CONFIGURED for each in found)

    # What the test before this one has said would keep the condition.
    nobody = {"metadata": {"name": "node-0"}, "status": {}}
    await admin.apply(NODE, nobody, Meta, manager="test", subresource="status")
    assert not await is_told()
    async with policies.connected(kubeconfig, PLUGIN, "node-0") as plugin:
        reporter = reporting.Reporter(plugin, "node-0", None)
        writing_ = asyncio.create_task(reporter.run())
        reporter.show(selecting.NOTHING, ())
        await eventually(is_told, True)
        writing_.cancel()
        writer = writing.Writer(plugin, "node-0")
        gpu = await admin.apply(
            PHYSICAL_GPU, policies.gpu("node-0"), physicalgpu.PhysicalGPU, manager="agent"
        )
        gpu = await writer.write(gpu, said, labels.MANAGER_PUBLISHER)
        assert gpu.status
        assert gpu.status.extended_resources == offered
        await admin.apply(
            PHYSICAL_GPU, state, Meta, manager=labels.MANAGER_CONTROLLER, subresource="status"
        )
        nothing = physicalgpu.PhysicalGPUStatus()
        gpu = await writer.write(gpu, nothing, labels.MANAGER_PUBLISHER)
        assert gpu.status
        assert gpu.status.extended_resources is None
        assert gpu.status.occupancy == physicalgpu.Occupancy(state=physicalgpu.OccupancyState.FULL)
