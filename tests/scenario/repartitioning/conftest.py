# SPDX-License-Identifier: Apache-2.0
"""One node whose cards are partitioned by a label: an API server, a kubelet, and cards."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.vendors import benches
from tests.scenario.repartitioning import standins
from tests.support import apiserver, systemctl

from gpudeck.api import resources
from gpudeck.mig import attending, configs, planning
from gpudeck.repartitioning import main
from gpudeck.repartitioning.settings import Settings
from gpudeck.vendors import contract

NODE = "node-0"
CONFIG_MAP = "nvidia-mig-config"
PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
LABELLER = "nvidia.com/gpu.deploy.gpu-feature-discovery"
CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"

Bench = benches.NvidiaBench | benches.SimulatedBench


class World:
    """The node, what acts around it, and the process that can be ended and started."""

    def __init__(self, folder: Path, api: apiserver.ApiServer, bench: Bench) -> None:
        self.api = api
        self.bench = bench
        self.kubelet = standins.Kubelet(folder / "pods.sock")
        self.cluster = standins.Cluster(api, self.kubelet, NODE)
        self.kubeconfig = api.kubeconfig()
        self.root = Path(bench.settings.host_root)
        self.boot("boot-1")
        self.options: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None
        self.api.put(resources.NODE, {"metadata": {"name": NODE, "uid": "node-uid"}})
        self.label(**{"gpu.deckhouse.io/active-mode": "device-plugin"})

    def boot(self, name: str) -> None:
        """Let the host have been started anew."""
        path = self.root / "proc/sys/kernel/random/boot_id"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")

    def label(self, **changes: str | None) -> None:
        """Change labels of the Node as an administrator does; None removes one."""
        self._put("labels", changes)

    def annotate(self, **changes: str | None) -> None:
        self._put("annotations", changes)

    def cordon(self, *, is_so: bool = True) -> None:
        """Keep new pods off, as an administrator does; or let them in again."""
        node = json.loads(json.dumps(self.node))
        node["spec"] = {**(node.get("spec") or {}), "unschedulable": is_so}
        self.api.put(resources.NODE, node)

    def is_cordoned(self) -> bool:
        return bool((self.node.get("spec") or {}).get("unschedulable"))

    def taint(self, *taints: dict[str, str]) -> None:
        """Let the Node have these taints and no others."""
        node = json.loads(json.dumps(self.node))
        node["spec"] = {**(node.get("spec") or {}), "taints": list(taints)}
        self.api.put(resources.NODE, node)

    def _put(self, field: str, changes: dict[str, str | None]) -> None:
        node = json.loads(json.dumps(self.node))
        found = {**(node["metadata"].get(field) or {}), **changes}
        node["metadata"][field] = {name: each for name, each in found.items() if each is not None}
        self.api.put(resources.NODE, node)

    def configure(
        self, text: str, name: str = CONFIG_MAP, key: str = configs.KEY, **more: str
    ) -> None:
        """Write a ConfigMap of configs."""
        meta = {"name": name, "namespace": standins.NAMESPACE}
        self.api.put(resources.CONFIG_MAP, {"metadata": meta, "data": {key: text, **more}})

    def services(self, **units: str) -> systemctl.Systemctl:
        """Give the host an init system with these services, which have cards open."""
        self.list_services(*units)
        self.options["gpu_clients_config_map"] = "clients"
        return systemctl.Systemctl(self.root, **units)

    def list_services(self, *names: str) -> None:
        """Write the ConfigMap of services."""
        listed = "".join(f"\n- {each}.service" for each in names)
        text = f"version: v1\nsystemd-services:{listed}\n"
        self.configure(text, "clients", "clients.yaml")

    @property
    def node(self) -> dict[str, Any]:
        return self.api.objects(resources.NODE)[NODE]

    @property
    def labels(self) -> dict[str, str]:
        return self.node["metadata"].get("labels") or {}

    @property
    def notes(self) -> dict[str, str]:
        return self.node["metadata"].get("annotations") or {}

    @property
    def taints(self) -> list[dict[str, Any]]:
        return (self.node.get("spec") or {}).get("taints") or []

    @property
    def condition(self) -> dict[str, Any]:
        """The condition of the Node; empty before there is one."""
        found = (self.node.get("status") or {}).get("conditions") or []
        return next((each for each in found if each["type"] == "MigConfigured"), {})

    def events(self) -> list[str]:
        return [each["reason"] for each in self.api.objects(resources.EVENT).values()]

    def is_in_service(self) -> bool:
        """Nothing of a change is left on the Node."""
        return (
            not self.taints
            and not self.is_cordoned()
            and "paused-for-mig-change" not in self.labels.values()
            and "gpu.deckhouse.io/drain" not in self.notes
        )

    def settings(self) -> Settings:
        given = Settings(
            vendor=self.bench.vendor,
            node_name=NODE,
            kubeconfig=self.kubeconfig,
            host_root=self.root,
            log_level="warning",
            namespace=standins.NAMESPACE,
            pod_resources=str(self.kubelet.socket),
            plugins_dir=self.kubelet.plugins,
            pod_logs=self.kubelet.logs,
            trace_seconds=0.05,
        )
        return dataclasses.replace(given, **self.options)

    async def start(self, **options: Any) -> None:
        self.options |= options
        self._task = asyncio.create_task(main.run(self.settings()))

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._task = None

    async def until(self, true: Any, *, seconds: float = 30.0) -> Any:
        """Wait until `true()`; an error of the process ends the wait."""
        return await self.api.until(lambda: self._alive() and true(), seconds=seconds)

    def _alive(self) -> bool:
        assert self._task is None or not self._task.done(), self._task
        return True

    async def becomes(self, state: str, **more: Any) -> None:
        """Wait for a state, the node being in service again."""
        await self.until(lambda: self.labels.get(STATE) == state and self.is_in_service(), **more)

    async def cards(self) -> list[Counter[str]]:
        """How many partitions of each profile each card has, as another process reads it."""
        found = await self._read()
        return [Counter(planning.counts(each) if each else {}) for each in found]

    async def partition(self, card: int, start: int) -> str:
        """The UUID of a partition that there is."""
        reading = (await self._read())[card]
        assert reading is not None
        return next(each.uuid for each in reading.partitions if each.start == start)

    async def uuids(self) -> list[str]:
        """The UUID of each card."""
        return [each.uuid for each in await self._read() if each is not None]

    async def _read(self) -> list[contract.CardReading | None]:
        place = attending.Place(self.bench.vendor, self.bench.settings.host_root)
        async with attending.attended(place) as cards:
            return [each.reading for each in cards.now]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: sockets allow 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="mm-") as path:
        yield Path(path)


@contextlib.asynccontextmanager
async def living(folder: Path, bench: Bench) -> AsyncIterator[World]:
    """A world in which all but the process itself runs."""
    async with apiserver.ApiServer() as api:
        world = World(folder, api, bench)
        await world.kubelet.start()
        try:
            async with standins.running(world.cluster.run()):
                yield world
        finally:
            await world.end()
            await world.kubelet.stop()


@pytest.fixture
async def world(folder: Path) -> AsyncIterator[World]:
    """Two cards of a maker that is made up, whose mode changes by a reset."""
    bench = benches.SimulatedBench(folder, partitionable=True, dynamic=False)
    async with living(folder, bench) as found:
        yield found


@pytest.fixture
async def a100(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """Four A100, which are reset by the driver's tool for a change of the mode."""
    bench = nvidia(tmp_path, monkeypatch, "a100-40gb-x4", mode_change="pending")
    async with living(folder, bench) as found:
        yield found


@pytest.fixture
async def h100(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """Eight H100, whose mode changes without a reset."""
    async with living(folder, nvidia(tmp_path, monkeypatch, "h100-x8")) as found:
        yield found


def nvidia(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, mode_change: str = ""
) -> benches.NvidiaBench:
    """NVIDIA's cards on the mock library."""
    if os.geteuid() != 0:
        pytest.skip("device nodes of the simulated host can be made by root only")
    return benches.NvidiaBench(folder, monkeypatch, name, mode_change=mode_change)
