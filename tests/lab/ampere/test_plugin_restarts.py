# SPDX-License-Identifier: Apache-2.0
"""Kubelet and device plugin end at random, and a card dies: no device and no pod is lost."""

from __future__ import annotations

import functools
import logging
import os
import random
from typing import Any

from tests.lab.ampere.chart import NAMESPACE, NODE, SHARED, WHOLE, offers
from tests.lab.test_restarts import containers
from tests.support.lab import Lab, Object, is_ready, pod

from gpudeck.cdi import plugins

_log = logging.getLogger(__name__)

ROUNDS = 100 if os.environ.get("GPUDECK_SOAK") else 3
CDI = "/var/run/cdi"
CONFIG = "nvidia.com/device-plugin.config"
KILL = "pkill -KILL -o -f '[/]usr/bin/gpudeck device-plugin'"
RESTART_SECONDS = 120
"""For the kubelet to start again, or a container that has ended, and for all to be offered."""


def given(lab: Lab) -> dict[str, list[str]]:
    """Which pods have each card from the device plugin, by UUID, as PhysicalGPU says."""
    return {
        each["status"]["currentState"]["uuid"]: sorted(
            holder["pod"] for holder in each["status"].get("occupancy", {}).get("plugin", [])
        )
        for each in lab.gpus().values()
        if each.get("status", {}).get("currentState", {}).get("uuid")
    }


def states(lab: Lab) -> list[str]:
    """Phase and state of occupancy of each card, sorted."""
    found = [each.get("status", {}) for each in lab.gpus().values()]
    return sorted(f"{each.get('phase')} {each.get('occupancy', {}).get('state')}" for each in found)


def test_cards_say_who_has_them(lab: Lab) -> None:
    offers(lab, whole=4, shared=0)
    lab.eventually("four cards are free", lambda: states(lab) == ["Ready Free"] * 4)
    lab.apply(pod("holder", limits={WHOLE: 1}))
    lab.running("holder")
    (card,) = set(lab.cards_inside("holder"))
    lab.eventually("the card is in use", lambda: given(lab).get(card) == ["holder"])
    wanted = ["InUse Full", *["Ready Free"] * 3]
    lab.eventually("the controller says so", lambda: states(lab) == wanted)
    shown = lab.gpudeck("get", "cards", "--kubeconfig", lab.kubeconfig)
    assert "default/holder" in shown
    lab.apply(pod("greedy", limits={WHOLE: 4}))
    lab.eventually(
        "explain names the holder",
        lambda: "default/holder" in explained(lab, "greedy"),
    )
    lab.delete("pod", "holder", "greedy")
    lab.eventually("all cards are free", lambda: states(lab) == ["Ready Free"] * 4)


def explained(lab: Lab, name: str) -> str:
    """The answer to why a pod waits."""
    return lab.gpudeck("explain", "pod", f"default/{name}", "--kubeconfig", lab.kubeconfig)


def test_nothing_is_lost_while_kubelet_and_plugin_end_at_random(lab: Lab) -> None:
    dice = random.Random(5)
    ends = ["kubelet", "plugin"] * ROUNDS
    dice.shuffle(ends)
    lab.apply(pod("two", limits={WHOLE: 2}))
    lab.running("two")
    held, before = set(lab.cards_inside("two")), containers(lab, "two")
    assert len(held) == 2
    for number, end in enumerate(ends):
        if end == "kubelet":
            lab.lab("node", "restart-kubelet", NODE)
        else:
            lab.lab("shell", NODE, "--", "sh", "-c", KILL)
        lab.apply(replica_set(f"one-{number}"))
        name = lab.eventually(
            f"a pod of one-{number} runs",
            functools.partial(running, lab, f"one-{number}"),
            seconds=RESTART_SECONDS,
        )
        (card,) = set(lab.cards_inside(name))
        assert card not in held, f"{name} has a card that another pod holds"
        assert set(lab.cards_inside("two")) == held
        lab.delete("replicaset", f"one-{number}")
        _log.info("end %d of %d, of the %s: nothing is lost", number + 1, len(ends), end)
    lab.eventually("all is offered", lambda: offered(lab) == 4, seconds=RESTART_SECONDS)
    assert containers(lab, "two") == before
    found = lab.get("pod", "two")
    assert found is not None
    assert is_ready(found)
    lab.delete("pod", "two")


def replica_set(name: str) -> Object:
    """One pod that wants a card, and another if the kubelet turns it away.

    It does so while the plugin is gone and the scheduler has yet to hear of it (Kubernetes 1.37).
    """
    template = pod(name, limits={WHOLE: 1})
    del template["apiVersion"], template["kind"]
    template["metadata"] = {"labels": {"test": "lab", "app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "labels": {"test": "lab"}},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
    }


def running(lab: Lab, name: str) -> str:
    """The pod of a ReplicaSet that runs, "" for none."""
    found = lab.list("pods", "-l", f"app={name}")
    return next((each["metadata"]["name"] for each in found if is_ready(each)), "")


def offered(lab: Lab) -> int:
    """Whole cards that the node has for pods."""
    node = lab.get("node", NODE)
    return int(node["status"]["allocatable"].get(WHOLE, 0)) if node else 0


def events(lab: Lab, name: str) -> list[str]:
    """Reasons of the Events about a pod."""
    chosen = f"involvedObject.name={name},involvedObject.kind=Pod"
    return [each["reason"] for each in lab.list("events", "--field-selector", chosen)]


def test_a_dead_card_costs_one_card_its_pod_is_told_and_it_comes_back(lab: Lab) -> None:
    lab.eventually("all is offered", lambda: offered(lab) == 4, seconds=RESTART_SECONDS)
    lab.apply(pod("bereaved", limits={WHOLE: 1}))
    lab.running("bereaved")
    (card,) = set(lab.cards_inside("bereaved"))
    number = str(sorted(lab.gpus()).index(name_of(lab, card)))
    lab.lab("gpu", NODE, number, "fail", "999")
    try:
        lab.eventually("one card less is offered", lambda: offered(lab) == 3)
        lab.eventually("the pod is told", lambda: "CardUnhealthy" in events(lab, "bereaved"))
        lab.eventually("the card is faulty", lambda: phase(lab, card) == "Faulty")
        lab.apply(pod("others", limits={WHOLE: 3}))
        lab.eventually("explain says so", lambda: "NotHealthy" in explained(lab, "others") or None)
    finally:
        lab.lab("gpu", NODE, number, "clear")
    lab.eventually("four are offered again", lambda: offered(lab) == 4, seconds=120)
    lab.eventually("the pod is told", lambda: "CardRecovered" in events(lab, "bereaved"))
    lab.running("others")
    assert card not in lab.cards_inside("others")
    lab.delete("pod", "bereaved", "others")


def name_of(lab: Lab, card: str) -> str:
    """The PhysicalGPU of a UUID."""
    (name,) = [
        name
        for name, each in lab.gpus().items()
        if each["status"].get("currentState", {}).get("uuid") == card
    ]
    return name


def phase(lab: Lab, card: str) -> str:
    """The phase of a card by UUID."""
    status: dict[str, Any] = lab.gpus()[name_of(lab, card)]["status"]
    return str(status.get("phase"))


def test_a_container_that_starts_again_finds_its_share_after_the_config_has_changed(
    lab: Lab,
) -> None:
    lab.kubectl("label", "node", NODE, f"{CONFIG}=slice-4", "--overwrite")
    try:
        offers(lab, shared=16, whole=0)
        short = ("gpu-burn", "15")  # It ends by itself, and is started again.
        lab.apply(pod("sharer", limits={SHARED: 1}, command=short, restartPolicy="Always"))
        lab.running("sharer")
        card, before = set(lab.cards_inside("sharer")), containers(lab, "sharer")
        lab.kubectl("label", "node", NODE, f"{CONFIG}-")
        offers(lab, whole=3, shared=0)
        lab.eventually("another container", lambda: containers(lab, "sharer").isdisjoint(before))
        lab.eventually("it has its card", lambda: set(lab.cards_inside("sharer")) == card)
    finally:
        lab.kubectl("label", "node", NODE, f"{CONFIG}-", check=False)
        lab.delete("pod", "sharer")
    offers(lab, whole=4, shared=0)


def test_the_runtime_reads_a_device_anew_that_it_knows_and_that_has_changed(lab: Lab) -> None:
    offers(lab, whole=4, shared=0)
    lab.apply(pod("before", limits={WHOLE: 4}))
    lab.running("before")
    assert "PROBE" not in lab.kubectl("exec", "before", "--", "env")
    lab.delete("pod", "before")
    file, fresh = f"{CDI}/{plugins.file_name('gpu')}", f"{CDI}/.probe.tmp"
    known = '"NVIDIA_VISIBLE_DEVICES=void"'
    change = f"""sed 's/{known}/{known},"PROBE=1"/' {file} > {fresh} && mv {fresh} {file}"""
    # The plugin puts its file right every ten seconds, so it is changed again and again.
    again = f"grep -q PROBE {file} || {{ {change}; }}; sleep 0.05"
    until = f"for n in $(seq 2400); do [ ! -e {CDI}/.probed ] || break; {again}; done"
    lab.lab("shell", NODE, "--", "sh", "-c", f"{change}; ({until}) </dev/null >/dev/null 2>&1 &")
    lab.apply(pod("after", limits={WHOLE: 4}))
    lab.running("after")
    assert "PROBE=1" in lab.kubectl("exec", "after", "--", "env")
    lab.lab("shell", NODE, "--", "touch", f"{CDI}/.probed")
    lab.eventually("the plugin has written its own", lambda: "PROBE" not in read(lab, file))
    lab.lab("shell", NODE, "--", "rm", f"{CDI}/.probed")
    lab.delete("pod", "after")


def read(lab: Lab, path: str) -> str:
    """A file of the node."""
    return lab.lab("shell", NODE, "--", "cat", path)


def test_the_plugin_is_ready_after_all_that(lab: Lab) -> None:
    chosen = ("-n", NAMESPACE, "-l", "app.kubernetes.io/component=nvidia-device-plugin")
    lab.eventually(
        "the plugin is ready",
        lambda: [is_ready(each) for each in lab.list("pods", *chosen)] == [True],
        seconds=RESTART_SECONDS,
    )
