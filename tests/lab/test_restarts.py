# SPDX-License-Identifier: Apache-2.0
"""Processes, the kubelet and nodes may die at any moment: nothing is lost or held twice."""

from __future__ import annotations

import os
import random
import shlex
import time

import pytest
from tests.support.lab import NAMESPACE, Lab, is_ready, pod

PROCESSES = ("dra-plugin", "adapter", "node-agent", "controller")
STORM_SECONDS = 3600 if os.environ.get("GPUDECK_SOAK") else 300
KILLS_EACH = 50 if os.environ.get("GPUDECK_SOAK") else 3


def kill_one(lab: Lab, process: str, dice: random.Random) -> None:
    """Send SIGKILL to one process of ours on whatever node it runs."""
    node = "control-plane" if process == "controller" else dice.choice(["node-0", "node-1"])
    pattern = f"[/]usr/bin/gpudeck {process}"
    lab.lab("shell", node, "--", "pkill", "-KILL", "-o", "-f", pattern, check=False)


def test_pods_start_while_every_process_is_killed_at_random(lab: Lab) -> None:
    dice = random.Random(7)
    kills = list(PROCESSES) * KILLS_EACH
    dice.shuffle(kills)
    created, ran, deleted = 0, set[str](), set[str]()
    deadline = time.monotonic() + STORM_SECONDS
    while (kills or created < 20 or len(ran) < created) and time.monotonic() < deadline:
        if kills or created < 20:
            fresh = [f"storm-{created + number}" for number in range(14 - created + len(deleted))]
            created += len(fresh)
            lab.apply(*(pod(name, limits={"nvidia.com/gpu": 1}) for name in fresh))
        if kills:
            kill_one(lab, kills.pop(), dice)
        pods = lab.list("pods", "-l", "test=lab")
        running = [each["metadata"]["name"] for each in pods if is_ready(each)]
        cards = [card for name in running for card in lab.cards_inside(name)]
        assert len(cards) == len(set(cards)), "a card is held twice"
        ran.update(running)
        done = running[: len(running) // 2 + 1]
        if done:
            deleted.update(done)
            lab.kubectl("delete", "pod", *done, "--wait=false")
    assert not kills
    assert len(ran) == created, f"{created - len(ran)} of {created} pods never ran"


def test_running_pods_survive_a_kubelet_restart_and_slices_return(lab: Lab) -> None:
    lab.apply(pod("survivor", limits={"gpu.deckhouse.io/h100": 1}))
    lab.running("survivor")
    before = containers(lab, "survivor")
    lab.lab("node", "restart-kubelet", "node-0")
    lab.eventually("node-0 publishes 8 devices", lambda: devices(lab, "node-0") == 8)
    lab.eventually("the pod sees its card", lambda: len(lab.cards_inside("survivor")) == 1)
    assert containers(lab, "survivor") == before


def containers(lab: Lab, name: str) -> set[str]:
    """The ids of a pod's containers, as its status tells them."""
    found = lab.get("pod", name)
    assert found is not None
    return {each.get("containerID", "") for each in found["status"].get("containerStatuses", [])}


def devices(lab: Lab, node: str) -> int:
    """How many whole cards the node's pool offers."""
    return sum(
        device["name"].startswith("gpu-")
        for each in lab.list("resourceslices")
        if each["spec"].get("nodeName") == node and each["spec"]["driver"] == "gpu.deckhouse.io"
        for device in each["spec"].get("devices", [])
    )


def test_a_pod_with_a_claim_starts_again_after_its_node_reboots(lab: Lab) -> None:
    lab.apply(pod("rebooted", limits={"gpu.deckhouse.io/h100": 1}, restartPolicy="Always"))
    lab.running("rebooted")
    card = lab.cards_inside("rebooted")
    before = containers(lab, "rebooted")
    lab.lab("node", "reboot", "node-0")
    lab.eventually(
        "a new container after the reboot",
        lambda: containers(lab, "rebooted").isdisjoint(before),
        seconds=120,
    )
    lab.running("rebooted")
    assert lab.cards_inside("rebooted") == card


@pytest.mark.parametrize("content", ["", '{"version":', "garbage"])
def test_a_broken_checkpoint_is_set_aside_and_rebuilt(lab: Lab, content: str) -> None:
    lab.apply(pod("holder", limits={"gpu.deckhouse.io/h100": 1}))
    lab.running("holder")
    card = lab.cards_inside("holder")
    path = "/var/lib/kubelet/plugins/gpu.deckhouse.io/checkpoint.json"
    kill = "pkill -KILL -f '[/]usr/bin/gpudeck dra-plugin'"
    script = f"printf %s {shlex.quote(content)} > {path}; {kill}"
    lab.lab("shell", "node-0", "--", "sh", "-c", script, check=False)

    def said() -> bool:
        events = lab.list("events", "-A", "--field-selector", "involvedObject.name=node-0")
        return any("checkpoint" in (each.get("message") or "").lower() for each in events)

    lab.eventually("an Event on the node names the checkpoint", said)
    lab.eventually("the plugin serves again", lambda: all_ready(lab))
    lab.apply(pod("next", limits={"gpu.deckhouse.io/h100": 1}))
    lab.running("next")
    assert lab.cards_inside("next") != card
    assert lab.cards_inside("holder") == card


def test_a_vendor_label_that_somebody_removes_comes_back_and_with_it_the_cards(lab: Lab) -> None:
    lab.kubectl("label", "node", "node-1", "gpu.deckhouse.io/vendor-")

    def labelled() -> bool:
        node = lab.get("node", "node-1")
        return node is not None and "gpu.deckhouse.io/vendor" in node["metadata"]["labels"]

    lab.eventually("the label is back", labelled, seconds=30)
    lab.eventually("node-1 publishes 4 devices", lambda: devices(lab, "node-1") == 4, seconds=90)
    lab.eventually("the plugin serves again", lambda: all_ready(lab), seconds=90)


def all_ready(lab: Lab) -> bool:
    """Whether every container of gpudeck is ready."""
    pods = lab.list("pods", "-n", NAMESPACE)
    return bool(pods) and all(is_ready(each) for each in pods)


def test_every_process_is_back_after_the_kills(lab: Lab) -> None:
    lab.eventually("every pod of gpudeck is ready", lambda: all_ready(lab), seconds=180)
