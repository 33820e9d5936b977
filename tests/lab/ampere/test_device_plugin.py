# SPDX-License-Identifier: Apache-2.0
"""Device plugin mode: whole and sliced cards, and groups of nodes.

What is asked of the cluster is asked by the manifests of examples/ alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.ampere.chart import (
    NAMESPACE,
    NODE,
    SHARED,
    SLICING,
    WHOLE,
    allocatable,
    install,
    offers,
)
from tests.support.deckhouse import NODE_GROUPS
from tests.support.lab import ROOT, Lab, Object, is_ready, pod

GROUPS = ROOT / "examples" / "13-node-groups"
CONFIG = "nvidia.com/device-plugin.config"


def labels_of(lab: Lab) -> dict[str, str]:
    node = lab.get("node", NODE)
    assert node is not None
    return dict(node["metadata"]["labels"])


def labelled(lab: Lab, **wanted: str | None) -> None:
    """Wait until the node has labels of NVIDIA's domain; None is for one that it has not."""
    expected = {f"nvidia.com/{key.replace('_', '.')}": value for key, value in wanted.items()}
    lab.eventually(
        f"{NODE} has the labels {expected}",
        lambda: {key: labels_of(lab).get(key) for key in expected} == expected,
    )


def test_the_chart_offers_whole_cards_where_nobody_chose_a_config(lab: Lab) -> None:
    offers(lab, whole=4, shared=0)
    lab.apply(pod("whole", limits={WHOLE: 2}))
    lab.running("whole")
    assert len(set(lab.cards_inside("whole"))) == 2
    lab.delete("pod", "whole")
    labelled(lab, gpu_count="4", gpu_replicas="1", gpu_product="NVIDIA-A100-SXM4-40GB")


def test_a_label_slices_the_cards_and_its_end_gives_them_back_whole(lab: Lab) -> None:
    lab.kubectl("label", "node", NODE, f"{CONFIG}=slice-4")
    try:
        offers(lab, shared=16, whole=0)
        labelled(lab, gpu_replicas="4")
        lab.kubectl("apply", "-f", str(SLICING / "replicaset.yaml"))
        lab.eventually(
            "five pods of the ReplicaSet run",
            lambda: sum(map(is_ready, lab.list("pods", "-l", "app=nvidia-test"))) == 5,
        )
        for each in lab.list("pods", "-l", "app=nvidia-test"):
            assert len(set(lab.cards_inside(each["metadata"]["name"]))) == 1
        lab.apply(pod("two", limits={SHARED: 2}, restartPolicy="Never"))
        lab.eventually("two shares are refused", lambda: lab.phase("two") == "Failed")
        refused = lab.get("pod", "two")
        assert refused is not None
        message = refused["status"]["message"]
        assert re.search(r"asks for 2 of nvidia.com/gpu.shared; allowed: 1", message)
        lab.kubectl("label", "node", NODE, f"{CONFIG}=slice-10", "--overwrite")
        offers(lab, shared=40, whole=0)
        assert sum(map(is_ready, lab.list("pods", "-l", "app=nvidia-test"))) == 5
    finally:
        lab.kubectl("label", "node", NODE, f"{CONFIG}-")
        lab.delete("replicaset", "nvidia-test-time-slice")
        lab.delete("pod", "two")
    lab.eventually("the pods are gone", lambda: not lab.list("pods", "-l", "app=nvidia-test"))
    offers(lab, whole=4, shared=0)


def test_a_card_of_an_init_container_is_not_sliced_before_its_pod_has_ended(lab: Lab) -> None:
    """The kubelet's API does not tell of that card, neither while the container runs nor later."""
    offers(lab, whole=4, shared=0)
    asking = pod("early", limits={WHOLE: 1})
    asking["spec"]["initContainers"] = asking["spec"]["containers"]
    asking["spec"]["containers"] = pod("late", command=("sleep", "36000"))["spec"]["containers"]
    asking["spec"]["initContainers"][0]["name"] = "first"
    lab.apply(asking)
    lab.eventually("the init container runs", lambda: _is_initialising(lab, "early"))
    lab.kubectl("label", "node", NODE, f"{CONFIG}=slice-4")
    try:
        offers(lab, shared=12, whole=0)
        lab.delete("pod", "early")
        offers(lab, shared=16, whole=0)
    finally:
        lab.delete("pod", "early")
        lab.kubectl("label", "node", NODE, f"{CONFIG}-")
    offers(lab, whole=4, shared=0)


def _is_initialising(lab: Lab, name: str) -> bool:
    found = lab.get("pod", name) or {}
    states = found.get("status", {}).get("initContainerStatuses", [])
    return any("running" in each["state"] for each in states)


HEEDED = """
devicePlugin:
  env:
    - {name: DP_DISABLE_HEALTHCHECKS, value: "74"}
    - {name: DP_ENABLE_HEALTHCHECKS, value: "13"}
"""


def test_the_chart_says_which_errors_of_the_driver_make_a_card_unhealthy(
    lab: Lab, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(HEEDED)
    lab.apply(pod("goes-on", limits={WHOLE: 4}))
    lab.running("goes-on")
    try:
        install(lab, "--values", str(values))
        lab.lab("gpu", NODE, "0", "xid", "74")
        lab.lab("gpu", NODE, "1", "xid", "13")
        offers(lab, whole=3, shared=0)
        assert sick(lab) == ["The driver raised Xid 13, which is set to count as the card's fault."]
        assert lab.phase("goes-on") == "Running"
    finally:
        lab.delete("pod", "goes-on")
        lab.lab("shell", NODE, "--", "nvidia-smi", "--gpu-reset", "-i", "0")
        install(lab)
    offers(lab, whole=4, shared=0)
    assert sick(lab) == []


def sick(lab: Lab) -> list[str]:
    """What is said of cards that are not healthy."""
    return [
        condition["message"]
        for each in lab.gpus().values()
        for condition in each["status"]["conditions"]
        if (condition["type"], condition["status"]) == ("HardwareHealthy", "False")
    ]


def test_no_card_of_a_device_plugin_is_cordoned(lab: Lab) -> None:
    said = lab.gpudeck("cordon", f"{NODE}/0", "--kubeconfig", lab.kubeconfig, check=False)
    assert "allowed: cards of nodes in DRA mode" in said


GROUP = "node.deckhouse.io/group"


def node_group(**gpu: object) -> Object:
    return {
        "apiVersion": "deckhouse.io/v1",
        "kind": "NodeGroup",
        "metadata": {"name": "gpus"},
        "spec": {"nodeType": "Static", "gpu": gpu},
    }


def daemon_sets(lab: Lab) -> set[str]:
    return {each["metadata"]["name"] for each in lab.list("daemonsets", "-n", NAMESPACE)}


@pytest.fixture
def deckhouse(lab: Lab) -> Iterator[Lab]:
    """The lab with the kind NodeGroup and its node in the group `gpus`; both go afterwards."""
    lab.apply(NODE_GROUPS)
    lab.kubectl("wait", "--for=condition=Established", "crd/nodegroups.deckhouse.io")
    lab.kubectl("label", "node", NODE, f"{GROUP}=gpus")
    yield lab
    lab.kubectl("delete", "crd", "nodegroups.deckhouse.io", "--ignore-not-found")
    lab.kubectl("label", "node", NODE, f"{GROUP}-")
    lab.eventually(
        "the group's DaemonSets go",
        lambda: not any(name.endswith("-gpus") for name in daemon_sets(lab)),
    )
    offers(lab, whole=4, shared=0)
    assert "node.deckhouse.io/gpu" not in labels_of(lab)
    labelled(lab, gpu_replicas="1")


def test_a_node_group_slices_its_nodes_and_gives_them_back(deckhouse: Lab) -> None:
    deckhouse.kubectl("apply", "-f", str(GROUPS / "nodegroup.yaml"))
    offers(deckhouse, whole=12, shared=0)
    assert labels_of(deckhouse)["node.deckhouse.io/device-gpu.config"] == "TimeSlicing"
    labelled(deckhouse, gpu_replicas="3")
    deckhouse.apply(node_group(sharing="Exclusive"))
    offers(deckhouse, whole=4, shared=0)
    deckhouse.apply(node_group(sharing="Halves"))
    deckhouse.eventually(
        "an Event names the field",
        lambda: (
            "spec.gpu.sharing: 'Halves' is not valid"
            in deckhouse.kubectl("get", "events", "-A", "--field-selector=reason=NodeGroupInvalid")
        ),
    )
    offers(deckhouse, whole=4, shared=0)
    assert labels_of(deckhouse)["gpu.deckhouse.io/node-group"] == "gpus"


def test_a_node_group_partitions_its_cards_and_makes_them_whole_again(deckhouse: Lab) -> None:
    halves = [{"index": card, "slices": [{"profile": "3g.20gb", "count": 2}]} for card in range(4)]
    deckhouse.apply(
        node_group(sharing="MIG", mig={"partedConfig": "custom", "customConfigs": halves})
    )
    part = "nvidia.com/mig-3g.20gb"
    deckhouse.eventually(
        f"{NODE} offers eight partitions",
        lambda: allocatable(deckhouse).get(part) == 8,
        seconds=180,
    )
    deckhouse.apply(pod("part", limits={part: 1}))
    deckhouse.running("part")
    deckhouse.delete("pod", "part")
    deckhouse.apply(node_group(sharing="Exclusive"))
    deckhouse.eventually(
        f"{NODE} offers whole cards",
        lambda: allocatable(deckhouse).get(WHOLE) == 4 and not allocatable(deckhouse).get(part),
        seconds=180,
    )


def test_a_group_of_the_chart_does_so_by_label(lab: Lab) -> None:
    lab.kubectl("label", "node", NODE, "pool=gpus")
    try:
        install(lab, "--values", str(GROUPS / "values.yaml"))
        offers(lab, whole=12, shared=0)
    finally:
        lab.kubectl("label", "node", NODE, "pool-")
    offers(lab, whole=4, shared=0)
