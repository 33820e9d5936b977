# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a node whose mode changes, for tests of the controller.

It does what DaemonSet controller, kubelet and the workloads of a mode do: what the label of the
active mode says runs and offers cards, what it no longer says ends and takes its offer along. It
also notes whether both modes were ever there at once.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

from tests.contract.kube.test_evicting import BUDGET
from tests.support import gpus
from tests.support.apiserver import ApiServer

from gpudeck.api import conditions, labels
from gpudeck.api.resources import EVENT, NODE, PHYSICAL_GPU, POD, RESOURCE_CLAIM, RESOURCE_SLICE

DRA, PLUGIN = labels.MODES
CARDS = {labels.VENDOR: "nvidia"}
CARD = {"nvidia.com/gpu": "1"}
SYSTEM = "gpudeck-system"


class Machine:
    """The stand-in for one node and for what follows its pods."""

    def __init__(self, server: ApiServer, name: str = "node-0", **known: str) -> None:
        self.server = server
        self.name = name
        self.slice = f"slice-of-{name}"
        self.lingering: set[str] = set()
        """Modes whose pods do not end by themselves, and those that do not get ready."""
        self.unready: set[str] = set()
        self.both: list[str] = []
        self.has_cards = True
        self.devices = 4
        """How many the node's only ResourceSlice has."""
        self._is_due = False
        server.put(
            NODE,
            {
                "metadata": {"name": name, "labels": {**CARDS, **known}},
                "status": {"allocatable": {"cpu": "4"}},
            },
        )
        server.put(PHYSICAL_GPU, gpus.gpu(node=name))
        server.store.on_change(self._changed)
        self._changed()

    @property
    def node(self) -> dict[str, Any]:
        """A copy, to be changed and put back."""
        return copy.deepcopy(self.server.objects(NODE)[self.name])

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.node["metadata"]["labels"]
        return found

    @property
    def active(self) -> str | None:
        return self.labels.get(labels.ACTIVE_MODE)

    @property
    def taint(self) -> str | None:
        taints = self.node.get("spec", {}).get("taints", [])
        return next((each["value"] for each in taints if each["key"] == labels.MODE_CHANGE), None)

    @property
    def said(self) -> dict[str, Any]:
        found = self.node["status"].get("conditions", [])
        return next((each for each in found if each["type"] == conditions.MODE_ACTIVE), {})

    def wish(self, mode: str | None) -> None:
        """An administrator sets the label of the mode, or takes it away."""
        node = self.node
        known = {key: text for key, text in self.labels.items() if key != labels.MODE}
        node["metadata"]["labels"] = known | ({labels.MODE: mode} if mode else {})
        self.server.put(NODE, node)

    def is_in(self, mode: str) -> Callable[[], bool]:
        return lambda: (
            (self.active, self.taint) == (mode, None)
            and (self.said.get("status"), self.said.get("reason")) == ("True", "ModeActive")
        )

    def in_phase(self, phase: str) -> Callable[[], bool]:
        return lambda: self.said.get("reason") == phase

    def react(self) -> None:
        """Bring pods and offers in line with the label."""
        self._is_due = False
        for mode in labels.MODES:
            key = self.workload(mode)
            is_there = key in self.server.objects(POD)
            if self.active == mode and not is_there:
                self.server.put(POD, workload(mode, self.name, ready=mode not in self.unready))
            elif self.active != mode and is_there and mode not in self.lingering:
                self.server.remove(POD, key)
        self._offer()
        self._collect()

    def _offer(self) -> None:
        pods = self.server.objects(POD)
        has = {mode: self.workload(mode) in pods for mode in labels.MODES}
        if all(has.values()):
            self.both.append("pods of both modes")
        offers_dra = has[DRA] and self.taint != PLUGIN and self.has_cards
        if offers_dra != (self.slice in self.server.objects(RESOURCE_SLICE)):
            if offers_dra:
                self.server.put(RESOURCE_SLICE, resource_slice(self.devices, self.name))
            else:
                self.server.remove(RESOURCE_SLICE, self.slice)
        cards = "4" if has[PLUGIN] and self.has_cards else "0"
        known = self.node["status"]["allocatable"]
        if known.get("nvidia.com/gpu", "0") != cards:
            node = self.node
            node["status"]["allocatable"]["nvidia.com/gpu"] = cards
            self.server.put(NODE, node)
        if self.slice in self.server.objects(RESOURCE_SLICE) and cards != "0":
            self.both.append("offers of both modes")

    def _collect(self) -> None:
        """A claim goes with its pod."""
        pods = self.server.objects(POD)
        for key, claim in self.server.objects(RESOURCE_CLAIM).items():
            users = claim["status"].get("reservedFor", [])
            if users and not any(f"t/{each['name']}" in pods for each in users):
                self.server.remove(RESOURCE_CLAIM, key)

    def _changed(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.react)

    def workload(self, mode: str) -> str:
        """The key of the pod of a mode."""
        return f"{SYSTEM}/{_workload(mode)}-{self.name}"

    def run_pod(self, name: str, *, claim: bool = False, **limits: str) -> None:
        """A user's pod runs on the node, with extended resources or with a claim."""
        if claim:
            held = gpus.result(node=self.name)
            self.server.put(RESOURCE_CLAIM, gpus.claim(name, held, pods=(name,)))
        self.server.put(POD, user_pod(name, self.name, claim=claim, **limits))

    def pods(self) -> set[str]:
        return {key for key in self.server.objects(POD) if key.startswith("t/")}

    def events(self) -> set[str]:
        return {each["reason"] for each in self.server.objects(EVENT).values()}


def _workload(mode: str) -> str:
    return {DRA: "nvidia-adapter", PLUGIN: "nvidia-device-plugin"}[mode]


def workload(mode: str, node: str = "node-0", *, ready: bool = True) -> dict[str, Any]:
    """The pod of a mode."""
    component = _workload(mode)
    name = f"{component}-{node}"
    pod = gpus.adapter_pod(node, name=name, ready="True" if ready else "False")
    pod["metadata"]["labels"][labels.COMPONENT] = component
    return pod


def resource_slice(devices: int, node: str = "node-0") -> dict[str, Any]:
    """The one slice of a node's pool."""
    return {
        "metadata": {"name": f"slice-of-{node}"},
        "spec": {
            "driver": labels.DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(devices)],
        },
    }


def user_pod(
    name: str, node: str = "node-0", *, claim: bool = False, **limits: str
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "nodeName": node,
        "containers": [{"name": "main", "resources": {"limits": limits} if limits else {}}],
    }
    if claim:
        spec["resourceClaims"] = [{"name": "card", "resourceClaimName": name}]
    return {
        "metadata": {
            "name": name,
            "namespace": "t",
            "uid": f"uid-{name}",
            "labels": {"app": name},
        },
        "spec": spec,
        "status": {"phase": "Running"},
    }


def protect(server: ApiServer, app: str, *, allowed: int = 0) -> None:
    server.put(
        BUDGET,
        {
            "metadata": {"name": app, "namespace": "t"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed},
        },
    )


def allow(server: ApiServer, app: str) -> None:
    protect(server, app, allowed=1)


def is_said(server: ApiServer, name: str, reason: str) -> bool:
    said = server.objects(NODE)[name].get("status", {}).get("conditions", [])
    return reason in {each["reason"] for each in said}
