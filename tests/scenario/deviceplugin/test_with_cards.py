# SPDX-License-Identifier: Apache-2.0
"""`gpudeck device-plugin` as a program, on the mock NVML of a machine with NVIDIA cards.

It is killed at random and started again while a kubelet, an API server and the cards go on.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.vendors import benches
from tests.scenario.deviceplugin.conftest import CONFIG_MAP, NODE, World

if os.geteuid() != 0:
    pytest.skip(
        "device nodes of the simulated host can be made by root only", allow_module_level=True
    )

_START = "from gpudeck.cli.main import main; main()"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


class Program:
    """The process, which can be killed and started."""

    def __init__(self, world: World, host_root: Path) -> None:
        self._world = world
        self._host_root = host_root
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, poll_seconds: str = "0.2") -> None:
        world = self._world
        options = {
            "node-name": NODE,
            "kubeconfig": world.kubeconfig,
            "namespace": "kube-system",
            "config-map": CONFIG_MAP,
            "config-fallback": "named,empty",
            "mig-strategy": "mixed",
            "host-root": self._host_root,
            "plugins-dir": world.plugins,
            "pod-resources": world.kubelet.pod_resources,
            "data-dir": world.folder / "data",
            "cdi-hook": world.folder / "image/nvidia-cdi-hook",
            "cdi-root": world.folder / "cdi",
            "poll-seconds": poll_seconds,
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _START, "device-plugin", *words
        )

    async def kill(self) -> None:
        """End it as the kernel does when memory runs out."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
        self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


@pytest.fixture
def machine() -> str:
    return "a100-40gb-x4"


@pytest.fixture
def bench(machine: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> benches.NvidiaBench:
    (folder / "host").mkdir()
    return benches.NvidiaBench(folder / "host", monkeypatch, machine)


@pytest.fixture
async def program(stopped: World, bench: benches.NvidiaBench) -> AsyncIterator[Program]:
    found = Program(stopped, bench.tree)
    await found.start()
    try:
        yield found
    finally:
        await found.kill()


async def test_cards_are_offered_shared_and_given(
    program: Program, stopped: World, bench: benches.NvidiaBench
) -> None:
    await stopped.offers(gpu=4)
    stopped.label("slice-4")
    await stopped.offers(gpu=0, gpu_shared=16)
    card = bench.machine.cards[2].uuid
    answer = await stopped.kubelet.allocate(SHARED, f"{card}::3")
    name = f"k8s.device-plugin.nvidia.com/gpu={card}"
    assert [each.name for each in answer.cdi_devices] == [name]
    assert device_nodes(stopped, card)[0] == "/dev/nvidia2"


async def test_links_are_made_by_a_hook_that_was_put_on_the_node(
    program: Program, stopped: World
) -> None:
    await stopped.offers(gpu=4)
    await program.kill()
    (stopped.folder / "image").mkdir()
    (stopped.folder / "image/nvidia-cdi-hook").write_bytes(b"program")
    before = cdi(stopped)
    assert "hooks" not in json.dumps(before)
    await program.start()
    await stopped.until(lambda: cdi(stopped) != before)
    used = {each["path"] for each in cdi(stopped)["containerEdits"]["hooks"]}
    (installed,) = (stopped.folder / "data/bin").iterdir()
    assert used == {str(installed)}
    assert installed.read_bytes() == b"program"
    assert os.access(installed, os.X_OK)


STRATEGIES = """\
version: v1
flags:
  plugin: {{deviceListStrategy: [{}], passDeviceSpecs: true, deviceIDStrategy: index}}
"""


async def use(world: World, name: str, strategy: str) -> None:
    """Have a config in force that tells containers of their cards so."""
    world.configure(**{name: STRATEGIES.format(strategy)})
    world.label(name)
    await world.offers(gpu=4)
    await world.until(lambda: f"config {name} " in (world.condition() or {}).get("message", ""))


async def test_containers_are_told_of_their_cards_without_cdi(
    program: Program, stopped: World, bench: benches.NvidiaBench
) -> None:
    card, folder = bench.machine.cards[2].uuid, "/var/run/nvidia-container-devices"
    await use(stopped, "by-variable", "envvar")
    answer = await stopped.kubelet.allocate(GPU, card)
    nodes = {each.container_path for each in answer.devices}
    assert {"/dev/nvidia2", "/dev/nvidiactl"} <= nodes
    assert "/dev/nvidia1" not in nodes
    assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": "2"}
    assert not answer.mounts
    await use(stopped, "by-mounts", "volume-mounts")
    answer = await stopped.kubelet.allocate(GPU, card)
    assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": folder}
    assert [(each.container_path, each.host_path) for each in answer.mounts] == [
        (f"{folder}/2", "/dev/null")
    ]
    assert not answer.cdi_devices
    assert not answer.annotations


async def test_containers_are_told_of_their_cards_by_annotations_of_cdi(
    program: Program, stopped: World, bench: benches.NvidiaBench
) -> None:
    await use(stopped, "by-annotation", "cdi-annotations")
    answer = await stopped.kubelet.allocate(GPU, bench.machine.cards[2].uuid)
    ((name, value),) = answer.annotations.items()
    assert name.startswith("cdi.k8s.io/nvidia-device-plugin_")
    assert value == "k8s.device-plugin.nvidia.com/gpu=2"
    assert device_nodes(stopped, "2")[0] == "/dev/nvidia2"


async def test_a_plugin_that_is_killed_offers_the_same_when_it_is_back(
    program: Program, stopped: World
) -> None:
    await stopped.offers(gpu=4)
    stopped.label("slice-4")
    await stopped.offers(gpu=0, gpu_shared=16)
    for number in range(3):
        await program.kill()
        if number == 1:
            await stopped.kubelet.restart()
        await program.start()
        await stopped.offers(gpu_shared=16)


async def test_a_card_off_the_bus_is_one_card(
    program: Program, stopped: World, bench: benches.NvidiaBench
) -> None:
    await stopped.offers(gpu=4)
    bench.lose(1)
    await stopped.offers(gpu=3)
    bench.find(1)
    await stopped.offers(gpu=4)


@pytest.mark.parametrize("machine", ["v100-x8"])
async def test_of_a_cube_mesh_the_cards_with_most_links_are_preferred(
    program: Program, stopped: World, bench: benches.NvidiaBench
) -> None:
    await stopped.offers(gpu=8)
    cards = [each.uuid for each in bench.machine.cards]
    free = [cards[number] for number in (4, 3, 1, 0)]
    assert await stopped.kubelet.prefer(GPU, free, 2) == [cards[0], cards[3]]


@pytest.mark.parametrize("machine", ["h100-x8"])
async def test_partitions_appear_by_profile_as_they_are_made(
    program: Program, stopped: World, bench: benches.NvidiaBench
) -> None:
    await stopped.offers(gpu=8)
    await program.kill()
    await program.start(poll_seconds="600")  # What the node shows is reason enough to look.
    await stopped.offers(gpu=8)
    bench.enable_partitions(0)
    bench.partition(0, "19,19,14")
    small, middle = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
    await stopped.until(
        lambda: [stopped.kubelet.allocatable(each) for each in (GPU, small, middle)] == [7, 2, 1]
    )
    (partition, *_) = sorted(stopped.kubelet.devices(small) or {})
    await stopped.kubelet.allocate(small, partition)
    nodes = device_nodes(stopped, partition)
    assert nodes[0] == "/dev/nvidia0"
    assert all(each.startswith("/dev/nvidia-caps/") for each in nodes[1:])
    assert len(nodes) == 3


@pytest.mark.parametrize("machine", ["h100-x8"])
async def test_an_index_names_the_partition_that_the_driver_numbers_so(
    program: Program, stopped: World, bench: benches.NvidiaBench
) -> None:
    """NVIDIA's runtime asks the driver for `0:1`."""
    await stopped.offers(gpu=8)
    bench.enable_partitions(0)
    bench.partition(0, "19,19,14")
    small, middle = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
    await stopped.until(
        lambda: [stopped.kubelet.allocatable(each) for each in (small, middle)] == [2, 1]
    )
    stopped.configure(index=STRATEGIES.format("envvar"))
    stopped.label("index")
    await stopped.until(lambda: "config index " in (stopped.condition() or {}).get("message", ""))
    given = {}
    for resource in (small, middle):
        for uuid in stopped.kubelet.devices(resource) or {}:
            answer = await stopped.kubelet.allocate(resource, uuid)
            given[uuid] = answer.envs["NVIDIA_VISIBLE_DEVICES"]
    listed = re.findall(r"Device +(\d+): \(UUID: (MIG-[^)]+)", bench.listed())
    assert given == {uuid: f"0:{number}" for number, uuid in listed}


def device_nodes(world: World, name: str) -> list[str]:
    """Device nodes that one device of the CDI file has for itself."""
    (device,) = [each for each in cdi(world)["devices"] if each["name"] == name]
    return [each["path"] for each in device["containerEdits"]["deviceNodes"]]


def cdi(world: World) -> dict[str, Any]:
    """The CDI file of the cards."""
    path = world.folder / "cdi/k8s.device-plugin.nvidia.com-gpu.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found
