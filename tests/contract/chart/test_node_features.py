# SPDX-License-Identifier: Apache-2.0
"""Node features on a real API server, each role with the token and the rights that the chart gives.

What a stolen token may not write stands here too, for the worker and GPU feature discovery.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.chart import test_policies as policies
from tests.scenario.agent.bus import Host
from tests.support import realapiserver

from gpudeck.api import labels, names
from gpudeck.api.meta import Meta
from gpudeck.api.resources import (
    EVENT,
    NODE,
    NODE_FEATURE,
    NODE_FEATURE_GROUP,
    NODE_FEATURE_RULE,
    POD,
)
from gpudeck.errors import ForbiddenError, NotFoundError
from gpudeck.features import collecting, master, metrics, worker
from gpudeck.features.settings import Settings
from gpudeck.gfd import nodefeatures
from gpudeck.kube.client import Client

pytestmark = pytest.mark.asyncio

WORKER, MASTER, GC, GFD = (
    "node-feature-discovery-worker",
    "node-feature-discovery-master",
    "node-feature-discovery-gc",
    "nvidia-gpu-feature-discovery",
)
NODES = ("node-0", "node-1")
CARD = "feature.node.kubernetes.io/pci-0302_10de.present"
NVIDIA = [
    {"feature": "pci.device", "matchExpressions": {"vendor": {"op": "In", "value": ["10de"]}}}
]
RULE = {
    "metadata": {"name": "gpus"},
    "spec": {
        "rules": [
            {
                "name": "gpu",
                "labels": {"example.com/gpu": "true", "kubernetes.io/refused": "true"},
                "annotations": {"example.com/note": "has a card"},
                "extendedResources": {"example.com/cards": "8000"},
                "taints": [{"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}],
                "matchFeatures": NVIDIA,
            }
        ]
    },
}
CONFIG = """
extraLabelNs: [nvidia.com]
denyLabelNs: ["*"]
restrictions:
  nodeFeatureNamespaceSelector: {matchLabels: {kubernetes.io/metadata.name: gpudeck-system}}
"""
GROUP = {
    "metadata": {"name": "gpus", "namespace": policies.SYSTEM},
    "spec": {"featureGroupRules": [{"name": "gpu", "matchFeatures": NVIDIA}]},
}


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[str]:
    """An administrator's, of an API server with the chart's accounts, roles and policies."""
    with realapiserver.running(realapiserver.required()) as found:
        asyncio.run(_install(found))
        yield found


async def _install(kubeconfig: str) -> None:
    await policies.install(kubeconfig)
    async with await Client.connect(kubeconfig) as admin:
        for node in NODES:
            for account in (WORKER, GFD):
                await admin.create(POD, policies.pod(account, node), Meta)
    async with policies.connected(kubeconfig, WORKER, "node-1") as stolen:

        async def bite() -> bool:
            said = await policies.refusal(stolen, NODE_FEATURE, feature("node-0", "node-0"))
            return "ValidatingAdmissionPolicy" in said

        await policies.until(bite)


@pytest.fixture
async def admin(kubeconfig: str) -> AsyncIterator[Client]:
    async with await Client.connect(kubeconfig) as client:
        yield client


def feature(name: str, node: str, **values: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": policies.SYSTEM, "labels": {labels.FEATURES_NODE: node}}
    return {"metadata": meta, "spec": {"labels": {f"nvidia.com/{k}": v for k, v in values.items()}}}


@contextlib.asynccontextmanager
async def running(kubeconfig: str, account: str, part: Any, **given: Any) -> AsyncIterator[None]:
    """One role inside the block, with the token of its account."""
    node = str(given.get("node_name", ""))
    settings = Settings(namespace=policies.SYSTEM, identity="one", absent_seconds=0.0, **given)
    async with policies.connected(kubeconfig, account, node) as api:
        task = asyncio.create_task(part(settings, api).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def node_of(admin: Client, name: str = "node-0") -> dict[str, Any]:
    found: dict[str, Any] = await admin.get(NODE, name, dict)
    return found


async def labels_of(admin: Client, name: str = "node-0") -> dict[str, str]:
    found: dict[str, str] = (await node_of(admin, name))["metadata"].get("labels") or {}
    return found


def looks() -> float:
    return metrics.registry.get_sample_value("gpudeck_features_scan_seconds_count") or 0.0


async def looked(times: float) -> bool:
    return looks() >= times


async def is_gone(admin: Client, name: str) -> bool:
    try:
        await admin.get(NODE_FEATURE, name, Meta, namespace=policies.SYSTEM)
    except NotFoundError:
        return True
    return False


async def test_a_worker_writes_the_features_of_its_own_node_alone(kubeconfig: str) -> None:
    async with policies.connected(kubeconfig, WORKER, "node-0") as own:
        assert await policies.refusal(own, NODE_FEATURE, feature("node-0", "node-0")) == ""
        said = await policies.refusal(own, NODE_FEATURE, feature("node-1", "node-1"))
        assert 'metadata.name must be "node-0"' in said
        said = await policies.refusal(own, NODE_FEATURE, feature("node-0", "node-1"))
        assert 'node-name must be "node-0"' in said
        of_gfd = feature("nvidia-features-for-node-0", "node-0")
        assert 'must be "node-0"' in await policies.refusal(own, NODE_FEATURE, of_gfd)
    async with policies.connected(kubeconfig, WORKER, "") as nowhere:
        said = await policies.refusal(nowhere, NODE_FEATURE, feature("node-0", "node-0"))
        assert "names no node" in said


async def test_a_node_with_a_name_that_no_label_holds_labels_no_other(
    kubeconfig: str, admin: Client
) -> None:
    """The label says whose Node gets what the features say, its mode and MIG config too."""
    node = policies.LONG
    await admin.create(NODE, {"metadata": {"name": node}}, Meta)
    await admin.create(POD, policies.pod(WORKER, node), Meta)
    async with policies.connected(kubeconfig, WORKER, node) as own:
        body = feature(node, names.node_label(node))
        assert await policies.refusal(own, NODE_FEATURE, body) == ""
        said = await policies.refusal(own, NODE_FEATURE, feature(node, "node-0"))
        assert "the label nfd.node.kubernetes.io/node-name must be" in said
    await admin.delete(NODE_FEATURE, node, namespace=policies.SYSTEM)
    await admin.delete(NODE, node)


async def test_gpu_labels_are_written_for_the_own_node_alone(kubeconfig: str) -> None:
    name = "nvidia-features-for-node-{}".format
    async with policies.connected(kubeconfig, GFD, "node-0") as own:
        assert await policies.refusal(own, NODE_FEATURE, feature(name(0), "node-0")) == ""
        stolen = await policies.refusal(own, NODE_FEATURE, feature(name(1), "node-1"))
        assert 'metadata.name must be "nvidia-features-for-node-0"' in stolen
        said = await policies.refusal(own, NODE_FEATURE, feature(name(0), "node-1"))
        assert 'node-name must be "node-0"' in said
        of_worker = await policies.refusal(own, NODE_FEATURE, feature("node-0", "node-0"))
        assert 'must be "nvidia-features-for-node-0"' in of_worker
    async with policies.connected(kubeconfig, GFD, "") as nowhere:
        said = await policies.refusal(nowhere, NODE_FEATURE, feature(name(0), "node-0"))
        assert "names no node" in said


async def test_nobody_on_a_node_deletes_the_features_of_another(
    kubeconfig: str, admin: Client
) -> None:
    name = "nvidia-features-for-node-1"
    assert await policies.refusal(admin, NODE_FEATURE, feature(name, "node-1")) == ""
    async with policies.connected(kubeconfig, GFD, "node-0") as own:
        with pytest.raises(ForbiddenError):
            await own.delete(NODE_FEATURE, name, namespace=policies.SYSTEM)
    await admin.delete(NODE_FEATURE, name, namespace=policies.SYSTEM)


async def test_a_card_comes_and_goes_and_nothing_is_written_twice(
    kubeconfig: str, admin: Client, tmp_path: Path
) -> None:
    host = Host(tmp_path)
    host.write("proc/modules", "")
    given = {
        "node_name": "node-0",
        "host_root": tmp_path,
        "scan_seconds": 0.1,
        "poll_seconds": 0.05,
    }

    async def version() -> str:
        found = await admin.get(NODE_FEATURE, "node-0", Meta, namespace=policies.SYSTEM)
        return str(found.metadata.resource_version)

    async with (
        running(kubeconfig, WORKER, worker.Worker, **given),
        running(kubeconfig, MASTER, master.Master, enable_taints=True),
    ):

        async def has_card() -> bool:
            return (await labels_of(admin)).get(CARD) == "true"

        async def has_no_card() -> bool:
            return CARD not in await labels_of(admin)

        host.plug("0000:1b:00.0")
        await policies.until(has_card)
        before = await version()
        wanted = looks() + 5
        await policies.until(lambda: looked(wanted))
        assert await version() == before  # The API server's spelling of it is no difference.
        await _rule_gives_and_takes(admin)
        await _group_has(admin, ["node-0"])
        host.unplug("0000:1b:00.0")
        await policies.until(has_no_card)
        await _group_has(admin, [])


async def _rule_gives_and_takes(admin: Client) -> None:
    await admin.apply(NODE_FEATURE_RULE, RULE, Meta, manager="test")

    async def given() -> bool:
        return "example.com/cards" in (await node_of(admin))["status"].get("capacity", {})

    await policies.until(given)
    found = await node_of(admin)
    assert found["metadata"]["labels"]["example.com/gpu"] == "true"
    assert found["metadata"]["annotations"]["example.com/note"] == "has a card"
    mine = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}
    assert mine in found["spec"]["taints"]
    assert found["status"]["capacity"]["example.com/cards"] == "8k"

    async def told() -> bool:
        found = await admin.list(EVENT, dict, namespace="default")
        return any(
            each["involvedObject"]["name"] == "gpus" and "kubernetes.io/refused" in each["message"]
            for each in found.items
        )

    await policies.until(told)
    await admin.delete(NODE_FEATURE_RULE, "gpus")

    async def taken() -> bool:
        return labels.FEATURES_RESOURCES not in (await node_of(admin))["metadata"]["annotations"]

    await policies.until(taken)
    found = await node_of(admin)
    assert "example.com/gpu" not in found["metadata"]["labels"]
    assert "example.com/note" not in found["metadata"]["annotations"]
    assert mine not in found["spec"].get("taints", [])
    assert "example.com/cards" not in found["status"].get("capacity", {})


async def _group_has(admin: Client, members: list[str]) -> None:
    await admin.apply(NODE_FEATURE_GROUP, GROUP, Meta, manager="test")

    async def says() -> bool:
        group = await admin.get(NODE_FEATURE_GROUP, "gpus", dict, namespace=policies.SYSTEM)
        nodes = group.get("status", {}).get("nodes", [])
        return [each["name"] for each in nodes] == members and "status" in group

    await policies.until(says)


async def test_gpu_labels_of_the_own_account_stand_on_the_node(
    kubeconfig: str, admin: Client, tmp_path: Path
) -> None:
    file = tmp_path / "nfd-master.conf"
    file.write_text(CONFIG)
    async with (
        policies.connected(kubeconfig, GFD, "node-1") as api,
        running(kubeconfig, MASTER, master.Master, config=str(file)),
    ):
        sink = nodefeatures.Object(api, "node-1", namespace=policies.SYSTEM, pod=f"{GFD}-node-1")
        await sink.write({"nvidia.com/gpu.count": "4"})

        async def given() -> bool:
            return (await labels_of(admin, "node-1")).get("nvidia.com/gpu.count") == "4"

        await policies.until(given)


async def test_features_of_a_node_that_is_gone_are_deleted(kubeconfig: str, admin: Client) -> None:
    await admin.create(NODE, {"metadata": {"name": "node-9"}}, Meta)
    for name in ("node-9", "nvidia-features-for-node-9"):
        assert await policies.refusal(admin, NODE_FEATURE, feature(name, "node-9")) == ""
    async with running(kubeconfig, GC, collecting.Collector):
        await admin.delete(NODE, "node-9")

        async def both() -> bool:
            names = ("node-9", "nvidia-features-for-node-9")
            return all([await is_gone(admin, name) for name in names])

        await policies.until(both)
