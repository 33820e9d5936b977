# SPDX-License-Identifier: Apache-2.0
"""A DRA plugin at real API servers that keep more or less of what it publishes.

Each is the real program with feature gates: as it is shipped, and as other Kubernetes versions
are. No version is compared but by the tests, to say what that server is expected to keep.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.scenario.dra import standins
from tests.support import expect, realapiserver

from gpudeck import errors
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import crds, resource, resources
from gpudeck.dra import main
from gpudeck.dra.settings import Settings
from gpudeck.kube import watching
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client

NODE = "node-0"
AS_SHIPPED, NOTHING, COUNTERS = "as shipped", "keeps nothing", "keeps counters"


@dataclasses.dataclass
class Server:
    """One API server, and which fields it is expected to keep."""

    kubeconfig: str
    counters: bool
    shares: bool
    taints: bool


@pytest.fixture(scope="module", params=[AS_SHIPPED, NOTHING, COUNTERS])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    programs = realapiserver.required()
    is_new = realapiserver.minor_version(programs) >= 36
    wants = request.param
    gates = {} if wants == AS_SHIPPED else _gates(programs, counters=wants == COUNTERS)
    with realapiserver.running(programs, gates) as kubeconfig:
        asyncio.run(_define(kubeconfig))
        yield Server(
            kubeconfig,
            # Before 1.35 counters must be in the resource slice of the devices: ours are refused.
            counters=is_new and wants != NOTHING,
            shares=is_new and wants == AS_SHIPPED,
            taints=is_new and wants != NOTHING,
        )


def _gates(programs: Path, *, counters: bool) -> dict[str, bool]:
    gates = {
        "DRAPartitionableDevices": counters,
        "DRAConsumableCapacity": False,
        "DRADeviceTaints": counters and realapiserver.minor_version(programs) >= 36,
    }
    if realapiserver.minor_version(programs) >= 37:
        gates["DRAFractionalCapacityRange"] = False
        if not counters:
            gates["DRADeviceTaintRules"] = False
    return gates


async def _define(kubeconfig: str) -> None:
    async with await Client.connect(kubeconfig) as admin:
        for definition in crds.DEFINITIONS:
            body: dict[str, Any] = yaml.safe_load(crds.render(definition))
            await admin.apply(resources.CUSTOM_RESOURCE_DEFINITION, body, dict, manager="test")
        for definition in crds.DEFINITIONS:
            await expect.eventually(lambda each=definition: _is_served(admin, each), True)
        await admin.create(resources.NODE, {"metadata": {"name": NODE}}, dict)
        await _put_class(admin)
        await _put_card(admin)


async def _is_served(admin: Client, definition: Any) -> bool:
    try:
        await admin.raw("GET", definition.resource.path())
    except (errors.NotFoundError, errors.UnavailableError):
        return False
    return True


async def _put_class(admin: Client) -> None:
    """A class of all parts, as the controller leaves it."""
    body = {"metadata": {"name": "parts"}, "spec": {"devices": ["Partition", "Share"]}}
    await admin.create(resources.GPU_CLASS, body, dict)
    ready = {
        "type": "Ready", "status": "True", "reason": "Told", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    status = {"status": {"conditions": [ready]}}
    await admin.merge_patch(resources.GPU_CLASS, "parts", status, dict, subresource="status")


async def _put_card(admin: Client) -> None:
    """The card's object, as the node agent leaves it."""
    marks = {"gpu.deckhouse.io/node": NODE, "gpu.deckhouse.io/vendor": "nvidia"}
    body = {"metadata": {"name": CARD, "labels": marks}}
    await admin.create(resources.PHYSICAL_GPU, body, dict)
    status = {"status": {"pciInfo": {"address": standins.card(0).pci_address}}}
    await admin.merge_patch(resources.PHYSICAL_GPU, CARD, status, dict, subresource="status")


CARD = f"{NODE}-{standins.device(0).removeprefix('gpu-')}"


class World:
    """A node with one card that can be cut and shared, and all that was ever stored of it."""

    def __init__(self, folder: Path, server: Server, admin: Client) -> None:
        self.folder, self.server, self.admin = folder, server, admin
        self.adapter = standins.Adapter(folder / "adapter.sock", [standins.partitionable(0)])
        self.stored: list[resource.ResourceSlice] = []
        """Every state of every ResourceSlice, in order."""
        self.cache = Cache(admin, resources.RESOURCE_SLICE, resource.ResourceSlice)
        self.cache.subscribe(self._note)

    def _note(self, change: watching.Change[resource.ResourceSlice]) -> None:
        if change.new is not None:
            self.stored.append(change.new)

    @contextlib.asynccontextmanager
    async def plugin(self) -> AsyncIterator[None]:
        """A plugin that runs until the end of the block."""
        root = self.folder / "root/proc/sys/kernel/random"
        for each in (root, self.folder / "plugins", self.folder / "registry"):
            each.mkdir(parents=True, exist_ok=True)
        (root / "boot_id").write_text("boot-1\n")
        settings = Settings(
            node_name=NODE,
            kubeconfig=self.server.kubeconfig,
            host_root=self.folder / "root",
            data_dir=self.folder / "plugins",
            registry_dir=self.folder / "registry",
            cdi_root=self.folder / "cdi",
            adapter_socket=self.adapter.socket,
            cdi_hook=self.folder / "hook",
        )
        running = asyncio.create_task(main.run(settings))
        try:
            yield
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    def show(self, **changes: Any) -> None:
        """Change the card."""
        made = standins.partitionable(0)
        made.MergeFrom(adapter_pb2.Card(**changes))
        self.adapter.show([made])

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for a state of what is stored."""

        async def asked() -> bool:
            return bool(true())

        await expect.eventually(asked, True)

    def devices(self) -> list[resource.Device]:
        """What is offered now."""
        found = sorted(self.cache.objects.items())
        return [device for _, each in found for device in each.spec.devices or ()]

    def kinds(self) -> set[str]:
        """The kinds of devices that are offered now: gpu, mig, share."""
        return {device.name.partition("-")[0] for device in self.devices()}

    async def verdict(self) -> tuple[str, str]:
        """Status and reason of the card's condition Published."""
        found = await self.admin.get(resources.PHYSICAL_GPU, CARD, dict)
        for each in found.get("status", {}).get("conditions", ()):
            if each["type"] == "Published":
                return each["status"], each["reason"]
        return "", ""


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    with tempfile.TemporaryDirectory(prefix="dra-") as folder:
        async with await Client.connect(server.kubeconfig) as admin:
            for each in (await admin.list(resources.RESOURCE_SLICE, resource.ResourceSlice)).items:
                await admin.delete(resources.RESOURCE_SLICE, each.metadata.name)
            world = World(Path(folder), server, admin)
            following = asyncio.create_task(world.cache.run())
            await world.cache.synced()
            await world.adapter.start()
            try:
                yield world
            finally:
                await world.adapter.stop()
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await following
