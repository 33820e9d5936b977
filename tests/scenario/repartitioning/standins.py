# SPDX-License-Identifier: Apache-2.0
"""What acts around a mig-manager: a kubelet that lists pods, and a cluster that moves them.

The kubelet answers the pod-resources API and keeps its file of devices. The cluster does what
the DaemonSets of the chart and the controller do: workloads of the cards are on the node unless
their label keeps them off, and pods that are asked to go are evicted, but for those that a budget
protects.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from tests.support import apiserver

from gpudeck.api import resources
from gpudeck.kubelet import checkpoints, listing, podresources
from gpudeck.kubelet.wire import podresources_pb2

WORKLOADS = {
    "device-plugin": "nvidia-device-plugin-ctr",
    "gpu-feature-discovery": "gpu-feature-discovery-ctr",
}
NAMESPACE = "d8-nvidia-gpu"


@dataclass
class Pod:
    """A pod on the node."""

    devices: list[str] = field(default_factory=list)
    container: str = "main"
    initial: list[str] = field(default_factory=list)
    """Devices of an ordinary init container, which the API does not tell."""


class Kubelet:
    """Lists the pods of the node by `namespace/name`."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.plugins, self.logs = socket.parent / "plugins", socket.parent / "logs"
        self.pods: dict[str, Pod] = {}
        self._server: Any = None

    @property
    def place(self) -> listing.Place:
        """Where it tells of its pods."""
        return listing.Place(self.socket, self.plugins, self.logs)

    def keep(self) -> None:
        """Write the file of devices, as it is written when a container gets one."""
        self.plugins.mkdir(exist_ok=True)
        entries = []
        for key, pod in self.pods.items():
            uid = f"uid-of-{key.replace('/', '-')}"
            (self.logs / f"{key.replace('/', '_')}_{uid}").mkdir(parents=True, exist_ok=True)
            of_pod = {"PodUID": uid, "ResourceName": "nvidia.com/gpu"}
            for container, devices in ((pod.container, pod.devices), ("first", pod.initial)):
                given = {"ContainerName": container, "DeviceIDs": {"0": devices}}
                entries += [of_pod | given] if devices else []
        content = {"Data": {"PodDeviceEntries": entries}, "Checksum": 1}
        (self.plugins / checkpoints.FILE).write_text(json.dumps(content))

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        lister = grpc.unary_unary_rpc_method_handler(
            self._list,
            request_deserializer=podresources_pb2.ListPodResourcesRequest.FromString,
            response_serializer=podresources_pb2.ListPodResourcesResponse.SerializeToString,
        )
        service, _, name = podresources.METHOD.strip("/").partition("/")
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {name: lister}),)
        )
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0)

    async def _list(self, _request: Any, _context: Any) -> Any:
        found = []
        for key, pod in self.pods.items():
            namespace, _, name = key.partition("/")
            devices = podresources_pb2.ContainerDevices(
                resource_name="nvidia.com/gpu", device_ids=pod.devices
            )
            container = podresources_pb2.ContainerResources(
                name=pod.container, devices=[devices] if pod.devices else []
            )
            found.append(
                podresources_pb2.PodResources(
                    name=name, namespace=namespace, containers=[container]
                )
            )
        return podresources_pb2.ListPodResourcesResponse(pod_resources=found)


class Cluster:
    """Moves the pods of one node as its labels and annotations say."""

    def __init__(self, api: apiserver.ApiServer, kubelet: Kubelet, node: str) -> None:
        self.api = api
        self.kubelet = kubelet
        self.node = node
        self.protected: set[str] = set()
        """Pods that a budget keeps from being evicted."""
        self.evicts = True
        """Nobody else does."""
        self.stuck: set[str] = set()
        """Workloads that do not end."""
        self.evicted: list[str] = []
        self._changed = asyncio.Event()
        api.store.on_change(self._changed.set)

    async def run(self) -> None:
        """Follow the Node, for ever."""
        while True:
            self._changed.clear()
            found = self.api.objects(resources.NODE).get(self.node)
            if found is not None:
                self._move(found)
            await self._changed.wait()

    def _move(self, node: dict[str, Any]) -> None:
        labels = node["metadata"].get("labels") or {}
        notes = node["metadata"].get("annotations") or {}
        for workload, container in WORKLOADS.items():
            key = f"{NAMESPACE}/{workload}"
            if labels.get(f"nvidia.com/gpu.deploy.{workload}") in (
                "false",
                "paused-for-mig-change",
            ):
                if workload not in self.stuck:
                    self.kubelet.pods.pop(key, None)
            else:
                self.kubelet.pods[key] = Pod(container=container)
        if self.evicts:
            self._drain(json.loads(notes.get("gpu.deckhouse.io/drain", "{}")))
        else:
            self._end()

    def _end(self) -> None:
        """Let pods of the namespace t end that the API server no longer has."""
        gone = {each for each in self.kubelet.pods if each.startswith("t/")}
        for each in gone - self.api.objects(resources.POD).keys():
            del self.kubelet.pods[each]

    def _drain(self, drain: dict[str, Any]) -> None:
        for each in drain.get("pods", ()):
            self._evict(f"{each['namespace']}/{each['name']}")
        if drain.get("all"):
            users = [each for each in self.kubelet.pods if not each.startswith(f"{NAMESPACE}/")]
            for each in users:
                self._evict(each)
            if not self.protected.intersection(users):
                self._note("gpu.deckhouse.io/drained", drain["id"])

    def _evict(self, key: str) -> None:
        if key not in self.kubelet.pods:
            return
        if key not in self.protected:
            del self.kubelet.pods[key]
            self.evicted.append(key)
            return
        said = f"Pod {key} is kept by a PodDisruptionBudget."
        self._note("gpu.deckhouse.io/drain-blocked", said)

    def _note(self, name: str, text: str) -> None:
        """Annotate the Node as the controller does."""
        patched = json.loads(json.dumps(self.api.objects(resources.NODE)[self.node]))
        notes = patched["metadata"].setdefault("annotations", {})
        if notes.get(name) != text:
            notes[name] = text
            self.api.put(resources.NODE, patched)


@contextlib.asynccontextmanager
async def running(task: Any) -> Any:
    """Run a coroutine inside the block."""
    running = asyncio.create_task(task)
    try:
        yield running
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
