# SPDX-License-Identifier: Apache-2.0
"""One node with a device plugin: real sockets and files, cards that a file describes."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenario.deviceplugin import standins
from tests.support import apiserver

from gpudeck.api import labels, names, resources
from gpudeck.deviceplugin import main
from gpudeck.deviceplugin.settings import Settings
from gpudeck.devices.identities import PciAddress
from gpudeck.vendors.simulated import machine

NODE = "node-0"
CONFIG_MAP = "nvidia-time-slicing-config"
PATIENCE_SECONDS = 60.0
"""For what takes a second: a plugin of its own process has to start on a busy machine."""
CONFIG = """\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - name: nvidia.com/gpu
      replicas: {}
"""


def address(number: int) -> str:
    """Where a card of the simulated maker is."""
    return f"0000:{number + 1:02x}:00.0"


def gpu_name(number: int) -> str:
    """The name of a card's PhysicalGPU."""
    return names.physical_gpu_name(NODE, PciAddress.parse(address(number)))


class World:
    """The node, the API server, the kubelet, and the plugin that can be ended and started."""

    def __init__(self, folder: Path, api: apiserver.ApiServer) -> None:
        self.folder = folder
        self.api = api
        self.plugins = folder / "plugins"
        self.plugins.mkdir()
        self.bench = machine.Bench(folder)
        self.bench.write(machine.make(4))
        self.kubelet = standins.Kubelet(self.plugins, folder / "pods.sock")
        self.kubeconfig = api.kubeconfig()
        self.changes: dict[str, Any] = {}
        """Settings that are not as usual."""
        self._task: asyncio.Task[None] | None = None
        self.label(None)
        self.configure(**{"slice-4": CONFIG.format(4), "slice-10": CONFIG.format(10)})

    def configure(self, **configs: str) -> None:
        """Write the ConfigMap."""
        meta = {"name": CONFIG_MAP, "namespace": "kube-system"}
        self.api.put(resources.CONFIG_MAP, {"metadata": meta, "data": configs})

    def label(self, config: str | None) -> None:
        """Choose a config by the Node's label."""
        self.mark("nvidia.com/device-plugin.config", config)

    def mode(self, active: str | None) -> None:
        """Say which mode is in force on the Node."""
        self.mark("gpu.deckhouse.io/active-mode", active)

    def mark(self, name: str, value: str | None) -> None:
        """Give the Node a label, or take it away."""
        node = copy.deepcopy(self.api.objects(resources.NODE).get(NODE)) or {
            "metadata": {"name": NODE, "uid": "node-uid"}
        }
        known = node["metadata"].setdefault("labels", {})
        known.pop(name, None)
        if value is not None:
            known[name] = value
        self.api.put(resources.NODE, node)

    def discover(self, number: int) -> None:
        """Find a card, as the node agent does."""
        self.api.put(
            resources.PHYSICAL_GPU,
            {
                "metadata": {
                    "name": gpu_name(number),
                    "labels": {labels.NODE: NODE, labels.VENDOR: "simulated"},
                },
                "status": {"pciInfo": {"address": address(number)}},
            },
        )

    def gpu(self, number: int) -> dict[str, Any]:
        """The status of a card's PhysicalGPU."""
        found: dict[str, Any] = self.api.objects(resources.PHYSICAL_GPU)[gpu_name(number)]
        return found.get("status") or {}

    def settings(self) -> Settings:
        usual = Settings(
            vendor="simulated",
            node_name=NODE,
            kubeconfig=self.kubeconfig,
            host_root=self.folder,
            namespace="kube-system",
            config_map=CONFIG_MAP,
            config_fallback=("named", "empty"),
            plugins_dir=self.plugins,
            pod_resources=str(self.kubelet.pod_resources),
            data_dir=self.folder / "data",
            cdi_hook=self.folder / "image" / "nvidia-cdi-hook",
            cdi_root=self.folder / "cdi",
            poll_seconds=0.1,
        )
        return dataclasses.replace(usual, **self.changes)

    async def start(self) -> None:
        """Start the plugin."""
        self._task = asyncio.create_task(main.run(self.settings()))

    async def end(self) -> None:
        """End the plugin."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._task = None

    async def until(self, true: Any) -> Any:
        """Wait until `true()`; an error of the plugin ends the wait."""
        assert self._task is None or not self._task.done(), self._task
        return await self.api.until(true, seconds=PATIENCE_SECONDS)

    async def offers(self, **counts: int | None) -> None:
        """Wait until the Node would show so many of each resource (`gpu_shared=16`)."""
        wanted = {f"nvidia.com/{name.replace('_', '.')}": each for name, each in counts.items()}
        await self.until(
            lambda: {name: self.kubelet.allocatable(name) for name in wanted} == wanted
        )

    def condition(self) -> dict[str, Any] | None:
        """The plugin's condition on the Node."""
        status = self.api.objects(resources.NODE)[NODE].get("status") or {}
        found = status.get("conditions") or []
        return next((each for each in found if each["type"] == "DevicePluginConfigured"), None)

    def events(self) -> list[str]:
        """Reasons of all Events about the node."""
        found = self.api.objects(resources.EVENT).values()
        return [each["reason"] for each in found if each["involvedObject"]["kind"] == "Node"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: sockets allow 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dp-") as path:
        yield Path(path)


@pytest.fixture
async def stopped(folder: Path) -> AsyncIterator[World]:
    """A world whose kubelet runs and whose plugin does not."""
    async with apiserver.ApiServer() as api:
        world = World(folder, api)
        await world.kubelet.start()
        try:
            yield world
        finally:
            await world.end()
            await world.kubelet.stop()


@pytest.fixture
async def world(stopped: World) -> World:
    """A world whose plugin offers four cards."""
    await stopped.start()
    await stopped.offers(gpu=4)
    return stopped
