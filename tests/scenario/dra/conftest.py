# SPDX-License-Identifier: Apache-2.0
"""One node with a DRA plugin: real sockets and files below a temporary folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenario.dra import standins
from tests.support import apiserver

from gpudeck.api import resources
from gpudeck.dra import main
from gpudeck.dra.settings import Settings

NODE = "node-0"


class World:
    """The node, the API server, the adapter, and the plugin that can be ended and started."""

    def __init__(self, folder: Path, api: apiserver.ApiServer) -> None:
        self.folder = folder
        self.api = api
        self.kubeconfig = api.kubeconfig()
        self.data_dir = folder / "plugins"
        self.registry_dir = folder / "registry"
        self.cdi_root = folder / "cdi"
        self.checkpoint = self.data_dir / "checkpoint.json"
        self.boot_id_file = folder / "root/proc/sys/kernel/random/boot_id"
        for each in (self.data_dir, self.registry_dir, self.boot_id_file.parent):
            each.mkdir(parents=True)
        self.boot("boot-1")
        self.adapter = standins.Adapter(folder / "adapter.sock", map(standins.card, range(4)))
        self.kubelet = standins.Kubelet(self.registry_dir)
        self.device_metadata = True
        self._tasks: dict[str, asyncio.Task[None]] = {}
        api.put(resources.NODE, {"metadata": {"name": NODE, "uid": "node-uid"}})

    def settings(self, pod_uid: str = "") -> Settings:
        return Settings(
            node_name=NODE,
            kubeconfig=self.kubeconfig,
            host_root=self.folder / "root",
            data_dir=self.data_dir,
            registry_dir=self.registry_dir,
            cdi_root=self.cdi_root,
            adapter_socket=self.adapter.socket,
            pod_uid=pod_uid,
            device_metadata=self.device_metadata,
            cdi_hook=self.folder / "hook",
        )

    async def start(self, pod_uid: str = "") -> None:
        """Start the plugin, of a pod if need be, and register it with the kubelet."""
        self._tasks[pod_uid] = asyncio.create_task(main.run(self.settings(pod_uid)))
        await self.until(lambda: list(self.registry_dir.glob(f"*{pod_uid}-reg.sock")))
        await self.kubelet.register(pod_uid)

    async def stop(self) -> None:
        """End every plugin."""
        await self.kubelet.close()
        for pod_uid in list(self._tasks):
            await self.end(pod_uid)

    async def end(self, pod_uid: str) -> None:
        """End the plugin of one pod."""
        task = self._tasks.pop(pod_uid)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def ended(self) -> None:
        """Wait for the plugin of no pod to end by itself."""
        await self._tasks.pop("")

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def boot(self, boot_id: str) -> None:
        """The host boots: another boot id, and the tmpfs of the CDI specs is empty."""
        self.boot_id_file.write_text(boot_id + "\n")
        shutil.rmtree(self.cdi_root, ignore_errors=True)

    async def until(self, true: Any) -> Any:
        """Wait until `true()`."""
        return await self.api.until(true)

    async def published(self, count: int) -> list[dict[str, Any]]:
        """The devices in the API server, once there are `count`."""
        await self.until(lambda: len(self.devices()) == count)
        return self.devices()

    def devices(self) -> list[dict[str, Any]]:
        found = self.api.objects(resources.RESOURCE_SLICE)
        return [
            device for name in sorted(found) for device in found[name]["spec"].get("devices") or ()
        ]

    def claim(self, name: str, *cards: int, **changes: Any) -> dict[str, Any]:
        """A claim in the API, allocated cards of this node and reserved for one pod."""
        results = [
            {
                "request": f"r{index}",
                "driver": "gpu.deckhouse.io",
                "pool": NODE,
                "device": standins.device(number),
                **changes,
            }
            for index, number in enumerate(cards)
        ]
        pod = {"resource": "pods", "name": f"pod-of-{name}", "uid": f"pod-{name}"}
        return self.api.put(
            resources.RESOURCE_CLAIM,
            {
                "metadata": {"name": name, "namespace": "t", "uid": f"uid-{name}"},
                "status": {
                    "allocation": {"devices": {"results": results}},
                    "reservedFor": [pod],
                },
            },
        )

    def forget_claim(self, name: str) -> None:
        """The claim is gone from the API, as after a deletion by force."""
        self.api.remove(resources.RESOURCE_CLAIM, f"t/{name}")

    def sockets(self) -> list[Path]:
        """Where the kubelet finds the plugin of no pod."""
        return [self.data_dir / "dra.sock", self.registry_dir / "gpu.deckhouse.io-reg.sock"]

    def spec(self, name: str) -> dict[str, Any]:
        """The CDI spec of a claim."""
        path = self.cdi_root / f"k8s.gpu.deckhouse.io-claim_uid-{name}.json"
        content: dict[str, Any] = json.loads(path.read_text())
        return content

    def metadata_spec(self, name: str) -> dict[str, Any]:
        """The CDI spec of what the containers of a claim are told."""
        path = self.cdi_root / f"gpu.deckhouse.io-metadata_uid-{name}.json"
        content: dict[str, Any] = json.loads(path.read_text())
        return content

    def specs(self) -> list[str]:
        """Names of the claims that have a CDI spec."""
        found = self.cdi_root.glob("k8s.gpu.deckhouse.io-claim_uid-*.json")
        return sorted(path.stem.partition("_uid-")[2] for path in found)

    def states(self) -> dict[str, str]:
        """State of each claim in the checkpoint, by claim name."""
        claims = json.loads(self.checkpoint.read_text())["data"].get("claims") or {}
        return {uid.removeprefix("uid-"): each["state"] for uid, each in claims.items()}

    def events(self) -> list[str]:
        """Reasons of all Events about the node."""
        found = self.api.objects(resources.EVENT).values()
        return [each["reason"] for each in found if each["involvedObject"]["kind"] == "Node"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: sockets allow 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dra-") as path:
        yield Path(path)


@pytest.fixture
async def stopped(folder: Path) -> AsyncIterator[World]:
    """A world whose adapter runs and whose plugin does not."""
    async with apiserver.ApiServer() as api:
        world = World(folder, api)
        await world.adapter.start()
        try:
            yield world
        finally:
            await world.stop()
            await world.adapter.stop()


@pytest.fixture
async def world(stopped: World) -> World:
    """A world with four cards whose plugin is registered and has published them."""
    await stopped.start()
    await stopped.published(4)
    return stopped
