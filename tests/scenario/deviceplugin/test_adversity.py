# SPDX-License-Identifier: Apache-2.0
"""A device plugin whose kubelet, disk, API server and cards misbehave, one by one and at once."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.scenario.deviceplugin.conftest import CONFIG, CONFIG_MAP, NODE, World

from gpudeck.api import resources
from gpudeck.cdi import hooks
from gpudeck.vendors import contract

CARD = "GPU-00000000-0000-0000-0000-{:012d}"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
BROKEN = contract.Fault(reason="Broken", message="It is broken.")


async def test_a_sick_card_is_taken_back_while_the_kubelet_does_not_tell_what_pods_hold(
    world: World,
) -> None:
    hidden = world.folder / "hidden.sock"
    world.kubelet.pod_resources.rename(hidden)
    world.bench.change_card(1, error=BROKEN)
    await world.offers(gpu=3)
    world.bench.change_card(1, error=None)
    hidden.rename(world.kubelet.pod_resources)
    await world.offers(gpu=4)


async def test_a_sick_card_is_taken_back_while_the_disk_takes_no_cdi_file(world: World) -> None:
    file = world.folder / "cdi/k8s.device-plugin.nvidia.com-gpu.json"
    file.rename(file.with_suffix(".kept"))
    file.mkdir()
    world.label("slice-4")
    await world.offers(gpu=0)
    world.label(None)
    world.bench.change_card(1, error=BROKEN)
    file.rmdir()
    await world.offers(gpu=3)
    file.unlink()
    file.mkdir()
    world.bench.change_card(2, error=BROKEN)
    world.bench.change_reading(3, uuid="GPU-of-another-card")
    await world.offers(gpu=1)
    file.rmdir()
    await world.offers(gpu=2)


async def test_what_cannot_be_removed_at_the_start_ends_nothing(stopped: World) -> None:
    """As on a disk that has become one for reading alone."""
    (stopped.folder / "cdi/.k8s.device-plugin.nvidia.com-gpu.json.1.tmp").mkdir(parents=True)
    (stopped.plugins / "nvidia-other.sock").mkdir()
    (stopped.folder / "data").touch()
    await stopped.start()
    await stopped.offers(gpu=4)
    stopped.label("slice-4")
    await stopped.offers(gpu_shared=16)


async def test_a_folder_in_the_place_of_a_socket_costs_that_resource_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "AGAIN_SECONDS", 0.1)
    own = world.plugins / "nvidia-gpu.sock"
    own.unlink()
    own.mkdir()
    world.label("slice-4")
    await world.offers(gpu_shared=16)
    await world.until(lambda: (world.condition() or {}).get("reason") == "SocketUnavailable")
    own.rmdir()
    await world.offers(gpu=0, gpu_shared=16)
    await world.until(lambda: (world.condition() or {}).get("status") == "True")


@pytest.mark.parametrize("kind", ["nobody", "file", "link"])
async def test_a_socket_of_a_kubelet_behind_which_nobody_is_is_no_kubelet(
    world: World, kind: str
) -> None:
    await world.kubelet.stop()
    path = world.plugins / "kubelet.sock"
    path.unlink(missing_ok=True)
    if kind == "file":
        path.touch()
    elif kind == "link":
        path.symlink_to("nowhere")
    else:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    await asyncio.sleep(0)
    await world.until(lambda: world.kubelet.devices(GPU) is None)
    await world.kubelet.start()
    await world.offers(gpu=4)


async def test_a_kubelet_that_accepts_and_dies_is_followed_by_one_that_stays(world: World) -> None:
    world.kubelet.drops = True
    await world.kubelet.restart()
    for _ in range(3):
        before = len(world.kubelet.registrations)
        await world.until(lambda known=before: len(world.kubelet.registrations) > known)
        await world.kubelet.restart()
    world.kubelet.drops = False
    await world.kubelet.restart()
    await world.offers(gpu=4)


async def test_a_kubelet_that_accepts_and_never_follows_is_asked_again(world: World) -> None:
    world.kubelet.drops = True
    await world.kubelet.restart()
    before = len(world.kubelet.registrations)
    await world.until(lambda: len(world.kubelet.registrations) > before + 1)
    world.kubelet.drops = False
    await world.offers(gpu=4)


async def test_of_a_hundred_labels_in_a_second_the_last_counts(world: World) -> None:
    for number in range(100):
        world.label(f"slice-{(4, 10)[number % 2]}" if number % 5 else f"nothing-{number}")
        await asyncio.sleep(0.01)
    world.label("slice-4")
    await world.offers(gpu=0, gpu_shared=16)
    message = "The config slice-4 is in force; the label"
    await world.until(lambda: (world.condition() or {}).get("message", "").startswith(message))
    assert len(world.kubelet.endpoints) == 2


async def test_a_card_that_flaps_ends_as_it_is(world: World) -> None:
    for _ in range(100):
        world.bench.change_card(1, error=BROKEN)
        await asyncio.sleep(0.005)
        world.bench.change_card(1, error=None)
        await asyncio.sleep(0.005)
    world.bench.change_card(2, error=BROKEN)
    await world.offers(gpu=3)
    await world.until(lambda: (world.kubelet.devices(GPU) or {})[CARD.format(2)] == "Unhealthy")
    world.bench.change_card(2, error=None)
    await world.offers(gpu=4)


async def test_a_node_that_is_made_anew_is_told_again_what_holds(world: World) -> None:
    await world.until(world.condition)
    world.api.remove(resources.NODE, NODE)
    world.api.put(resources.NODE, {"metadata": {"name": NODE, "uid": "another"}})
    await world.until(world.condition)
    world.label("slice-4")
    await world.offers(gpu_shared=16)


async def test_a_config_map_that_goes_takes_nothing_along(world: World) -> None:
    world.label("slice-4")
    await world.offers(gpu_shared=16)
    world.api.remove(resources.CONFIG_MAP, f"kube-system/{CONFIG_MAP}")
    await world.until(lambda: (world.condition() or {}).get("status") == "False")
    await world.end()
    await world.start()
    await world.offers(gpu_shared=16)
    assert "is not there" in (world.condition() or {})["message"]
    world.configure(**{"slice-4": CONFIG.format(2)})
    await world.offers(gpu_shared=8)
    await world.until(lambda: (world.condition() or {}).get("status") == "True")
