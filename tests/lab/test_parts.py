# SPDX-License-Identifier: Apache-2.0
"""Partitions made on demand, shares, and whole cards, side by side and never two on one card.

What became of the cards is read from the simulated driver's own state, not from gpudeck.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lab.test_restarts import PROCESSES, kill_one
from tests.support.lab import Lab, Object, gpu_class, is_ready, pod

from gpudeck.lab import hardware, state

IS_SOAK = bool(os.environ.get("GPUDECK_SOAK"))
STORM_SECONDS = 3600 if IS_SOAK else 120
SMALL, ANY_SIZE = "part-1g", "part-any"
_MIG = re.compile(r"MIG-[0-9a-f-]{36}")


@pytest.fixture
def parts(lab: Lab) -> Iterator[Lab]:
    """The lab with classes for partitions of several sizes and for shares."""
    lab.apply(
        part_class(SMALL, "1g.10gb"),
        part_class("part-2g", "2g.20gb"),
        part_class("part-3g", "3g.40gb"),
        {**gpu_class("shared"), "spec": {"vendor": "nvidia", "devices": ["Share"]}},
    )
    lab.eventually("node-0 offers partitions", lambda: any("mig-" in name for name in offered(lab)))
    yield lab
    lab.kubectl("delete", "pods", "-l", "test=lab", "--wait=true", "--ignore-not-found")
    lab.eventually("no partition is left", lambda: not instances(lab))
    lab.kubectl("delete", "gpuclasses", SMALL, "part-2g", "part-3g", "shared")


def part_class(name: str, profile: str) -> Object:
    """A GPUClass of partitions of one profile."""
    spec = {"vendor": "nvidia", "devices": ["Partition"], "partition": {"profiles": [profile]}}
    return {**gpu_class(name), "spec": spec}


def asking(name: str, resource: str, **more: Any) -> Object:
    """A pod that holds a little memory of what it asks for."""
    command = ("gpu-burn", "-m", "512", "36000")
    return pod(name, limits={resource: 1}, command=command, **more)


def resource(name: str) -> str:
    return f"gpu.deckhouse.io/{name}"


def offered(lab: Lab, node: str = "node-0") -> list[str]:
    """Names of the devices that a node offers."""
    return [
        device["name"]
        for each in lab.list("resourceslices")
        if each["spec"].get("nodeName") == node
        for device in each["spec"].get("devices", [])
    ]


def instances(lab: Lab, node: str = "node-0") -> list[tuple[int, int, int]]:
    """Card, start and size of every MIG instance that the simulated driver has."""
    folder = state.folder(lab.name)
    found = state.running(folder)
    shown = hardware.simulated(folder, found.node(node), Path(found.artifacts)).show()
    return [
        (card["index"], each["start"], each["size"])
        for card in shown["cards"]
        for each in card["state"]["instances"]
    ]


def overlapping(found: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Slices of cards that two instances have."""
    slices = [(card, place) for card, start, size in found for place in range(start, start + size)]
    return sorted({each for each in slices if slices.count(each) > 1})


def migs_inside(lab: Lab, name: str) -> list[str]:
    return _MIG.findall(lab.kubectl("exec", name, "--", "nvidia-smi", "-L", check=False))


def test_fifty_six_small_pods_fill_eight_cards(parts: Lab) -> None:
    names = [f"small-{index:02d}" for index in range(56)]
    parts.apply(*(asking(name, resource(SMALL)) for name in names))
    parts.running(*names, seconds=240)
    found = instances(parts)
    assert sorted(found) == [(card, start, 1) for card in range(8) for start in range(7)]
    seen = [uuid for name in names[::7] for uuid in migs_inside(parts, name)]
    assert len(seen) == len(set(seen)) == 8
    parts.apply(asking("one-too-many", resource(SMALL)))
    said = parts.gpudeck("explain", "pod", "one-too-many", "--kubeconfig", parts.kubeconfig)
    assert "HeldByPod" in said


def test_partitions_of_all_sizes_come_and_go_while_every_process_is_killed(parts: Lab) -> None:
    dice = random.Random(11)
    kills = list(PROCESSES) * 2
    dice.shuffle(kills)
    made, gone, ran = 0, set[str](), set[str]()
    deadline = time.monotonic() + STORM_SECONDS
    while kills or time.monotonic() < deadline or len(ran) < made:
        is_storm = bool(kills) or time.monotonic() < deadline
        if is_storm:
            fresh = [f"mix-{made + number}" for number in range(16 - made + len(gone))]
            made += len(fresh)
            sizes = (SMALL, SMALL, "part-2g", "part-3g")
            parts.apply(*(asking(name, resource(dice.choice(sizes))) for name in fresh))
        if kills or (IS_SOAK and is_storm):
            kill_one(parts, kills.pop() if kills else dice.choice(PROCESSES), dice)
        assert overlapping(instances(parts)) == []
        pods = parts.list("pods", "-l", "test=lab")
        running = [each["metadata"]["name"] for each in pods if is_ready(each)]
        ran.update(running)
        done = dice.sample(running, len(running) // 2)
        if done:
            gone.update(done)
            parts.kubectl("delete", "pod", *done, "--wait=false")
        assert time.monotonic() < deadline + 240, f"{made - len(ran)} of {made} pods never ran"
    parts.kubectl("delete", "pods", "-l", "test=lab", "--wait=true")
    parts.eventually("no partition leaks", lambda: not instances(parts), seconds=60)


def test_whole_cards_partitions_and_shares_never_meet_on_one_card(parts: Lab) -> None:
    kinds = {
        "whole": resource("h100"),
        "part": resource(SMALL),
        "share": resource("shared"),
    }
    node = {"kubernetes.io/hostname": "node-0"}
    names = [f"{kind}-{index}" for index in range(4) for kind in kinds]
    parts.apply(*(asking(name, kinds[name.partition("-")[0]], nodeSelector=node) for name in names))
    parts.running(*names)
    held: dict[str, set[str]] = {}
    for claim in parts.list("resourceclaims"):
        for result in claim["status"]["allocation"]["devices"]["results"]:
            kind, _, rest = result["device"].partition("-")
            held.setdefault("-".join(rest.split("-")[:4]), set()).add(kind)
    assert all(len(each) == 1 for each in held.values()), held
    assert len(migs_inside(parts, "part-0")) == 1
    assert migs_inside(parts, "share-0") == []
    assert len(parts.cards_inside("share-0")) == 1
    assert {each[0] for each in instances(parts)}


def test_a_partition_comes_back_after_a_reboot(parts: Lab) -> None:
    parts.apply(asking("rebooted", resource(SMALL), restartPolicy="Always"))
    parts.running("rebooted")
    before = migs_inside(parts, "rebooted")
    parts.lab("node", "reboot", "node-0")
    parts.eventually(
        "the pod sees a partition again", lambda: migs_inside(parts, "rebooted"), seconds=120
    )
    assert len(before) == 1
    parts.running("rebooted")
    assert len(instances(parts)) == 1
