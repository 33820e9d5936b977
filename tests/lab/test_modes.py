# SPDX-License-Identifier: Apache-2.0
"""Two nodes, one in each mode, exchange their modes: the same pods run before and after, unedited.

node-0 begins in DRA mode, the default of the release, node-1 by its label with the device plugin
and sliced cards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.lab.test_parts import migs_inside
from tests.support.lab import NAMESPACE, Lab, Object, is_ready, pod

DRA, PLUGIN = "dra", "device-plugin"
MODE, ACTIVE = "gpu.deckhouse.io/mode", "gpu.deckhouse.io/active-mode"
WHOLE, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
PRODUCT, A100 = "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB"
CONFIG, MIG_CONFIG = "nvidia.com/device-plugin.config", "nvidia.com/mig.config"
PART = "nvidia.com/mig-1g.5gb"
SLICES = """\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
"""
SECONDS = 120.0


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """`GPUDECK_TEST_LAB=NAME` takes a lab that runs already and leaves it running."""
    given = os.environ.get("GPUDECK_TEST_LAB")
    found = Lab(given or "modes")
    try:
        if not given:
            found.lab("down")
            machines = ("--machine", "a100-40gb-x4", "--machine", "a100-40gb-x4")
            found.lab("up", *machines, timeout=3000)
        assert found.kubeconfig
        found.kubectl("label", "--overwrite", "node", "node-1", f"{MODE}={PLUGIN}")
        found.kubectl("label", "--overwrite", "node", "node-1", f"{CONFIG}=slice-4")
        values = (
            "sharedClass.create=true",
            "partitionClasses=Auto",
            "mig.strategy=mixed",
            "devicePlugin.config.name=slices",
        )
        found.lab("install", *(f"--set={each}" for each in values))
        found.apply(config_map())
        yield found
    finally:
        if not given:
            found.lab("down")


def config_map() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slices", "namespace": NAMESPACE},
        "data": {"slice-4": SLICES},
    }


def replica_set(name: str, node: str, **limits: int) -> Object:
    """What a user has: nothing in it says in which mode its node is."""
    made = pod(name, limits=limits)
    spec = made["spec"] | {"nodeSelector": {"kubernetes.io/hostname": node, PRODUCT: A100}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name, "test": "lab"}}, "spec": spec},
        },
    }


def pods(lab: Lab, app: str) -> dict[str, Object]:
    """The pods of a ReplicaSet that are ready, by UID."""
    return {
        each["metadata"]["uid"]: each
        for each in lab.list("pods", "-l", f"app={app}")
        if is_ready(each)
    }


def two_run(lab: Lab, app: str, before: dict[str, Object]) -> dict[str, Object]:
    """Wait until both pods of a ReplicaSet run, and none of those before."""
    found: dict[str, Object] = lab.eventually(
        f"two pods of {app} run",
        lambda: found if len(found := pods(lab, app)) == 2 and not found.keys() & before else None,
        seconds=SECONDS,
    )
    for each in found.values():
        assert len(set(lab.cards_inside(each["metadata"]["name"]))) == 1
    return found


def claims(lab: Lab, found: dict[str, Object]) -> int:
    """How many of the pods have a claim that the scheduler made for them."""
    return sum("extendedResourceClaimStatus" in each["status"] for each in found.values())


def node(lab: Lab, name: str) -> dict[str, Any]:
    found = lab.get("node", name)
    assert found is not None
    said = [each for each in found["status"]["conditions"] if each["type"] == "GPUModeActive"]
    taints = found["spec"].get("taints", [])
    return {
        "active": found["metadata"]["labels"].get(ACTIVE),
        "said": said[0] if said else {},
        "tainted": any(each["key"] == "gpu.deckhouse.io/mode-change" for each in taints),
        "offers": {
            key: count
            for key, count in found["status"]["allocatable"].items()
            if key.startswith("nvidia.com/") and count != "0"
        },
        "slices": sum(
            each["spec"].get("nodeName") == name and each["spec"]["driver"] == "gpu.deckhouse.io"
            for each in lab.list("resourceslices")
        ),
    }


def settled(lab: Lab, name: str, mode: str) -> None:
    """Wait until a node is in a mode, and see that it is in this one alone."""

    def done() -> bool:
        found = node(lab, name)
        is_told = found["said"].get("reason") == "ModeActive"
        # While a new config comes into force, the kubelet may have heard of its end alone.
        is_offered = bool(found["slices"] if mode == DRA else found["offers"])
        return found["active"] == mode and not found["tainted"] and is_told and is_offered

    lab.eventually(f"{name} is in mode {mode}", done, seconds=SECONDS)
    found = node(lab, name)
    assert not found["offers"] if mode == DRA else not found["slices"]


def kill_controller(lab: Lab) -> None:
    """End it without a word as soon as both nodes are tainted."""
    nodes = ("node-0", "node-1")
    lab.eventually("both change", lambda: all(node(lab, each)["tainted"] for each in nodes))
    chosen = ("-n", NAMESPACE, "-l", "app.kubernetes.io/component=gpu-controller")
    lab.kubectl("delete", "pods", *chosen, "--force", "--grace-period=0", "--wait=false")


def wish(lab: Lab, name: str, mode: str) -> None:
    lab.kubectl("label", "--overwrite", "node", name, f"{MODE}={mode}")


def test_two_nodes_exchange_their_modes_and_the_same_pods_run(lab: Lab) -> None:
    settled(lab, "node-0", DRA)
    settled(lab, "node-1", PLUGIN)
    lab.eventually("shares are offered", lambda: node(lab, "node-1")["offers"] == {SHARED: "16"})
    lab.apply(
        replica_set("whole", "node-0", **{WHOLE: 1}),
        replica_set("shared", "node-1", **{SHARED: 1}),
        pod("plain", command=("sleep", "36000"), nodeName="node-0"),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "whole"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "whole"}}},
        },
    )
    try:
        lab.running("plain")
        plain = lab.get("pod", "plain")
        whole, shared = two_run(lab, "whole", {}), two_run(lab, "shared", {})
        assert (claims(lab, whole), claims(lab, shared)) == (2, 0)
        wish(lab, "node-0", PLUGIN)
        wish(lab, "node-1", DRA)
        shared = two_run(lab, "shared", shared)
        settled(lab, "node-1", DRA)
        assert claims(lab, shared) == 2
        lab.eventually(
            "the budget is said to be in the way",
            lambda: "disruption budget whole" in node(lab, "node-0")["said"].get("message", ""),
        )
        assert pods(lab, "whole").keys() == whole.keys()
        text = lab.gpudeck("get", "nodes", "--kubeconfig", lab.kubeconfig)
        assert "changing to device-plugin" in text
        lab.delete("poddisruptionbudget", "whole")
        whole = two_run(lab, "whole", whole)
        settled(lab, "node-0", PLUGIN)
        assert claims(lab, whole) == 0
        wish(lab, "node-0", DRA)
        wish(lab, "node-1", PLUGIN)
        kill_controller(lab)
        whole, shared = two_run(lab, "whole", whole), two_run(lab, "shared", shared)
        settled(lab, "node-0", DRA)
        settled(lab, "node-1", PLUGIN)
        assert (claims(lab, whole), claims(lab, shared)) == (2, 0)
        after = lab.get("pod", "plain")
        assert plain is not None
        assert after is not None
        assert after["metadata"]["uid"] == plain["metadata"]["uid"]
    finally:
        lab.delete("poddisruptionbudget", "whole")
        lab.delete("replicaset", "whole", "shared")
        lab.delete("pod", "plain")


def test_pods_with_partitions_run_in_either_mode(lab: Lab) -> None:
    """In device plugin mode the MIG manager makes them ahead, in DRA mode each pod has its own."""
    settled(lab, "node-1", PLUGIN)
    lab.kubectl("label", "--overwrite", "node", "node-1", f"{MIG_CONFIG}=all-1g.5gb")
    parts: dict[str, Object] = {}
    try:
        lab.eventually(
            "partitions are offered",
            lambda: node(lab, "node-1")["offers"].get(PART) == "28",
            seconds=SECONDS,
        )
        lab.apply(replica_set("parts", "node-1", **{PART: 1}))
        for mode in (PLUGIN, DRA, PLUGIN):
            wish(lab, "node-1", mode)
            if mode != PLUGIN or parts:
                settled(lab, "node-1", mode)
            parts = two_run(lab, "parts", parts)
            assert claims(lab, parts) == (2 if mode == DRA else 0)
            seen = [migs_inside(lab, each["metadata"]["name"]) for each in parts.values()]
            assert [len(each) for each in seen] == [1, 1]
            assert seen[0] != seen[1]
    finally:
        lab.delete("replicaset", "parts")
        lab.kubectl("label", "--overwrite", "node", "node-1", f"{MIG_CONFIG}=all-disabled")
