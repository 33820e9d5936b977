# SPDX-License-Identifier: Apache-2.0
"""What a process of a node may write, asked with real tokens of a real API server.

The chart's roles and policies are installed as they are. A token is bound to a pod on a
node, as the kubelet gets it; "stolen" means that it is used against another node's objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from tests.chart import rendering
from tests.support import realapiserver

from gpudeck.api import core, labels, names
from gpudeck.api.meta import Meta
from gpudeck.api.resources import (
    CONFIG_MAP,
    EVENT,
    NAMESPACE,
    NODE,
    PHYSICAL_GPU,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Resource,
)
from gpudeck.devices.identities import PciAddress
from gpudeck.errors import ForbiddenError, GpudeckError
from gpudeck.kube.client import Client
from gpudeck.mig import nodes, progress

pytestmark = pytest.mark.asyncio

SYSTEM = "gpudeck-system"
AGENT, PLUGIN, MIG = "gpu-node-agent", "nvidia-adapter", "nvidia-mig-manager"
CRDS = Path(__file__).parents[3] / "charts/gpudeck/crds"
PLURALS = {
    "ServiceAccount": "serviceaccounts",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "CustomResourceDefinition": "customresourcedefinitions",
}
TOKENS = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{{}}/token"


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[str]:
    """An administrator's, of an API server with the chart's accounts, roles and policies."""
    with realapiserver.running(realapiserver.required()) as found:
        asyncio.run(install(found))
        yield found


async def install(kubeconfig: str) -> None:
    """Make the accounts, roles and policies of the chart, two Nodes and their pods."""
    async with await Client.connect(kubeconfig) as admin:
        await admin.create(NAMESPACE, {"metadata": {"name": SYSTEM}}, Meta)
        definitions = [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]
        for each in [*definitions, *rendering.golden("dra")]:
            if each["kind"] in PLURALS:
                await admin.apply(resource(each), each, dict, manager="test")
        for node in ("node-0", "node-1"):
            await admin.create(NODE, {"metadata": {"name": node}}, Meta)
            for account in (AGENT, PLUGIN, MIG):
                await admin.create(POD, pod(account, node), Meta)
        # The API server takes policies up a moment after they were made, in the order of their
        # making: that of Events is the last.
        async with connected(kubeconfig, PLUGIN, "node-1") as plugin:

            async def bite() -> bool:
                said = await refusal(plugin, EVENT, event("early", "node-0"))
                return "ValidatingAdmissionPolicy" in said

            await until(bite)


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        for _ in itertools.repeat(None):
            if await true():
                return
            await asyncio.sleep(0.1)


def resource(each: dict[str, Any]) -> Resource:
    group, _, version = each["apiVersion"].rpartition("/")
    namespaced = "namespace" in each["metadata"]
    return Resource(group, version, each["kind"], PLURALS[each["kind"]], namespaced)


def pod_name(account: str, node: str) -> str:
    return f"{account}-{node if len(node) < 100 else names.digest(node)}"


def pod(account: str, node: str) -> dict[str, Any]:
    return {
        "metadata": {"name": pod_name(account, node), "namespace": SYSTEM},
        "spec": {
            "serviceAccountName": account,
            "nodeName": node,
            "containers": [{"name": "main", "image": "none"}],
        },
    }


@contextlib.asynccontextmanager
async def connected(kubeconfig: str, account: str, node: str) -> AsyncIterator[Client]:
    """A client with the token of the account's pod on `node`; "" binds it to no pod."""
    async with await Client.connect(kubeconfig) as admin:
        wanted: dict[str, Any] = {"expirationSeconds": 3600}
        if node:
            name = pod_name(account, node)
            pod = await admin.get(POD, name, Meta, namespace=SYSTEM)
            wanted["boundObjectRef"] = {
                "apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod.metadata.uid,
            }  # fmt: skip
        body = {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": wanted,
        }  # fmt: skip
        answer = await admin.raw("POST", TOKENS.format(account), body=json.dumps(body).encode())
    content = json.loads(Path(kubeconfig).read_text())
    content["users"] = [{"name": "admin", "user": {"token": json.loads(answer)["status"]["token"]}}]
    path = Path(kubeconfig).with_name(pod_name(account, node))
    path.write_text(json.dumps(content))
    async with await Client.connect(str(path)) as client:
        yield client


async def refusal(
    client: Client, resource: Resource, body: dict[str, Any], subresource: str = ""
) -> str:
    """Apply an object; returns what the API server says against it, "" if nothing."""
    try:
        await client.apply(resource, body, Meta, manager="test", subresource=subresource)
    except ForbiddenError as error:
        return str(error)
    except GpudeckError as error:
        return f"{type(error).__name__}: {error}"
    return ""


async def deletion(client: Client, resource: Resource, name: str) -> str:
    try:
        await client.delete(resource, name)
    except ForbiddenError as error:
        return str(error)
    return ""


@pytest_asyncio.fixture
async def admin(kubeconfig: str) -> AsyncIterator[Client]:
    async with await Client.connect(kubeconfig) as client:
        yield client


@pytest_asyncio.fixture
async def agent(kubeconfig: str) -> AsyncIterator[Client]:
    """The node agent of node-0."""
    async with connected(kubeconfig, AGENT, "node-0") as client:
        yield client


@pytest_asyncio.fixture
async def plugin(kubeconfig: str) -> AsyncIterator[Client]:
    """The dra-plugin of node-0."""
    async with connected(kubeconfig, PLUGIN, "node-0") as client:
        yield client


def gpu(node: str = "node-0", place: str = "0000-1b-00-0", **fields: Any) -> dict[str, Any]:
    meta = {"name": f"{node}-{place}", "labels": {"gpu.deckhouse.io/node": node}}
    return {"metadata": meta, **fields}


def event(name: str, host: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": host},
        "source": {"component": "gpudeck-dra-plugin", "host": host},
        "reason": "Tested",
    }


def resource_slice(
    name: str, node: str = "node-0", driver: str = "gpu.deckhouse.io"
) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": name},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]},
    }


async def test_the_agent_keeps_the_cards_of_its_own_node(agent: Client) -> None:
    assert await refusal(agent, PHYSICAL_GPU, gpu()) == ""
    told = gpu(status={"nodeInfo": {"nodeName": "node-0"}})
    assert await refusal(agent, PHYSICAL_GPU, told, "status") == ""
    assert await deletion(agent, PHYSICAL_GPU, "node-0-0000-1b-00-0") == ""


async def test_a_stolen_token_touches_no_card_of_another_node(agent: Client, admin: Client) -> None:
    assert await refusal(admin, PHYSICAL_GPU, gpu("node-1")) == ""
    foreign = 'metadata.name "node-1-0000-1b-00-0" is not that of a card of node "node-0"'
    assert foreign in await refusal(agent, PHYSICAL_GPU, gpu("node-1"))
    told = gpu("node-1", status={"nodeInfo": {"nodeName": "node-1"}})
    assert foreign in await refusal(agent, PHYSICAL_GPU, told, "status")
    assert foreign in await deletion(agent, PHYSICAL_GPU, "node-1-0000-1b-00-0")
    another = await refusal(agent, PHYSICAL_GPU, gpu("node-1", "0000-2a-00-0"))
    assert "is not that of a card of node" in another


async def test_a_card_cannot_be_said_to_be_of_another_node(agent: Client) -> None:
    mislabelled = gpu(place="0000-2b-00-0")
    mislabelled["metadata"]["labels"] = {"gpu.deckhouse.io/node": "node-1"}
    assert 'label gpu.deckhouse.io/node must be "node-0"' in await refusal(
        agent, PHYSICAL_GPU, mislabelled
    )
    owned = gpu(place="0000-2b-00-0")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "1"}
    ]
    assert "ownerReferences must name Node" in await refusal(agent, PHYSICAL_GPU, owned)
    assert await refusal(agent, PHYSICAL_GPU, gpu(place="0000-2b-00-0")) == ""
    told = gpu(place="0000-2b-00-0", status={"nodeInfo": {"nodeName": "node-1"}})
    assert 'status.nodeInfo.nodeName must be "node-0"' in await refusal(
        agent, PHYSICAL_GPU, told, "status"
    )


LONG = "a-node-of-a-pool-whose-name-is-longer.than-the-value-of-a-label-may.be.example.test"


async def test_a_node_with_a_name_that_no_label_holds_speaks_for_itself_alone(
    kubeconfig: str, admin: Client
) -> None:
    longest = LONG.ljust(253, "x")
    for node in (LONG, longest, "0" * 236, f"{'a' * 224}.{'b' * 12}"):
        twin = f"{node[:-1]}y"
        await admin.create(NODE, {"metadata": {"name": node}}, Meta)
        await admin.create(POD, pod(AGENT, node), Meta)
        async with connected(kubeconfig, AGENT, node) as own:
            assert await refusal(own, PHYSICAL_GPU, carded(node)) == ""
            for label in ("node-0", "a-node-0123abcd", f"{node[:52]}-1", names.node_label(twin)):
                assert "the label gpu.deckhouse.io/node must be" in await refusal(
                    own, PHYSICAL_GPU, carded(node, label)
                )
            assert "is not that of a card of node" in await refusal(
                own, PHYSICAL_GPU, carded(twin, names.node_label(node))
            )


def carded(node: str, label: str = "") -> dict[str, Any]:
    """A card by the name that gpudeck gives it."""
    name = names.physical_gpu_name(node, PciAddress.parse("0000:1b:00.0"))
    known = {"gpu.deckhouse.io/node": label or names.node_label(node)}
    return {"metadata": {"name": name, "labels": known}}


@pytest.mark.parametrize("name", ["node-0", "node-0-x", "node-00-0000-1b-00-0"])
async def test_a_name_that_is_no_card_of_the_node_is_refused(agent: Client, name: str) -> None:
    body = {"metadata": {"name": name, "labels": {"gpu.deckhouse.io/node": "node-0"}}}
    assert "is not that of a card of node" in await refusal(agent, PHYSICAL_GPU, body)


async def test_the_agent_changes_its_label_of_its_node_and_nothing_else(
    agent: Client, admin: Client
) -> None:
    def node(name: str = "node-0", **labels: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": labels}}

    vendor = {"gpu.deckhouse.io/vendor": "nvidia"}
    assert await refusal(agent, NODE, node(**vendor)) == ""
    assert await refusal(agent, NODE, node()) == ""
    assert 'of Node "node-0", the node of the token' in await refusal(
        agent, NODE, node("node-1", **vendor)
    )
    role = {"node-role.kubernetes.io/control-plane": ""}
    assert "only gpu.deckhouse.io/vendor may be changed" in await refusal(agent, NODE, node(**role))
    mode = {"gpu.deckhouse.io/mode": "dra"}
    assert "only gpu.deckhouse.io/vendor" in await refusal(agent, NODE, node(**mode))
    freed = node(**vendor) | {"spec": {"unschedulable": True}}
    assert "of a Node only labels may be changed" in await refusal(agent, NODE, freed)
    noted = node(**vendor)
    noted["metadata"]["annotations"] = {"a": "b"}
    assert "of a Node only labels may be changed" in await refusal(agent, NODE, noted)
    await admin.merge_patch(NODE, "node-0", {"metadata": {"labels": role}}, Meta)
    assert await refusal(agent, NODE, node(**vendor)) == ""


@pytest_asyncio.fixture
async def partitioner(kubeconfig: str) -> AsyncIterator[Client]:
    """The mig-manager of node-0."""
    async with connected(kubeconfig, MIG, "node-0") as client:
        yield client


CHANGING = progress.Record(
    version=1,
    config="all-1g.5gb",
    phase=progress.Phase.APPROVING,
    since=1,
    asked=True,
    paused=nodes.pauses({"nvidia.com/gpu.deploy.dcgm": "true"}),
)


async def test_the_mig_manager_takes_its_node_out_of_service_and_gives_it_back(
    partitioner: Client, admin: Client
) -> None:
    foreign = {"key": "team", "value": "a", "effect": "NoSchedule"}
    await admin.merge_patch(NODE, "node-0", {"spec": {"taints": [foreign]}}, Meta)
    draining = nodes.wish(CHANGING, drain=(nodes.Pod("team", "trains"),), why="a test")
    emptying = nodes.wish(CHANGING, empty="7", why="a test")
    for wish in (draining, emptying, nodes.Wish(state="success"), nodes.Wish()):
        node = await partitioner.get(NODE, "node-0", core.OwnedNode)
        patch = nodes.patch(node, wish)
        assert patch is not None
        manager = labels.MANAGER_MIG_MANAGER
        await partitioner.merge_patch(NODE, "node-0", patch, Meta, manager=manager)
        found = await admin.get(NODE, "node-0", core.OwnedNode)
        assert nodes.patch(found, wish) is None
        assert found.spec is not None
        assert bool(found.spec.unschedulable) is (wish.record is not None)
    assert [each.key for each in found.spec.taints or []] == ["team"]
    condition = {"type": "MigConfigured", "status": "True", "reason": "Applied", "message": "m."}
    told = {"metadata": {"name": "node-0"}, "status": {"conditions": [condition]}}
    assert await refusal(partitioner, NODE, told, "status") == ""


async def test_the_mig_manager_changes_nothing_else_of_its_node(
    partitioner: Client, admin: Client
) -> None:
    await admin.merge_patch(NODE, "node-0", {"metadata": {"labels": {"team": "a"}}}, Meta)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"metadata": {"labels": {"nvidia.com/mig.config": "x"}}}, "may be changed: "),
        ({"metadata": {"labels": {"gpu.deckhouse.io/active-mode": "dra"}}}, "may be changed: "),
        ({"metadata": {"labels": {"team": None}}}, "may be changed: "),
        ({"metadata": {"annotations": {"a": "b"}}}, "may be changed: "),
        ({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, "only the taint mig-rec"),
        ({"spec": {"podCIDRs": ["10.0.0.0/24"]}}, "only the taint mig-reconfigure"),
        ({"metadata": {"finalizers": ["a.example.com/b"]}}, "only the taint mig-reconfigure"),
    ]
    for patch, said in refused:
        with pytest.raises(ForbiddenError, match=said):
            await partitioner.merge_patch(NODE, "node-0", patch, Meta)
    statuses: list[dict[str, Any]] = [
        {"capacity": {"nvidia.com/gpu": "8"}},
        {"conditions": [{"type": "Ready", "status": "False"}]},
        {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}},
        {"volumesInUse": ["kubernetes.io/csi/a"]},
    ]
    for status in statuses:
        body = {"metadata": {"name": "node-0"}, "status": status}
        assert "only the condition MigConfigured" in await refusal(
            partitioner, NODE, body, "status"
        )


async def test_a_stolen_token_of_the_mig_manager_touches_no_other_node(
    partitioner: Client, kubeconfig: str
) -> None:
    patch = {"metadata": {"labels": {"nvidia.com/mig.config.state": "failed"}}}
    with pytest.raises(ForbiddenError, match='only Node "node-0"'):
        await partitioner.merge_patch(NODE, "node-1", patch, Meta)
    body = {"metadata": {"name": "node-1"}, "status": {"conditions": []}}
    assert 'only Node "node-0"' in await refusal(partitioner, NODE, body, "status")
    with pytest.raises(ForbiddenError):
        await partitioner.list(POD, Meta, namespace=SYSTEM)
    with pytest.raises(ForbiddenError, match=r'source\.host must be "node-0"'):
        await partitioner.create(EVENT, event("mig", "node-1"), Meta)
    async with connected(kubeconfig, MIG, "") as nowhere:
        with pytest.raises(ForbiddenError, match="names no node"):
            await nowhere.merge_patch(NODE, "node-0", patch, Meta)


async def test_the_mig_manager_reads_its_configs_by_name(partitioner: Client) -> None:
    for name in ("default-mig-parted-config", "nvidia-mig-custom-configs", "default-gpu-clients"):
        found = await partitioner.list(
            CONFIG_MAP, Meta, namespace=SYSTEM, field_selector=f"metadata.name={name}"
        )
        assert found.items == []
    with pytest.raises(ForbiddenError):
        await partitioner.list(CONFIG_MAP, Meta, namespace=SYSTEM)


async def test_the_plugin_publishes_for_its_own_node(plugin: Client) -> None:
    assert await refusal(plugin, RESOURCE_SLICE, resource_slice("own")) == ""
    again = resource_slice("own")
    again["spec"]["pool"]["generation"] = 2
    assert await refusal(plugin, RESOURCE_SLICE, again) == ""
    assert await deletion(plugin, RESOURCE_SLICE, "own") == ""


async def test_a_stolen_token_touches_no_slice_of_another_node(
    plugin: Client, admin: Client
) -> None:
    made = resource_slice("other", "node-1")
    assert "the node of the token" in await refusal(plugin, RESOURCE_SLICE, made)
    assert await refusal(admin, RESOURCE_SLICE, made) == ""
    made["spec"]["pool"]["generation"] = 2
    assert "the node of the token" in await refusal(plugin, RESOURCE_SLICE, made)
    assert "is not of node" in await deletion(plugin, RESOURCE_SLICE, "other")


async def test_a_slice_of_all_nodes_or_of_another_driver_is_refused(
    plugin: Client, admin: Client
) -> None:
    everywhere = resource_slice("everywhere")
    del everywhere["spec"]["nodeName"]
    everywhere["spec"]["allNodes"] = True
    assert "must be" in await refusal(plugin, RESOURCE_SLICE, everywhere)
    nic = resource_slice("nic", driver="nic.example.com")
    assert "must be" in await refusal(plugin, RESOURCE_SLICE, nic)
    assert await refusal(admin, RESOURCE_SLICE, nic) == ""
    assert "of another driver" in await deletion(plugin, RESOURCE_SLICE, "nic")


async def test_a_token_that_names_no_node_writes_nothing(kubeconfig: str) -> None:
    async with connected(kubeconfig, PLUGIN, "") as nowhere:
        assert "names no node" in await refusal(nowhere, RESOURCE_SLICE, resource_slice("s"))
    async with connected(kubeconfig, AGENT, "") as nowhere:
        assert "names no node" in await refusal(nowhere, PHYSICAL_GPU, gpu())
        assert "names no node" in await refusal(nowhere, NODE, {"metadata": {"name": "node-0"}})


async def test_an_event_speaks_for_its_own_node(plugin: Client) -> None:
    await plugin.create(EVENT, event("own", "node-0"), Meta)
    with pytest.raises(ForbiddenError, match=r'source\.host must be "node-0"'):
        await plugin.create(EVENT, event("other", "node-1"), Meta)


def device(pool: str, driver: str = "gpu.deckhouse.io") -> dict[str, Any]:
    return {"driver": driver, "pool": pool, "device": "gpu-0"}


@pytest_asyncio.fixture
async def claim(admin: Client) -> AsyncIterator[dict[str, Any]]:
    """A claim that holds a card of each node and a network device, all with a status."""
    name = {"name": "c", "namespace": "default"}
    asked = [{"name": f"r{number}", "exactly": {"deviceClassName": "any"}} for number in range(3)]
    spec = {"devices": {"requests": asked}}
    await admin.create(RESOURCE_CLAIM, {"metadata": name, "spec": spec}, Meta)
    held = [device("node-0"), device("node-1"), device("node-0", "nic.example.com")]
    results = [each | {"request": f"r{number}"} for number, each in enumerate(held)]
    status = {"allocation": {"devices": {"results": results}}, "devices": held}
    body = {"metadata": name, "status": status}
    await admin.apply(RESOURCE_CLAIM, body, Meta, manager="admin", subresource="status")
    # The right that the plugin gets with the writing of claims; the policies hold without it too.
    rules = [
        {"apiGroups": ["resource.k8s.io"], "verbs": ["patch", "update"],
         "resources": ["resourceclaims", "resourceclaims/status", "resourceclaims/binding"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"],
         "verbs": ["arbitrary-node:update", "arbitrary-node:patch"]},
    ]  # fmt: skip
    role = Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles")
    bound = Resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings")
    await admin.apply(role, {"metadata": {"name": "test"}, "rules": rules}, Meta, manager="test")
    ref = {"apiGroup": role.group, "kind": role.kind, "name": "test"}
    subjects = [{"kind": "ServiceAccount", "name": PLUGIN, "namespace": SYSTEM}]
    body = {"metadata": {"name": "test"}, "roleRef": ref, "subjects": subjects}
    await admin.apply(bound, body, Meta, manager="test")
    yield {"metadata": name, "status": status}
    await admin.delete(RESOURCE_CLAIM, "c", namespace="default")
    await admin.delete(bound, "test")


async def test_of_a_claim_only_the_own_devices_status_is_written(
    plugin: Client, claim: dict[str, Any]
) -> None:
    async def refused(patch: dict[str, Any], subresource: str = "status") -> str:
        try:
            await plugin.merge_patch(
                RESOURCE_CLAIM, "c", patch, Meta, namespace="default", subresource=subresource
            )
        except ForbiddenError as error:
            return str(error)
        return ""

    held = claim["status"]["devices"]
    seen = {"data": {"uuid": "GPU-1"}}

    async def written() -> bool:
        return not await refused({"status": {"devices": [held[0] | seen, *held[1:]]}})

    await until(written)  # Roles are taken up a moment after they were made.
    for number in (1, 2):
        changed = [dict(each) for each in held]
        changed[number] |= seen
        assert "only entries of this driver and of pool" in await refused(
            {"status": {"devices": changed}}
        )
        missing = [each for at, each in enumerate(held) if at != number]
        assert "only entries of this driver" in await refused({"status": {"devices": missing}})
    assert "are the scheduler's" in await refused({"status": {"allocation": None}})
    pods = [{"resource": "pods", "name": "p", "uid": "1"}]
    assert "are the scheduler's" in await refused({"status": {"reservedFor": pods}})
    assert "only status.devices may be written" in await refused(
        {"metadata": {"labels": {"a": "b"}}}, ""
    )


async def test_the_charts_role_lets_the_plugin_describe_the_devices_of_a_claim(
    kubeconfig: str, admin: Client, plugin: Client
) -> None:
    name = {"name": "described", "namespace": "default"}
    asked = [{"name": "r0", "exactly": {"deviceClassName": "any"}}]
    await admin.create(
        RESOURCE_CLAIM, {"metadata": name, "spec": {"devices": {"requests": asked}}}, Meta
    )
    here = {"key": "metadata.name", "operator": "In", "values": ["node-0"]}
    allocation = {
        "devices": {"results": [device("node-0") | {"request": "r0"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
    }
    body = {"metadata": name, "status": {"allocation": allocation}}
    made = await admin.apply(RESOURCE_CLAIM, body, Meta, manager="admin", subresource="status")
    since = "2026-01-01T00:00:00Z"
    ready = {"type": "Ready", "status": "True", "reason": "Prepared", "message": "",
             "lastTransitionTime": since, "observedGeneration": None}  # fmt: skip
    said = device("node-0") | {"data": {"uuid": "MIG-1"}, "conditions": [ready]}
    told = {"metadata": name | {"uid": made.metadata.uid}, "status": {"devices": [said]}}
    assert await refusal(plugin, RESOURCE_CLAIM, told, "status") == ""
    found = await admin.get(RESOURCE_CLAIM, "described", dict, namespace="default")
    assert found["status"]["devices"][0]["data"] == {"uuid": "MIG-1"}
    async with connected(kubeconfig, PLUGIN, "node-1") as other:
        refused = await refusal(other, RESOURCE_CLAIM, told | {"status": {"devices": []}}, "status")
        # Before 1.36 the API server has no right of its own for it, and the policy alone refuses.
        assert "resourceclaims/driver" in refused or "the node of the token" in refused
    replaced = {"metadata": name | {"uid": "another"}, "status": {"devices": []}}
    assert await refusal(plugin, RESOURCE_CLAIM, replaced, "status") != ""
    told["status"] = {"devices": []}
    assert await refusal(plugin, RESOURCE_CLAIM, told, "status") == ""
    found = await admin.get(RESOURCE_CLAIM, "described", dict, namespace="default")
    assert not found["status"].get("devices")
    await admin.delete(RESOURCE_CLAIM, "described", namespace="default")
