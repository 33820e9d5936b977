# SPDX-License-Identifier: Apache-2.0
"""One cluster with four kinds of node: whole cards, sliced cards, partitions, and DRA mode."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.lab.ampere.chart import NAMESPACE, PARTITIONS, SHARED, SLICING, WHOLE
from tests.lab.ampere.test_mig_manager import CONFIG as MIG_CONFIG
from tests.lab.ampere.test_mig_manager import MIDDLE, SEED, SMALL, inside
from tests.support.lab import Lab, Object, pod

pytestmark = pytest.mark.timeout(400)

WHOLE_NODE, SLICED_NODE, MIG_NODE, DRA_NODE = "node-0", "node-1", "node-2", "node-3"
CARDS = {WHOLE_NODE: 4, SLICED_NODE: 4, MIG_NODE: 4, DRA_NODE: 8}
OFFERED: dict[str, dict[str, int]] = {
    WHOLE_NODE: {WHOLE: 4},
    SLICED_NODE: {SHARED: 16},
    MIG_NODE: {SMALL: 12, MIDDLE: 8},
    DRA_NODE: {},
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """`GPUDECK_TEST_LAB=NAME` takes a lab that runs already and leaves it running."""
    given = os.environ.get("GPUDECK_TEST_LAB")
    found = Lab(given or "mixed")
    try:
        if not given:
            found.lab("down")
            machines = ["a100-40gb-x4"] * 3 + ["h100-x8"]
            found.lab("up", *(f"--machine={each}" for each in machines), timeout=3000)
        assert found.kubeconfig
        found.kubectl("apply", "-f", str(SLICING / "config.yaml"))
        found.kubectl("apply", "-f", str(PARTITIONS / "config.yaml"))
        label(found, SLICED_NODE, "nvidia.com/device-plugin.config=slice-4")
        label(found, MIG_NODE, f"{MIG_CONFIG}={SEED}")
        label(found, DRA_NODE, "gpu.deckhouse.io/mode=dra")
        values = (
            "dra.enabled=false",
            "mig.strategy=mixed",
            "devicePlugin.config.name=nvidia-time-slicing-config",
            "migManager.config.name=nvidia-mig-config",
        )
        found.lab("install", "--namespace", NAMESPACE, *(f"--set={each}" for each in values))
        yield found
    finally:
        if not given:
            found.lab("down")


def label(lab: Lab, node: str, text: str) -> None:
    lab.kubectl("label", "--overwrite", "node", node, text)


def offered(lab: Lab) -> dict[str, dict[str, int]]:
    """What each node's kubelet offers of NVIDIA's resources."""
    return {
        node["metadata"]["name"]: {
            name: int(count)
            for name, count in node["status"]["allocatable"].items()
            if name.startswith("nvidia.com/") and count != "0"
        }
        for node in lab.list("nodes")
        if node["metadata"]["name"] in OFFERED
    }


def sliced_nodes(lab: Lab) -> set[str]:
    """The nodes whose cards are devices of Dynamic Resource Allocation."""
    return {
        each["spec"].get("nodeName", "")
        for each in lab.list("resourceslices")
        if each["spec"]["driver"] == "gpu.deckhouse.io" and each["spec"].get("devices")
    }


def on(node: str, name: str, resource: str, count: int = 1) -> Object:
    return pod(name, limits={resource: count}, nodeSelector={"kubernetes.io/hostname": node})


def test_each_node_offers_in_its_own_way_and_its_pods_have_what_they_asked_for(lab: Lab) -> None:
    lab.eventually("every node offers in its way", lambda: offered(lab) == OFFERED, seconds=150)
    lab.eventually("one node is in DRA mode", lambda: sliced_nodes(lab) == {DRA_NODE})
    lab.apply(
        on(WHOLE_NODE, "whole", WHOLE, 2),
        on(SLICED_NODE, "shared", SHARED),
        on(MIG_NODE, "partition", MIDDLE),
        on(DRA_NODE, "claimed", WHOLE, 3),
    )
    lab.running("whole", "shared", "partition", "claimed")
    assert len(set(lab.cards_inside("whole"))) == 2
    assert len(set(lab.cards_inside("shared"))) == 1
    assert len(inside(lab, "partition")) == 1
    assert len(set(lab.cards_inside("claimed"))) == 3
    held = {
        name: gpu["status"]["occupancy"]["state"]
        for name, gpu in lab.gpus().items()
        if gpu["status"].get("occupancy", {}).get("state", "Free") != "Free"
    }
    busy = {node: sum(name.startswith(f"{node}-") for name in held) for node in CARDS}
    assert busy == {WHOLE_NODE: 2, SLICED_NODE: 1, MIG_NODE: 1, DRA_NODE: 3}


def test_pods_that_name_no_node_find_whole_cards_in_both_modes(lab: Lab) -> None:
    left = (CARDS[WHOLE_NODE] - 2) + (CARDS[DRA_NODE] - 3)  # After the test above.
    names = [f"any-{index}" for index in range(left + 5)]
    lab.apply(*(pod(name, limits={WHOLE: 1}) for name in names))
    try:
        lab.eventually(
            "as many run as there are whole cards left",
            lambda: sum(lab.phase(name) == "Running" for name in names) == left,
            seconds=90,
        )
        nodes = [lab.get("pod", name)["spec"].get("nodeName") for name in names]  # type: ignore[index]
        assert {each for each in nodes if each} == {WHOLE_NODE, DRA_NODE}
    finally:
        lab.kubectl("delete", "pods", "-l", "test=lab", "--wait=true", "--ignore-not-found")
