# SPDX-License-Identifier: Apache-2.0
"""When an installation is whole, and what is said while it is not."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import pytest

from gpudeck import errors
from gpudeck.lab import install, progress
from gpudeck.lab.state import Lab, Node


def daemon_set(*, ready: int, wanted: int, updated: int, observed: int = 1) -> dict[str, Any]:
    return {
        "kind": "DaemonSet",
        "metadata": {
            "name": "nvidia-adapter",
            "generation": 1,
            "labels": {install.COMPONENT: "nvidia-adapter"},
        },
        "status": {
            "observedGeneration": observed,
            "numberReady": ready,
            "desiredNumberScheduled": wanted,
            "updatedNumberScheduled": updated,
        },
    }


def test_a_daemon_set_that_waits_for_labels_is_not_whole() -> None:
    empty = daemon_set(ready=0, wanted=0, updated=0)
    assert install.unready([empty], {}) == []
    assert install.unready([empty], {"nvidia-adapter": 2}) == ["nvidia-adapter 0/2"]


def test_pods_of_the_old_revision_do_not_count() -> None:
    assert install.unready([daemon_set(ready=2, wanted=2, updated=1)], {}) == ["nvidia-adapter 1/2"]
    assert install.unready([daemon_set(ready=2, wanted=2, updated=2)], {}) == []


def test_pods_that_an_update_leaves_alone_count_whatever_their_revision() -> None:
    daemons = daemon_set(ready=2, wanted=2, updated=0)
    daemons["spec"] = {"updateStrategy": {"type": "OnDelete"}}
    assert install.unready([daemons], {}) == []


def test_a_status_of_yesterdays_spec_does_not_count() -> None:
    stale = daemon_set(ready=2, wanted=2, updated=2, observed=0)
    assert install.unready([stale], {}) == ["nvidia-adapter 2/2"]


def test_a_deployment_counts_its_replicas() -> None:
    workload = {
        "kind": "Deployment",
        "metadata": {"name": "gpu-controller", "generation": 3},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 3, "readyReplicas": 2, "updatedReplicas": 1},
    }
    assert install.unready([workload], {}) == ["gpu-controller 1/2"]


def test_machines_call_for_adapters_of_their_maker() -> None:
    nodes = {
        name: Node(name=name, index=index, machine=machine)
        for index, (name, machine) in enumerate(
            {"a": "h100-x8", "b": "t4-x4", "c": "metax-c500-x8"}.items(), 2
        )
    }
    assert install.makers_of(Lab(name="lab", nodes=nodes)) == {"a": "nvidia", "b": "nvidia"}


def test_nodes_call_for_the_workload_of_their_own_mode_or_of_the_default() -> None:
    makers = dict.fromkeys("abcd", "nvidia")
    chosen = {"a": "device-plugin", "b": "dra", "c": "mps"}
    dra, plugin = install.ADAPTERS["nvidia"], install.PLUGINS["nvidia"]
    assert install.pods_of(makers, chosen, "dra") == {dra: 3, plugin: 1}
    assert install.pods_of(makers, chosen, "device-plugin") == {dra: 1, plugin: 3}
    assert install.pods_of({}, chosen, "dra") == {}


def test_a_daemon_set_that_the_controller_has_not_made_yet_is_waited_for() -> None:
    expected = {"nvidia-device-plugin": 1}
    assert install.unready([], expected) == ["nvidia-device-plugin 0/1"]


def test_pods_of_all_groups_of_nodes_count() -> None:
    groups = [daemon_set(ready=1, wanted=1, updated=1), daemon_set(ready=1, wanted=1, updated=1)]
    assert install.unready(groups, {"nvidia-adapter": 2}) == []
    assert install.unready(groups, {"nvidia-adapter": 3}) == ["nvidia-adapter 2/3"]


def test_the_lab_names_its_image_and_its_host_root() -> None:
    lab = Lab(name="lab", host_root="/")
    assert install.lab_values(lab, "registry.lab/gpudeck:12ab") == [
        "image.repository=registry.lab/gpudeck",
        "image.tag=12ab",
        "hostRoot=/",
        "nvidiaMps.enabled=true",
    ]


def test_a_container_that_does_not_run_is_named_with_its_reason() -> None:
    pods = [
        {
            "metadata": {"name": "p"},
            "status": {
                "containerStatuses": [
                    {"name": "good", "state": {"running": {}}},
                    {
                        "name": "bad",
                        "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}},
                    },
                ]
            },
        },
        {
            "metadata": {"name": "q"},
            "status": {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "message": "0/2 nodes fit"}
                ]
            },
        },
    ]
    assert install.waiting_reasons(pods) == ["p/bad: ErrImagePull no", "q: 0/2 nodes fit"]


def node(name: str, **conditions: tuple[str, str]) -> dict[str, Any]:
    found = [
        {"type": kind, "status": status, "message": message}
        for kind, (status, message) in conditions.items()
    ]
    return {"metadata": {"name": name}, "status": {"conditions": found}}


def test_what_nodes_wait_for_is_said_in_the_words_of_their_conditions() -> None:
    change = "Cards change from dra to device-plugin: pods that hold cards are to go: default/a."
    nodes = [
        node("a", Ready=("True", "posting"), GPUModeActive=("False", change)),
        node("b", Ready=("Unknown", "Kubelet stopped posting node status."), Mine=("False", "x")),
        node("c", DevicePluginConfigured=("True", "All is well."), MigConfigured=("False", "")),
        {"metadata": {"name": "d"}},
    ]
    assert install.what_nodes_wait_for(nodes) == [
        f"a: {change}",
        "b: Kubelet stopped posting node status.",
        "c: MigConfigured",
    ]


class Target(install.Target):
    """A cluster of one node whose mode changes until it has been looked at so many times."""

    def __init__(self, looks: float) -> None:
        self.looks = looks

    def list(self, kinds: str, selector: str = "") -> list[dict[str, Any]]:
        if kinds == "nodes":
            return [node("node-0", GPUModeActive=("False", "The mode changes."))]
        self.looks -= 1
        ready = int(self.looks <= 0)
        return [] if kinds == "pods" else [daemon_set(ready=ready, wanted=1, updated=1)]


def test_an_installation_that_waits_says_once_what_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(install, "_POLL_SECONDS", 0.001)
    out = io.StringIO()
    install.await_pods(Target(9), progress.Progress(stream=out), {})
    assert out.getvalue() == "      nvidia-adapter 0/1\n      node-0: The mode changes.\n"


def test_one_that_waits_for_too_long_says_so_in_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "ROLLOUT_SECONDS", 0.0)
    message = "not ready after 0 s: nvidia-adapter 0/1. node-0: The mode changes."
    with pytest.raises(errors.UnavailableError, match=re.escape(message)):
        install.await_pods(Target(math.inf), progress.Progress(stream=io.StringIO()), {})


def test_a_tag_of_digits_alone_stays_a_text() -> None:
    assert install.flag("image.tag=20458113") == "--set-string"
    assert install.flag("controller.replicas=2") == "--set"
