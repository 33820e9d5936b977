# SPDX-License-Identifier: Apache-2.0
"""Replicas by MPS on the mock of a host: device plugin, mps-control, its daemon, and workloads.

Workloads are given what a container would be given, read from the plugin's own CDI file; what
became of a card is read from the mock's state.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.contract.vendors import benches
from tests.native import hosts
from tests.scenario.deviceplugin.conftest import World
from tests.scenario.deviceplugin.test_with_cards import SHARED, Program, cdi
from tests.support import expect
from tests.support.mps import Keeper

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes and mounts")

CONFIG = "sharing: {mps: {renameByDefault: true, resources: [{name: gpu, replicas: 4}]}}"
EXCLUSIVE = 3


@pytest.fixture
def bench(folder: Path, monkeypatch: pytest.MonkeyPatch) -> benches.NvidiaBench:
    (folder / "host").mkdir()
    return benches.NvidiaBench(folder / "host", monkeypatch, "a100-40gb-x4")


@pytest.fixture
def keeper(bench: benches.NvidiaBench) -> Iterator[Keeper]:
    """`gpudeck mps-control`, not started yet."""
    found = Keeper(bench.tree)
    yield found
    found.kill()


@pytest.fixture
async def program(stopped: World, bench: benches.NvidiaBench) -> AsyncIterator[Program]:
    """The plugin, with a config that shares each card by MPS among four."""
    stopped.configure(mps=CONFIG)
    stopped.label("mps")
    found = Program(stopped, bench.tree)
    await found.start()
    try:
        yield found
    finally:
        await found.kill()


def mode(bench: benches.NvidiaBench, card: int = 0) -> object:
    """The compute mode of a card in the mock's own state."""
    words = [str(bench.artifacts / "simctl"), "show", str(bench.folder), "--json"]
    shown = subprocess.run(words, check=True, capture_output=True)
    return json.loads(shown.stdout)["cards"][card]["state"]["compute-mode"]


async def share(world: World, bench: benches.NvidiaBench, number: int) -> dict[str, str]:
    """The environment of a container that has a replica of the first card."""
    device = f"{bench.machine.cards[0].uuid}::{number}"
    answer = await world.kubelet.allocate(SHARED, device)
    (name,) = [each.name.partition("=")[2] for each in answer.cdi_devices]
    (edits,) = [each["containerEdits"] for each in cdi(world)["devices"] if each["name"] == name]
    environment = dict(each.partition("=")[::2] for each in edits["env"])
    inside = {each["containerPath"]: each["hostPath"] for each in edits["mounts"]}
    pipe = inside[environment["CUDA_MPS_PIPE_DIRECTORY"]]
    return environment | {"CUDA_MPS_PIPE_DIRECTORY": f"{bench.tree}{pipe}"}


def burn(
    bench: benches.NvidiaBench, given: dict[str, str], mebibytes: int
) -> subprocess.Popen[str]:
    """A workload that holds so much memory of the first card."""
    environment = dict(os.environ, LD_LIBRARY_PATH=str(bench.artifacts), CUDA_VISIBLE_DEVICES="0")
    return subprocess.Popen(
        [str(bench.artifacts / "gpu-burn"), "-m", str(mebibytes), "60"],
        env=environment | given, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


async def test_replicas_wait_for_the_daemons_and_then_work_within_their_amounts(
    program: Program, stopped: World, bench: benches.NvidiaBench, keeper: Keeper
) -> None:
    await stopped.offers(gpu=0, gpu_shared=0)
    condition = await stopped.until(
        lambda: (stopped.condition() or {}).get("status") == "False" and stopped.condition()
    )
    assert condition["reason"] == "MpsNotReady"
    assert "is nvidia-mps-control-daemon on the node?" in condition["message"]
    keeper.start()
    await stopped.offers(gpu=0, gpu_shared=16)
    one, two = await share(stopped, bench, 0), await share(stopped, bench, 1)
    assert one["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert one["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=10240M"
    with (
        hosts.ended(burn(bench, one, 9000)) as first,
        hosts.ended(burn(bench, two, 8000)) as beside,
    ):
        hosts.read_until(first, "holding 9000 MiB")
        hosts.read_until(beside, "holding 8000 MiB")
        with hosts.ended(burn(bench, two, 12000)) as greedy:
            assert greedy.wait(10) == 1
            assert "CUDA_ERROR_OUT_OF_MEMORY" in greedy.communicate()[1]
        with hosts.ended(burn(bench, {}, 1)) as stranger:
            assert stranger.wait(10) == 1


async def test_a_plugin_that_is_killed_disturbs_no_client_and_a_new_config_ends_the_daemon(
    program: Program, stopped: World, bench: benches.NvidiaBench, keeper: Keeper
) -> None:
    keeper.start()
    await stopped.offers(gpu_shared=16)
    address = bench.machine.cards[0].address
    daemon = keeper.daemon(address)
    with hosts.ended(burn(bench, await share(stopped, bench, 0), 1024)) as client:
        hosts.read_until(client, "holding")
        stopped.kubelet.held = {SHARED: [f"{bench.machine.cards[0].uuid}::0"]}
        await program.kill()
        stopped.label(None)
        await program.start()
        await stopped.offers(gpu=3, gpu_shared=0)
        assert (keeper.daemon(address), mode(bench)) == (daemon, EXCLUSIVE)
        assert client.poll() is None
    stopped.kubelet.held = {}
    await stopped.offers(gpu=4)
    await keeper.gone(address)

    async def now() -> object:
        return mode(bench)

    await expect.eventually(now, 0)
