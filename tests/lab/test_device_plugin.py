# SPDX-License-Identifier: Apache-2.0
"""Device plugin mode: the chart installed as the manifests of examples/ want it, in kube-system.

One node with four A100. What is asked of the cluster is asked by those manifests alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from tests.support.lab import ROOT, Lab, is_ready, pod

NODE, NAMESPACE = "node-0", "kube-system"
SLICING = ROOT / "examples" / "10-time-slicing"
CONFIG = "nvidia.com/device-plugin.config"
WHOLE, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """`GPUDECK_TEST_LAB=NAME` takes a lab that runs already and leaves it running."""
    given = os.environ.get("GPUDECK_TEST_LAB")
    found = Lab(given or "plugin")
    try:
        if not given:
            found.lab("down")
            found.lab("up", "--machine", "a100-40gb-x4", timeout=3000)
        assert found.kubeconfig
        found.kubectl("apply", "-f", str(SLICING / "config.yaml"))
        install(found)
        yield found
    finally:
        if not given:
            found.lab("down")


def install(lab: Lab, *values: str) -> None:
    wanted = (
        "dra.enabled=false",
        "mig.strategy=mixed",
        "devicePlugin.config.name=nvidia-time-slicing-config",
        *values,
    )
    lab.lab("install", "--namespace", NAMESPACE, *(f"--set={each}" for each in wanted))


def allocatable(lab: Lab) -> dict[str, int]:
    """What the node offers of resources of NVIDIA's domain."""
    node = lab.get("node", NODE)
    assert node is not None
    found = node["status"]["allocatable"]
    return {name: int(count) for name, count in found.items() if name.startswith("nvidia.com/")}


def offers(lab: Lab, **counts: int) -> None:
    names = {"whole": WHOLE, "shared": SHARED}
    wanted = {names[word]: count for word, count in counts.items()}
    lab.eventually(
        f"{NODE} offers {wanted}",
        lambda: {name: allocatable(lab).get(name, 0) for name in wanted} == wanted,
    )


def test_the_chart_offers_whole_cards_where_nobody_chose_a_config(lab: Lab) -> None:
    offers(lab, whole=4, shared=0)
    lab.apply(pod("whole", limits={WHOLE: 2}))
    lab.running("whole")
    assert len(set(lab.cards_inside("whole"))) == 2
    lab.delete("pod", "whole")


def test_a_label_slices_the_cards_and_its_end_gives_them_back_whole(lab: Lab) -> None:
    lab.kubectl("label", "node", NODE, f"{CONFIG}=slice-4")
    try:
        offers(lab, shared=16, whole=0)
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
