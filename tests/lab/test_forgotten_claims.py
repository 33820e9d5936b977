# SPDX-License-Identifier: Apache-2.0
"""Claims that the kubelet has forgotten are given back, and no container loses what it has."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.test_parts import SMALL, asking, instances, offered, part_class, resource
from tests.lab.test_restarts import all_ready
from tests.support.lab import NAMESPACE, Lab, pod

KUBELET = "/var/lib/kubelet"
FORGOTTEN_SECONDS = 5
STUCK = (
    "pid=$(pgrep -x gpu-burn); "
    "group=/sys/fs/cgroup/freezer$(sed -n 's/^[0-9]*:freezer://p' /proc/$pid/cgroup); "
    "stuck=${group%/stuck}/stuck"
)
"""A control group of the test's in that of the container: runc thaws only its own."""
FREEZE = "echo FROZEN > $stuck/freezer.state"


@pytest.fixture
def quick(lab: Lab) -> Iterator[Lab]:
    """The lab with a class for partitions, whose plugin takes claims for forgotten soon."""
    lab.apply(part_class(SMALL, "1g.10gb"))
    set_forgotten(lab, f"={FORGOTTEN_SECONDS}")
    lab.eventually("node-0 offers partitions", lambda: any("mig-" in name for name in offered(lab)))
    yield lab
    lab.kubectl("delete", "pods", "-l", "test=lab", "--wait=true", "--ignore-not-found")
    lab.eventually("no partition is left", lambda: not instances(lab))
    lab.kubectl("delete", "gpuclasses", SMALL)
    set_forgotten(lab, "-")


def set_forgotten(lab: Lab, value: str) -> None:
    """Set or take away the variable of the plugin, and wait for the update of its DaemonSet."""
    what = ("daemonset/nvidia-adapter", "-n", NAMESPACE)
    lab.kubectl("set", "env", *what, "-c", "dra-plugin", f"GPUDECK_FORGOTTEN_SECONDS{value}")
    lab.kubectl("rollout", "status", *what, "--timeout=90s")
    lab.eventually("every pod of gpudeck is ready", lambda: all_ready(lab), seconds=90)


def in_node(lab: Lab, script: str) -> str:
    return lab.lab("shell", "node-0", "--", "sh", "-c", script, check=False)


def entries(lab: Lab) -> list[str]:
    """The UIDs of the claims in the checkpoint of node-0."""
    text = in_node(lab, f"cat {KUBELET}/plugins/gpu.deckhouse.io/checkpoint.json")
    return sorted(json.loads(text)["data"].get("claims") or {})


def specs(lab: Lab) -> list[str]:
    """The CDI files of ours on node-0."""
    return in_node(lab, "ls /var/run/cdi | grep k8s.gpu.deckhouse.io-claim").split()


def test_a_partition_of_a_pod_that_nobody_remembers_is_removed(quick: Lab) -> None:
    quick.apply(asking("lost", resource(SMALL)), pod("stays", limits={"nvidia.com/gpu": 1}))
    quick.running("lost", "stays")
    stays = quick.cards_inside("stays")
    node = quick.get("pod", "stays")
    kept = 1 if node is not None and node["spec"]["nodeName"] == "node-0" else 0
    assert (len(instances(quick)), len(entries(quick)), len(specs(quick))) == (
        1,
        1 + kept,
        1 + kept,
    )
    in_node(quick, f"pkill -KILL -x kubelet; rm {KUBELET}/dra_manager_state")
    quick.kubectl("delete", "pod", "lost", "--force", "--grace-period=0")
    assert len(entries(quick)) == 1 + kept
    quick.lab("node", "restart-kubelet", "node-0")
    quick.eventually("the partition is removed", lambda: not instances(quick), seconds=90)
    quick.eventually("its entry and spec are gone", lambda: len(entries(quick)) == kept, seconds=30)
    assert len(specs(quick)) == kept
    assert quick.cards_inside("stays") == stays
    quick.apply(asking("next", resource(SMALL)))
    quick.running("next")


def test_a_container_that_goes_on_keeps_its_partition_though_all_have_forgotten_it(
    quick: Lab,
) -> None:
    if not Path("/sys/fs/cgroup/freezer").is_dir():
        pytest.skip("only cgroup version 1 can hold up a process that is being killed")
    quick.apply(asking("stuck", resource(SMALL)))
    quick.running("stuck")
    in_node(quick, f"{STUCK}; mkdir $stuck; echo $pid > $stuck/cgroup.procs; {FREEZE}")
    try:
        in_node(quick, f"pkill -KILL -x kubelet; rm {KUBELET}/dra_manager_state")
        quick.kubectl("delete", "pod", "stuck", "--force", "--grace-period=0")
        quick.lab("node", "restart-kubelet", "node-0")
        until = time.monotonic() + 5 * FORGOTTEN_SECONDS
        while time.monotonic() < until:
            held = len(entries(quick)), len(specs(quick)), len(instances(quick))
            assert held == (1, 1, 1), "a container has lost its partition"
        assert in_node(quick, "pgrep -x gpu-burn").split(), "the container has ended by itself"
    finally:
        in_node(quick, f"{STUCK}; echo THAWED > $stuck/freezer.state")
    quick.eventually("its partition is removed", lambda: not instances(quick), seconds=150)
    quick.eventually("its entry is gone", lambda: entries(quick) == specs(quick) == [])
