# SPDX-License-Identifier: Apache-2.0
"""The classes that gpudeck makes itself, and what the status of a class says of real nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.lab import NAMESPACE, Lab, pod

RESOURCE = "nvidia.com/mig-1g.10gb"
NAME = "mig-1g.10gb"
OLD = [f"old-{index}" for index in range(3)]
BURN = ("gpu-burn", "-m", "512", "36000")


@pytest.fixture
def shipped(lab: Lab) -> Iterator[Lab]:
    """The lab as it is with the chart's partitionClasses: Auto."""
    choose(lab, "Auto")
    lab.eventually("the classes are Ready", lambda: counts(lab, NAME))
    yield lab
    lab.kubectl("delete", "pods", "-l", "test=lab", "--wait=true", "--ignore-not-found")
    choose(lab, "None")
    lab.eventually("the classes are gone", lambda: lab.get("gpuclass", NAME) is None, seconds=120)


def choose(lab: Lab, choice: str) -> None:
    """Set what the chart's value sets, and wait until that controller is the only one."""
    target = ("deployment/gpu-controller", "-n", NAMESPACE)
    lab.kubectl("set", "env", *target, f"GPUDECK_PARTITION_CLASSES={choice}")
    lab.kubectl("rollout", "status", *target, "--timeout=90s")


def counts(lab: Lab, name: str) -> tuple[int, int, int] | None:
    """Devices, free and allocated of a class, once there are any."""
    found: dict[str, Any] = (lab.get("gpuclass", name) or {}).get("status", {})
    devices = found.get("matching", {}).get("devices")
    return (devices, found["free"], found["allocated"]) if devices else None


def test_pods_ask_for_a_profile_by_its_old_name_and_the_class_counts_what_is_left(
    shipped: Lab,
) -> None:
    shipped.eventually("all places are free", lambda: counts(shipped, NAME) == (56, 56, 0))
    shipped.apply(*(pod(name, limits={RESOURCE: 1}, command=BURN) for name in OLD))
    shipped.running(*OLD)
    shipped.eventually("three are held", lambda: counts(shipped, NAME) == (56, 53, 3))
    shipped.eventually("one card is no longer whole", lambda: counts(shipped, "gpu") == (12, 11, 0))
    shipped.kubectl("delete", "gpuclass", NAME)
    shipped.eventually("the class is back", lambda: counts(shipped, NAME) == (56, 53, 3))
    shipped.running(*OLD)


def test_cards_of_a_node_whose_adapter_is_gone_are_not_free(lab: Lab) -> None:
    lab.eventually("all cards are free", lambda: counts(lab, "gpu") == (12, 12, 0))
    place(lab, {"kubernetes.io/hostname": "node-0"})
    try:
        lab.eventually("four are less", lambda: counts(lab, "gpu") == (8, 8, 0), seconds=120)
        phases = {name: card["status"]["phase"] for name, card in lab.gpus().items()}
        assert {name.startswith("node-1"): phase for name, phase in phases.items()} == {
            True: "NotReady",
            False: "Ready",
        }
    finally:
        place(lab, {"kubernetes.io/hostname": None})
    lab.eventually("all are back", lambda: counts(lab, "gpu") == (12, 12, 0), seconds=120)


def place(lab: Lab, labels: dict[str, str | None]) -> None:
    """Say on which nodes the adapter may run besides what the chart says."""
    patch = {"spec": {"template": {"spec": {"nodeSelector": labels}}}}
    words = ("daemonset", "nvidia-adapter", "-n", NAMESPACE, "--type=merge")
    lab.kubectl("patch", *words, "-p", json.dumps(patch))
