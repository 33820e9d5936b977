# SPDX-License-Identifier: Apache-2.0
"""A device plugin between a kubelet, an API server and cards, each of which comes and goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import stat
from pathlib import Path

import grpc.aio
import pytest
from tests.scenario.deviceplugin.conftest import CONFIG, World

from gpudeck.cdi import hooks
from gpudeck.deviceplugin import main
from gpudeck.vendors import contract
from gpudeck.vendors.simulated import machine

CARD = "GPU-00000000-0000-0000-0000-{:012d}"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


async def test_a_label_shares_the_cards_and_its_removal_gives_them_back(world: World) -> None:
    world.label("slice-4")
    await world.offers(gpu=0, gpu_shared=16)
    assert sorted(world.kubelet.devices(SHARED) or {})[0] == f"{CARD.format(0)}::0"
    world.label("slice-10")
    await world.offers(gpu=0, gpu_shared=40)
    world.label(None)
    await world.offers(gpu=4, gpu_shared=0)


async def test_a_pod_gets_one_share_and_is_refused_two_with_a_sentence(world: World) -> None:
    world.label("slice-4")
    await world.offers(gpu_shared=16)
    answer = await world.kubelet.allocate(SHARED, f"{CARD.format(1)}::2")
    name = f"k8s.device-plugin.nvidia.com/gpu={CARD.format(1)}"
    assert [each.name for each in answer.cdi_devices] == [name]
    file = json.loads((world.folder / "cdi/k8s.device-plugin.nvidia.com-gpu.json").read_text())
    assert CARD.format(1) in [each["name"] for each in file["devices"]]
    with pytest.raises(grpc.aio.AioRpcError, match=r"asks for 2 of nvidia\.com/gpu\.shared"):
        await world.kubelet.allocate(SHARED, f"{CARD.format(1)}::2", f"{CARD.format(2)}::0")


async def test_shares_are_spread_over_the_cards(world: World) -> None:
    world.label("slice-4")
    await world.offers(gpu_shared=16)
    free = [each for each in world.kubelet.devices(SHARED) or {} if CARD.format(0) not in each]
    assert await world.kubelet.prefer(SHARED, free, 1) == [f"{CARD.format(1)}::0"]


async def test_a_changed_config_map_is_followed(world: World) -> None:
    world.label("slice-4")
    await world.offers(gpu_shared=16)
    world.configure(**{"slice-4": CONFIG.format(2)})
    await world.offers(gpu_shared=8)


async def test_an_unknown_config_keeps_the_last_good_one_and_the_node_says_so(
    world: World,
) -> None:
    world.label("slice-4")
    await world.offers(gpu_shared=16)
    world.label("slice-5")
    condition = await world.until(
        lambda: (world.condition() or {}).get("status") == "False" and world.condition()
    )
    assert condition["reason"] == "PluginConfigUnknown"
    assert "slice-10" in condition["message"]
    await world.until(lambda: "PluginConfigUnknown" in world.events())
    assert world.kubelet.allocatable(SHARED) == 16
    world.label("slice-10")
    await world.until(lambda: (world.condition() or {}).get("status") == "True")
    await world.offers(gpu_shared=40)


async def test_a_wrong_config_is_named_by_its_field(world: World) -> None:
    world.configure(bad="flags: {renameByDefault: true}")
    world.label("bad")
    condition = await world.until(
        lambda: (world.condition() or {}).get("status") == "False" and world.condition()
    )
    assert "flags.renameByDefault" in condition["message"]
    assert world.kubelet.allocatable(GPU) == 4


async def test_a_card_that_a_pod_holds_whole_is_not_shared_before_the_pod_ends(
    world: World,
) -> None:
    world.kubelet.held = {GPU: [CARD.format(2)]}
    world.label("slice-4")
    await world.offers(gpu=0, gpu_shared=12)
    unhealthy = [
        each
        for each, health in (world.kubelet.devices(SHARED) or {}).items()
        if health != "Healthy"
    ]
    assert {each.partition("::")[0] for each in unhealthy} == {CARD.format(2)}
    said = "Given to nobody now: 4. "
    await world.until(lambda: said in (world.condition() or {}).get("message", ""))
    world.kubelet.held = {}
    await world.offers(gpu_shared=16)
    await world.until(lambda: said not in (world.condition() or {}).get("message", ""))


async def test_a_card_that_an_init_container_holds_is_not_shared_before_the_pod_ends(
    world: World,
) -> None:
    """The kubelet's API does not tell of it (1.34 to 1.37)."""
    world.kubelet.untold = {GPU: [CARD.format(2)]}
    world.label("slice-4")
    await world.offers(gpu=0, gpu_shared=12)
    world.kubelet.end(world.kubelet.untold)
    await world.offers(gpu_shared=16)


async def test_what_ended_pods_held_is_offered_another_way(world: World) -> None:
    """The kubelet's file has them still."""
    world.kubelet.held = {GPU: [CARD.format(1)]}
    world.kubelet.untold = {GPU: [CARD.format(2)]}
    world.label("slice-4")
    await world.offers(gpu=0, gpu_shared=8)
    world.kubelet.end(world.kubelet.held)
    await world.offers(gpu_shared=12)
    world.kubelet.end(world.kubelet.untold)
    world.label(None)
    await world.offers(gpu=4, gpu_shared=0)
    healthy = [list(each.values()).count("Healthy") for each in world.kubelet.endpoints[GPU].lists]
    assert healthy[-2:] == [0, 4]


async def test_nothing_is_offered_before_the_kubelet_tells_what_pods_hold(stopped: World) -> None:
    hidden = stopped.folder / "hidden.sock"
    stopped.kubelet.pod_resources.rename(hidden)
    stopped.kubelet.held = {GPU: [CARD.format(2)]}
    stopped.label("slice-4")
    await stopped.start()
    await stopped.until((stopped.folder / "cdi/k8s.device-plugin.nvidia.com-gpu.json").exists)
    assert not any(map(stopped.kubelet.allocatable, (GPU, SHARED)))
    hidden.rename(stopped.kubelet.pod_resources)
    await stopped.offers(gpu=0, gpu_shared=12)


async def test_what_keeps_cards_from_being_offered_is_said_and_ends_nothing(
    stopped: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be written, and a kubelet that does not tell what pods hold."""
    monkeypatch.setattr(main, "SAID_SECONDS", 0.2)
    (stopped.folder / "cdi").write_text("no folder")
    hidden = stopped.folder / "hidden.sock"
    stopped.kubelet.pod_resources.rename(hidden)
    await stopped.start()

    async def said(words: str) -> None:
        await stopped.until(lambda: words in (stopped.condition() or {}).get("message", ""))

    await said("cdi")
    (stopped.folder / "cdi").unlink()
    await said("the kubelet does not tell")
    assert stopped.kubelet.registrations == []
    hidden.rename(stopped.kubelet.pod_resources)
    await stopped.offers(gpu=4)
    await stopped.until(lambda: (stopped.condition() or {}).get("status") == "True")


async def test_what_was_handed_out_a_moment_ago_counts_as_held(world: World) -> None:
    await world.kubelet.allocate(GPU, CARD.format(3))
    world.label("slice-4")
    await world.offers(gpu_shared=12)


async def test_a_sick_card_is_one_card_and_comes_back(world: World) -> None:
    fault = contract.Fault(reason="Broken", message="It is broken.")
    world.bench.change_card(1, error=fault)
    await world.offers(gpu=3)
    assert (world.kubelet.devices(GPU) or {})[CARD.format(1)] == "Unhealthy"
    world.bench.change_card(1, error=None)
    await world.offers(gpu=4)


async def test_a_hung_card_costs_nobody_else_anything(world: World) -> None:
    world.bench.change_card(0, crashes=True)
    await world.offers(gpu=3)
    answer = await world.kubelet.allocate(GPU, CARD.format(1))
    assert answer.cdi_devices


async def test_a_kubelet_that_restarts_has_every_device_again(world: World) -> None:
    world.label("slice-4")
    await world.offers(gpu=0, gpu_shared=16)
    for _ in range(3):
        await world.kubelet.restart()
        await world.offers(gpu=0, gpu_shared=16)
    assert sorted(world.kubelet.endpoints) == [GPU, SHARED]


async def test_a_kubelet_that_was_away_for_long_is_registered_with(world: World) -> None:
    await world.kubelet.stop()
    (world.plugins / "kubelet.sock").unlink(missing_ok=True)
    await world.until((world.plugins / "nvidia-gpu.sock").exists)
    await world.kubelet.start()
    await world.offers(gpu=4)


async def test_a_plugin_whose_socket_was_removed_serves_again(world: World) -> None:
    registered = len(world.kubelet.registrations)
    (world.plugins / "nvidia-gpu.sock").unlink()
    await world.until(lambda: len(world.kubelet.registrations) > registered)
    await world.offers(gpu=4)
    assert (world.plugins / "nvidia-gpu.sock").exists()
    assert world.kubelet.registrations[registered:] == [GPU]


async def test_a_kubelet_that_refuses_at_first_is_asked_again(stopped: World) -> None:
    stopped.kubelet.refuses = True
    await stopped.start()
    await stopped.until((stopped.plugins / "nvidia-gpu.sock").exists)
    stopped.kubelet.refuses = False
    await stopped.offers(gpu=4)


async def test_a_plugin_that_started_before_the_kubelet_is_known(stopped: World) -> None:
    await stopped.kubelet.stop()
    await stopped.start()
    await stopped.kubelet.start()
    await stopped.offers(gpu=4)


async def test_a_plugin_that_starts_without_the_api_server_offers_what_it_offered(
    world: World,
) -> None:
    world.label("slice-4")
    await world.offers(gpu_shared=16)
    await world.until(lambda: "slice-4" in (world.folder / "data/device-plugin.json").read_text())
    await world.end()
    await world.api.stop()
    await world.start()
    await world.offers(gpu_shared=16)


async def test_no_device_is_lost_for_a_moment_when_the_plugin_restarts(world: World) -> None:
    for _ in range(3):
        await world.end()
        await world.start()
        await world.offers(gpu=4)
        assert world.kubelet.endpoints[GPU].lists == [
            dict.fromkeys(map(CARD.format, range(4)), "Healthy")
        ]


async def test_a_second_plugin_waits_until_the_first_has_ended(world: World) -> None:
    """As when a node comes into another group: the pods of two DaemonSets meet on it."""
    second = asyncio.create_task(main.run(world.settings()))
    lock = str(world.folder / "data" / main.LOCK_FILE)

    def opened() -> int:
        found = Path("/proc/self/fd").iterdir()
        return sum(os.path.realpath(each) == lock for each in found)

    try:
        await world.until(lambda: opened() == 2)
        assert world.kubelet.registrations == [GPU]
        await world.end()
        await world.until(lambda: world.kubelet.registrations == [GPU, GPU])
        await world.offers(gpu=4)
    finally:
        second.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await second


async def test_partitions_are_offered_by_profile(stopped: World) -> None:
    stopped.bench.write(machine.partitionable(2))
    parts = tuple(
        contract.Partition(profile="1g.2gb", uuid=f"MIG-{start}", start=start, size=1)
        for start in range(4)
    )
    enabled = contract.PartitioningMode.ENABLED
    stopped.bench.change_reading(0, mode=enabled, pending_mode=enabled, partitions=parts)
    stopped.configure(default="flags: {migStrategy: mixed}")
    await stopped.start()
    await stopped.until(
        lambda: (
            stopped.kubelet.allocatable("nvidia.com/mig-1g.2gb") == 4
            and stopped.kubelet.allocatable(GPU) == 1
        )
    )


async def test_replicas_by_mps_are_offered_once_their_cards_have_a_daemon(world: World) -> None:
    config = "sharing: {mps: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}"
    world.configure(mps=config)
    world.label("mps")
    await world.offers(gpu=0, gpu_shared=0)
    assert len(world.kubelet.devices(SHARED) or {}) == 8
    for number in range(4):
        world.bench.change_reading(number, share_support=contract.ShareSupport(mps=True))
    await world.offers(gpu_shared=8)
    joined = [card.reading.mps_shares for card in world.bench.read().cards]
    assert joined == [("device-plugin",)] * 4
    answer = await world.kubelet.allocate(SHARED, f"{CARD.format(1)}::1")
    name = f"k8s.device-plugin.nvidia.com/gpu={CARD.format(1)}-mps-4096Mi-50"
    assert [each.name for each in answer.cdi_devices] == [name]
    world.kubelet.held = {SHARED: [f"{CARD.format(1)}::1"]}
    world.label(None)
    await world.offers(gpu=3)
    world.kubelet.held = {}


async def test_why_a_card_gets_no_daemon_is_said_on_the_node(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "HELD_SECONDS", 0.1)
    for number in range(4):
        world.bench.change_reading(number, share_support=contract.ShareSupport(mps=True))
    world.configure(mps="sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}")
    world.label("mps")
    await world.offers(gpu=8)
    world.label(None)
    await world.offers(gpu=4)
    world.bench.change_card(1, error=contract.Fault(reason="Broken", message="It is broken."))
    await world.offers(gpu=3)
    world.label("mps")
    await world.offers(gpu=6)
    await world.until(lambda: "It is broken" in (world.condition() or {}).get("message", ""))
    world.bench.change_card(1, error=None)
    await world.offers(gpu=8)
    await world.until(lambda: (world.condition() or {}).get("status") == "True")


IMEX = "imex: {channelIDs: [0], required: true}\n"
CDI = "cdi/k8s.device-plugin.nvidia.com-gpu.json"


async def test_a_device_node_that_comes_later_is_found(
    stopped: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of modules that are loaded after the plugin's start: no card changes by it."""
    monkeypatch.setattr(hooks, "AGAIN_SECONDS", 0.1)
    stopped.configure(imex=IMEX)
    stopped.label("imex")
    await stopped.start()
    await stopped.offers(gpu=4)
    with pytest.raises(grpc.aio.AioRpcError, match="channel0"):
        await stopped.kubelet.allocate(GPU, CARD.format(1))
    folder = stopped.folder / "dev/nvidia-caps-imex-channels"
    folder.mkdir(parents=True)
    os.mknod(folder / "channel0", 0o600 | stat.S_IFCHR, os.makedev(240, 0))
    await stopped.until(lambda: (stopped.condition() or {}).get("status") == "True")
    assert (await stopped.kubelet.allocate(GPU, CARD.format(1))).cdi_devices


async def test_a_cdi_file_or_hook_that_somebody_removed_comes_back(
    stopped: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "AGAIN_SECONDS", 0.1)
    program = stopped.settings().cdi_hook
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    await stopped.start()
    await stopped.offers(gpu=4)
    (hook,) = (stopped.folder / "data/bin").iterdir()
    for path in (stopped.folder / CDI, hook):
        path.unlink()
        await stopped.until(path.exists)
    shutil.rmtree(hook.parent)
    hook.parent.write_text("no folder")
    await stopped.until(lambda: (stopped.condition() or {}).get("reason") == "HookMissing")
    assert stopped.kubelet.allocatable(GPU) == 4
    hook.parent.unlink()
    await stopped.until(lambda: (stopped.condition() or {}).get("status") == "True")
    assert hook.exists()
