# SPDX-License-Identifier: Apache-2.0
"""Shares by MPS: pods at work on one card at once, whatever dies beneath them.

The card's compute mode and the daemon's pid are read from the simulated driver and from the
node, not from gpudeck.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.test_restarts import kill_one
from tests.support.lab import NAMESPACE, Lab, Object, gpu_class, is_ready, pod

from gpudeck.lab import hardware, state

CLASS, TEMPLATE = "by-mps", "by-mps"
EXCLUSIVE = 3


@pytest.fixture
def shares(lab: Lab) -> Iterator[Lab]:
    """The lab with a class of shares by MPS, offered by node-0."""
    share = {"vendor": "nvidia", "devices": ["Share"], "share": {"strategy": "MPS"}}
    lab.apply({**gpu_class(CLASS), "spec": share}, template())
    lab.eventually("node-0 offers shares by MPS", lambda: len(offered(lab)) == 8)
    yield lab
    lab.kubectl("delete", "pods", "-l", "test=lab", "--wait=true", "--ignore-not-found")
    lab.eventually("every card admits everybody", lambda: modes(lab) == [0] * 8)
    lab.kubectl("delete", "gpuclasses", CLASS)
    lab.kubectl("delete", "resourceclaimtemplates", TEMPLATE)


def template() -> Object:
    """8 GiB and a quarter of the multiprocessors."""
    exactly = {
        "deviceClassName": CLASS,
        "capacity": {"requests": {"memory": "8Gi", "cores": "25"}},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


def share(name: str, mebibytes: int, **more: object) -> Object:
    """A pod on node-0 that holds that much memory of a share."""
    command = ("gpu-burn", "-m", str(mebibytes), "36000")
    made = pod(name, command=command, nodeSelector={"kubernetes.io/hostname": "node-0"}, **more)
    made["spec"]["resourceClaims"] = [{"name": "share", "resourceClaimTemplateName": TEMPLATE}]
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "share"}]}
    return made


def offered(lab: Lab) -> list[str]:
    return [
        device["name"]
        for each in lab.list("resourceslices")
        if each["spec"].get("nodeName") == "node-0"
        for device in each["spec"].get("devices", [])
        if device["name"].endswith("-mps")
    ]


def modes(lab: Lab) -> list[int]:
    """The compute mode of each card of node-0."""
    folder = state.folder(lab.name)
    found = state.running(folder)
    shown = hardware.simulated(folder, found.node("node-0"), Path(found.artifacts)).show()
    return [card["state"]["compute-mode"] for card in shown["cards"]]


def restarts(lab: Lab, name: str) -> int:
    found = lab.get("pod", name)
    assert found is not None
    return int(found["status"]["containerStatuses"][0]["restartCount"])


def daemons(lab: Lab) -> list[str]:
    """The pids of the daemons on node-0."""
    words = ("pgrep", "-f", "[/]usr/bin/nvidia-cuda-mps-control -f")
    return lab.lab("shell", "node-0", "--", *words, check=False).split()


def shared_memory(lab: Lab, pattern: str) -> list[str]:
    """The file system that /dev/shm is for each process of node-0 whose command matches."""
    look = f"for pid in $(pgrep -f '{pattern}'); do stat -L -c %d /proc/$pid/root/dev/shm; done"
    return lab.lab("shell", "node-0", "--", "sh", "-c", look).split()


def test_pods_work_on_one_card_at_once_and_leave_it_as_it_was(shares: Lab) -> None:
    shares.apply(share("mps-a", 6000), share("mps-b", 6000))
    shares.running("mps-a", "mps-b")
    assert sorted(modes(shares), reverse=True) == [EXCLUSIVE, *[0] * 7]
    assert len(set(shares.cards_inside("mps-a") + shares.cards_inside("mps-b"))) == 1
    assert len(daemons(shares)) == 1
    clients = shared_memory(shares, "^gpu-burn -m [6]000")
    assert len(clients) == 2
    assert set(clients) == set(shared_memory(shares, "[n]vidia-cuda-mps-control -f"))
    shares.apply(share("greedy", 12000, restartPolicy="Never"))
    shares.eventually("more than 8 GiB are refused", lambda: shares.phase("greedy") == "Failed")
    assert "CUDA_ERROR_OUT_OF_MEMORY" in shares.kubectl("logs", "greedy")
    shares.delete("pod", "mps-a", "mps-b", "greedy")
    shares.eventually("every card admits everybody", lambda: modes(shares) == [0] * 8)
    shares.eventually("no daemon is left", lambda: daemons(shares) == [])


def test_an_adapter_that_dies_or_is_replaced_disturbs_no_client(shares: Lab) -> None:
    shares.apply(share("mps-a", 1000))
    shares.running("mps-a")
    (before,) = daemons(shares)
    for process in ("adapter", "dra-plugin"):
        kill_one(shares, process, random.Random(1))
    selector = "app.kubernetes.io/component=nvidia-adapter"
    shares.kubectl("delete", "pod", "-n", NAMESPACE, "-l", selector, "--wait=true")
    shares.apply(share("mps-b", 1000))
    shares.running("mps-b")
    assert daemons(shares) == [before]
    assert restarts(shares, "mps-a") == 0


def test_pods_come_back_after_the_death_of_their_daemon_and_of_what_keeps_it(shares: Lab) -> None:
    shares.apply(share("mps-a", 1000))
    shares.running("mps-a")
    for words in (
        ("pkill", "-KILL", "-f", "[/]usr/bin/nvidia-cuda-mps-control -f"),
        ("pkill", "-KILL", "-o", "-f", "[/]usr/bin/gpudeck mps-control"),
    ):
        before = restarts(shares, "mps-a")
        shares.lab("shell", "node-0", "--", *words)

        def is_back(before: int = before) -> bool:
            found = shares.get("pod", "mps-a")
            return found is not None and is_ready(found) and restarts(shares, "mps-a") > before

        shares.eventually("the pod works again", is_back)
        assert len(daemons(shares)) == 1
