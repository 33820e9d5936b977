# SPDX-License-Identifier: Apache-2.0
"""A PCI bus below a temporary host root, and the agent that watches it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support import apiserver

from gpudeck.agent import main
from gpudeck.agent.settings import Settings
from gpudeck.api import resources

NODE = "node-0"
NAMESPACE = "gpudeck-system"
FIRST, SECOND = "node-0-0000-1b-00-0", "node-0-0000-43-00-0"
PCI_IDS = (
    "10de  NVIDIA Corporation\n\t2330  GH100 [H100 SXM5 80GB]\n"
    "9999  MetaX Integrated Circuits\n\t4001  C500 [MXC500]\n"
    "C 03  Display controller\n\t02  3D controller\nC 12  Processing accelerators\n"
    "\t00  Processing accelerators\n"
)


class Host:
    """The files of a host; cards come, go, and change their driver."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._bus = root / "sys/bus/pci/devices"
        self._bus.mkdir(parents=True)
        self.write("usr/share/misc/pci.ids", PCI_IDS)
        self.write("etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04"\n')
        self.write("proc/sys/kernel/osrelease", "6.8.0-60-generic\n")
        self.write("proc/cpuinfo", "flags : fpu\n")
        self.write("sys/class/dmi/id/sys_vendor", "NVIDIA\n")

    def write(self, path: str, text: str) -> None:
        """Write a file, with its folders."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def _folder(self, address: str) -> Path:
        return self.root / "sys/devices/pci0000:15" / address

    def plug(self, address: str, *, driver: str = "nvidia", **values: str) -> None:
        """Put a card in; values replace attributes."""
        attributes = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", **values}
        for name, value in {"numa_node": "0", **attributes}.items():
            self.write(f"sys/devices/pci0000:15/{address}/{name}", value + "\n")
        self.bind(address, driver)
        (self._bus / address).symlink_to(f"../../../devices/pci0000:15/{address}")

    def unplug(self, address: str) -> None:
        """Take a card out."""
        (self._bus / address).unlink()
        shutil.rmtree(self._folder(address))

    def bind(self, address: str, driver: str) -> None:
        """Give a card to a kernel driver."""
        link = self._folder(address) / "driver"
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../../bus/pci/drivers/{driver}")

    def sicken(self, address: str) -> None:
        """Let reading the card's class fail."""
        (self._folder(address) / "class").unlink()
        (self._folder(address) / "class").mkdir()

    def heal(self, address: str) -> None:
        """Let reading the card's class work again."""
        (self._folder(address) / "class").rmdir()
        (self._folder(address) / "class").write_text("0x030200\n")


class Story:
    """One server, one host, and what a test reads of them."""

    def __init__(self, server: apiserver.ApiServer, host: Host) -> None:
        self.server = server
        self.host = host

    @contextlib.asynccontextmanager
    async def agent(self) -> AsyncIterator[None]:
        """Run the agent inside the block; leaving it is as abrupt as a kill."""
        settings = Settings(
            node_name=NODE,
            namespace=NAMESPACE,
            host_root=self.host.root,
            host_root_on_node="/mnt/host",
            scan_seconds=0.05,
            poll_seconds=0.01,
        )
        async with self.server.client() as api:
            running = asyncio.create_task(main.Agent(settings, api).run())
            try:
                yield
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running

    @property
    def gpus(self) -> dict[str, dict[str, Any]]:
        """The PhysicalGPUs by name."""
        return self.server.objects(resources.PHYSICAL_GPU)

    def discovered(self, name: str) -> tuple[str, str] | None:
        """Status and reason of the condition Discovered."""
        conditions = self.gpus.get(name, {}).get("status", {}).get("conditions", [])
        found = [each for each in conditions if each["type"] == "Discovered"]
        return (found[0]["status"], found[0]["reason"]) if found else None

    async def is_found(self, *names: str) -> None:
        """Wait until these cards, and no others, are discovered."""
        await self.server.until(
            lambda: (
                set(self.gpus) == set(names)
                and all(self.discovered(name) == ("True", "CardFound") for name in names)
            )
        )

    def vendor_label(self) -> str | None:
        """The node's label."""
        node = self.server.objects(resources.NODE)[NODE]
        label: str | None = node["metadata"].get("labels", {}).get("gpu.deckhouse.io/vendor")
        return label

    def change_node(self, **metadata: dict[str, str]) -> None:
        """Let somebody else replace labels or annotations of the Node."""
        node = self.server.objects(resources.NODE)[NODE]
        self.server.put(resources.NODE, {**node, "metadata": {**node["metadata"], **metadata}})

    def owners(self, name: str) -> list[str]:
        """The UIDs of a PhysicalGPU's owners."""
        return [each["uid"] for each in self.gpus[name]["metadata"]["ownerReferences"]]

    def events(self) -> set[str]:
        """The reasons of all Events."""
        return {each["reason"] for each in self.server.objects(resources.EVENT).values()}

    def allow(self, text: str) -> None:
        """Write the ConfigMap of supported vendors."""
        self.server.put(
            resources.CONFIG_MAP,
            {
                "metadata": {"name": "gpu-supported-vendors", "namespace": NAMESPACE},
                "data": {"vendors.yaml": text},
            },
        )

    async def occupy(self, name: str, **occupancy: Any) -> None:
        """Write occupancy as the controller does."""
        async with self.server.client() as api:
            await api.apply(
                resources.PHYSICAL_GPU,
                {"metadata": {"name": name}, "status": {"occupancy": occupancy}},
                dict,
                manager="gpudeck-controller",
                subresource="status",
            )
