# SPDX-License-Identifier: Apache-2.0
"""What a device plugin says of its node's cards, and what it takes back when its mode ends."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scenario.deviceplugin.conftest import NODE, World, gpu_name

from gpudeck.api import labels, resources
from gpudeck.vendors import contract

CARD = "GPU-00000000-0000-0000-0000-{:012d}"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


@pytest.fixture
async def found(world: World) -> World:
    """A node whose cards were discovered, and said to be offered whole."""
    for number in range(4):
        world.discover(number)
    await world.until(
        lambda: all(offered(world, number) == {GPU: (1, None)} for number in range(4))
    )
    return world


def offered(world: World, number: int) -> dict[str, tuple[int, int | None]]:
    """By resource: how many devices of it a card is, and how many of these are healthy."""
    return {
        each["resource"]: (each["devices"], each.get("healthy"))
        for each in world.gpu(number).get("extendedResources") or ()
    }


def condition(world: World, number: int, kind: str) -> dict[str, Any]:
    """A condition of a card, empty where it is not said."""
    conditions = world.gpu(number).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), {})


def holders(world: World, number: int) -> list[dict[str, Any]]:
    """Who has something of a card."""
    return (world.gpu(number).get("occupancy") or {}).get("plugin") or []


async def test_a_card_is_described_as_in_dra_mode(found: World) -> None:
    status = found.gpu(2)
    assert status["capabilities"]["productName"] == "Simulated Card 8GB"
    assert status["capabilities"]["memoryMiB"] == 8192
    assert status["currentState"]["uuid"] == CARD.format(2)
    assert condition(found, 2, "DriverReady")["status"] == "True"
    assert condition(found, 2, "HardwareHealthy")["status"] == "True"
    published = condition(found, 2, "Published")
    assert (published["status"], published["reason"]) == ("True", "OfferedByDevicePlugin")
    assert published["message"] == "Offered as 1 of nvidia.com/gpu."


async def test_both_modes_write_by_the_same_managers(found: World) -> None:
    owners = found.api.owners(resources.PHYSICAL_GPU, gpu_name(0))
    assert {"gpudeck-adapter", "gpudeck-dra-plugin"} <= set(owners)
    assert any("capabilities" in each for each in owners["gpudeck-adapter"])
    assert any("extendedResources" in each for each in owners["gpudeck-dra-plugin"])


async def test_what_a_card_is_offered_as_follows_the_config(found: World) -> None:
    found.label("slice-4")
    await found.until(lambda: offered(found, 0) == {SHARED: (4, None)})
    message = condition(found, 0, "Published")["message"]
    assert message == "Offered as 4 of nvidia.com/gpu.shared by the config slice-4."


async def test_who_has_a_card_is_told_and_who_gave_it_back_is_not(found: World) -> None:
    found.kubelet.held = {GPU: [CARD.format(1)]}
    await found.kubelet.allocate(GPU, CARD.format(1))
    (holder,) = await found.until(lambda: holders(found, 1))
    assert holder == {
        "namespace": "t",
        "pod": "pod",
        "container": "main",
        "resource": GPU,
        "device": CARD.format(1),
    }
    assert not holders(found, 0)
    found.kubelet.held = {}
    await found.kubelet.allocate(GPU, CARD.format(2))
    await found.until(lambda: not holders(found, 1))


async def test_a_share_is_told_with_the_number_of_its_like(found: World) -> None:
    found.label("slice-4")
    await found.offers(gpu_shared=16)
    found.kubelet.held = {SHARED: [f"{CARD.format(3)}::1"]}
    await found.kubelet.allocate(SHARED, f"{CARD.format(3)}::1")
    (holder,) = await found.until(lambda: holders(found, 3))
    assert (holder["device"], holder["replicas"]) == (f"{CARD.format(3)}::1", 4)
    found.label(None)
    await found.until(lambda: offered(found, 3) == {GPU: (1, 0)})
    assert holders(found, 3) == [holder]


async def test_a_card_that_leaves_the_bus_is_still_its_pod_s(found: World) -> None:
    found.kubelet.held = {GPU: [CARD.format(1)]}
    await found.kubelet.allocate(GPU, CARD.format(1))
    held = await found.until(lambda: holders(found, 1))
    first, _, *others = found.bench.read().cards
    found.bench.change(cards=(first, *others))
    await found.until(lambda: condition(found, 1, "Published").get("status") == "False")
    assert holders(found, 1) == held


async def test_a_card_that_waits_for_a_pod_says_so(found: World) -> None:
    found.kubelet.held = {GPU: [CARD.format(1)]}
    found.label("slice-4")
    await found.until(lambda: offered(found, 1) == {SHARED: (4, 0)})
    message = condition(found, 1, "Published")["message"]
    assert message.startswith(
        f"Offered as 4 of {SHARED} by the config slice-4. Given to nobody now: 4."
    )
    assert message.endswith("is given back by pod t/pod.")


async def test_a_sick_card_is_told_by_its_conditions_and_recovers(found: World) -> None:
    fault = contract.Fault(reason="Broken", message="It is broken.")
    found.bench.change_card(1, error=fault)
    await found.until(lambda: condition(found, 1, "HardwareHealthy").get("status") == "False")
    assert condition(found, 1, "HardwareHealthy")["reason"] == "Broken"
    await found.until(lambda: offered(found, 1) == {GPU: (1, 0)})
    assert offered(found, 0) == {GPU: (1, None)}
    found.bench.change_card(1, error=None)
    await found.until(lambda: offered(found, 1) == {GPU: (1, None)})
    assert condition(found, 1, "HardwareHealthy")["status"] == "True"


async def test_a_card_of_another_maker_is_left_alone(found: World) -> None:
    found.discover(0)
    await found.until(lambda: offered(found, 0))
    meta = {"name": "other", "labels": {labels.NODE: NODE, labels.VENDOR: "metax"}}
    status = {"pciInfo": {"address": "0000:77:00.0"}}
    found.api.put(resources.PHYSICAL_GPU, {"metadata": meta, "status": status})
    found.discover(1)
    await found.until(lambda: offered(found, 1))
    assert found.api.objects(resources.PHYSICAL_GPU)["other"]["status"] == status


async def test_a_plugin_that_is_replaced_takes_nothing_back(found: World) -> None:
    found.mode("device-plugin")
    await found.until(lambda: found.condition() is not None)
    await found.end()
    assert offered(found, 0) == {GPU: (1, None)}
    assert list((found.folder / "cdi").iterdir())
    assert (found.folder / "data/device-plugin.json").exists()


async def test_a_mode_that_ends_says_nothing_of_its_cards_any_more(stopped: World) -> None:
    """What is on the node and the condition of the Node are for those who begin the next mode."""
    world = stopped
    world.mode("device-plugin")
    config = "sharing: {mps: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}"
    world.configure(mps=config)
    world.label("mps")
    for number in range(4):
        world.discover(number)
        world.bench.change_reading(number, share_support=contract.ShareSupport(mps=True))
    await world.start()
    await world.offers(gpu_shared=8)
    await world.until(lambda: offered(world, 0) and world.condition() is not None)
    world.mode(None)
    await world.end()
    assert [card.reading.mps_shares for card in world.bench.read().cards] == [()] * 4
    assert not offered(world, 0)
    assert not condition(world, 0, "Published")
    assert condition(world, 0, "HardwareHealthy")["status"] == "True"


async def test_what_names_a_device_stays_as_long_as_a_pod_has_it(found: World) -> None:
    found.mode("device-plugin")
    await found.until(lambda: found.condition() is not None)
    found.kubelet.held = {GPU: [CARD.format(1)]}
    found.mode("dra")
    await found.end()
    assert list((found.folder / "cdi").iterdir())
    assert offered(found, 0) == {GPU: (1, None)}


async def test_what_only_an_init_container_has_keeps_what_names_it_too(found: World) -> None:
    """The kubelet's API does not tell of it (1.34 to 1.37), but its file does."""
    found.mode("device-plugin")
    await found.until(lambda: found.condition() is not None)
    found.kubelet.untold = {GPU: [CARD.format(1)]}
    await found.kubelet.restart()
    await found.offers(gpu=4)
    found.mode("dra")
    await found.end()
    assert offered(found, 0) == {GPU: (1, None)}


async def test_what_a_pod_had_that_has_ended_keeps_nothing(found: World) -> None:
    """The kubelet's file has it still, until the kubelet is asked and then sent a list."""
    found.mode("device-plugin")
    await found.until(lambda: found.condition() is not None)
    found.kubelet.untold = {GPU: [CARD.format(1)]}
    await found.kubelet.restart()
    await found.offers(gpu=4)
    found.kubelet.end(found.kubelet.untold)
    found.mode("dra")
    await found.end()
    assert not offered(found, 0)


async def test_a_pod_of_an_earlier_config_keeps_what_names_its_device(stopped: World) -> None:
    """A plugin that was started anew serves no more the resource of which the pod has it."""
    world = stopped
    world.mode("device-plugin")
    world.kubelet.held = {"nvidia.com/h100": [CARD.format(1)]}
    await world.start()
    await world.offers(gpu=3)
    world.mode("dra")
    await world.end()
    assert list((world.folder / "cdi").iterdir())
