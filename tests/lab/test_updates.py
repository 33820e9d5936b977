# SPDX-License-Identifier: Apache-2.0
"""The DaemonSet is updated while claims come and go: two plugins serve at once, and nobody waits.

The new pod of each node serves before the old one goes (maxSurge 1). What became of the
cards is read from the simulated driver's own state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.lab.test_parts import (
    SMALL,
    asking,
    instances,
    migs_inside,
    offered,
    overlapping,
    part_class,
    resource,
)
from tests.lab.test_restarts import all_ready
from tests.support.lab import NAMESPACE, Lab, is_ready, pod

CLAIMS = 24
"""That many come and go, however many updates that takes."""
LIMIT_SECONDS = 240
PACE_SECONDS = 1.0
"""Between changes: cards this slow make and remove some three partitions in it."""
SLOW_MILLISECONDS = 2
"""Of each driver call: a partition then takes some tenths of a second."""
DAEMONSET = "nvidia-adapter"
PREFIX = "update-"
"""Of the names of this test's pods: events of others are still there."""


@pytest.fixture
def small(lab: Lab) -> Iterator[Lab]:
    """The lab with a class for partitions, and cards so slow that calls are cut by an update."""
    lab.apply(part_class(SMALL, "1g.10gb"))
    for index in range(8):
        lab.lab("gpu", "node-0", str(index), "slow", str(SLOW_MILLISECONDS))
    lab.eventually("node-0 offers partitions", lambda: any("mig-" in name for name in offered(lab)))
    yield lab
    lab.kubectl("delete", "pods", "-l", "test=lab", "--wait=true", "--ignore-not-found")
    lab.eventually("no partition is left", lambda: not instances(lab))
    lab.kubectl("delete", "gpuclasses", SMALL)
    for index in range(8):
        lab.lab("gpu", "node-0", str(index), "clear")


def is_updated(lab: Lab) -> bool:
    """Whether every node has the new pod alone."""
    found = lab.get("daemonset", DAEMONSET, NAMESPACE)
    assert found is not None
    status, wanted = found["status"], found["status"]["desiredNumberScheduled"]
    is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
    pods = lab.list("pods", "-n", NAMESPACE, "-l", f"app.kubernetes.io/component={DAEMONSET}")
    return is_seen and status.get("updatedNumberScheduled") == wanted == len(pods)


def failures(lab: Lab) -> list[str]:
    """What the kubelet says of claims of this test's pods that it could not prepare."""
    return [
        f"{each['involvedObject']['name']}: {each.get('message')}"
        for each in lab.list("events")
        if each["reason"] in ("FailedPrepareDynamicResources", "FailedUnprepareDynamicResources")
        and each["involvedObject"]["name"].startswith(PREFIX)
    ]


def test_claims_come_and_go_while_two_plugins_serve(small: Lab) -> None:
    kept = "kept-part", "kept-card"
    small.apply(asking(kept[0], resource(SMALL)), pod(kept[1], limits={"nvidia.com/gpu": 1}))
    small.running(*kept)
    before = migs_inside(small, kept[0]), small.cards_inside(kept[1])
    made, ran, gone = 0, set[str](), set[str]()
    begin, updates = time.monotonic(), 0
    while made < CLAIMS or updates < 2:
        updates += 1
        small.kubectl("rollout", "restart", f"daemonset/{DAEMONSET}", "-n", NAMESPACE)
        while not is_updated(small):
            assert time.monotonic() < begin + LIMIT_SECONDS, small.picture()
            fresh = [f"{PREFIX}{made + number}" for number in range(8 - made + len(gone))]
            made += len(fresh)
            small.apply(*(asking(name, resource(SMALL)) for name in fresh))
            assert overlapping(instances(small)) == []
            pods = small.list("pods", "-l", "test=lab")
            running = {each["metadata"]["name"] for each in pods if is_ready(each)}
            done = sorted(name for name in running if name.startswith(PREFIX))[:3]
            assert all(migs_inside(small, name) for name in done)
            ran.update(running)
            gone.update(done)
            if done:
                small.kubectl("delete", "pod", *done, "--wait=false")
            time.sleep(PACE_SECONDS)
    left = [name for number in range(made) if (name := f"{PREFIX}{number}") not in gone]
    small.running(*left)
    small.eventually("every pod of gpudeck is ready", lambda: all_ready(small))
    assert not failures(small), "\n".join(failures(small))
    small.eventually(
        "one partition for each pod", lambda: len(instances(small)) == len(left) + 1, seconds=90
    )
    assert (migs_inside(small, kept[0]), small.cards_inside(kept[1])) == before
