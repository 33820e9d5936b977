# SPDX-License-Identifier: Apache-2.0
"""What the cluster sees of a node's cards, and how it is kept that way."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from tests.scenario.dra.conftest import NODE, World
from tests.scenario.dra.standins import card, device, sick
from tests.support import apistore, gpus

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import labels, resources
from gpudeck.api.meta import Meta
from gpudeck.dra import publishing, rehearsing, reporting
from gpudeck.kubelet import registering

TAINT = "gpu.deckhouse.io/unhealthy"


async def test_cards_become_devices_of_one_pool(world: World) -> None:
    (found,) = world.api.objects(resources.RESOURCE_SLICE).values()
    assert found["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Node", "node-uid", True)
    first = world.devices()[0]
    assert first["name"] == device(0)
    assert first["attributes"]["cudaComputeCapability"] == {"version": "9.0.0"}
    assert first["attributes"]["driverVersion"] == {"version": "580.65.6"}
    assert first["capacity"] == {"memory": {"value": "80Gi"}}


async def test_an_unchanged_inventory_writes_nothing(world: World) -> None:
    writes = len(world.api.writes)
    world.adapter.show(world.adapter.cards)
    world.adapter.show([*world.adapter.cards, card(4)])
    await world.published(5)
    slices = [each for each in world.api.writes[writes:] if "resourceslices" in each.path]
    assert len(slices) == 1


async def test_slices_that_the_kubelet_wipes_come_back_at_once(world: World) -> None:
    for name in world.api.objects(resources.RESOURCE_SLICE):
        world.api.remove(resources.RESOURCE_SLICE, name)
    await world.published(4)


async def test_of_two_plugins_of_an_update_the_old_one_publishes_until_it_ends(
    stopped: World,
) -> None:
    world = stopped
    await world.start("old")
    await world.published(4)
    await world.start("new")
    ((name, found),) = world.api.objects(resources.RESOURCE_SLICE).items()
    writes = len(world.api.writes)
    world.adapter.show([*world.adapter.cards, card(4)])
    await world.published(5)
    assert [each.path.rpartition("/")[2] for each in world.api.writes[writes:]] == [name]
    await world.end("old")
    world.api.put(resources.RESOURCE_SLICE, found)
    await world.published(5)


async def test_an_edit_by_somebody_else_is_put_right(world: World) -> None:
    ((name, found),) = world.api.objects(resources.RESOURCE_SLICE).items()
    edited = {**found, "spec": {**found["spec"], "devices": found["spec"]["devices"][:1]}}
    world.api.put(resources.RESOURCE_SLICE, edited)
    await world.published(4)
    assert list(world.api.objects(resources.RESOURCE_SLICE)) == [name]


WATCHED = {"resourceslices", "physicalgpus", "gpuclasses", "nodes"}
EDITS: dict[str, Any] = {
    "allowMultipleAllocations": True,
    "consumesCounters": [{"counterSet": "a", "counters": {"b": {"value": "1"}}}],
    "nodeName": NODE,
    "nodeSelector": {"nodeSelectorTerms": []},
    "allNodes": True,
    "bindsToNode": True,
    "bindingConditions": ["a.example/b"],
    "bindingFailureConditions": ["a.example/c"],
    "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}},
    "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}},
}
"""Every field of a device (1.34 to 1.37) that gpudeck does not set."""
SPEC_EDITS: dict[str, Any] = {
    "allNodes": True,
    "nodeSelector": {"nodeSelectorTerms": []},
    "perDeviceNodeSelection": True,
    "sharedCounters": [{"name": "a", "counters": {"b": {"value": "1"}}}],
    "partitionTypeAttribute": "type",
    "skipNodeOperations": ["NodePrepareResources", "NodeUnprepareResources"],
}
"""The same of a spec. Another manager owns them, so that no apply of ours takes them away."""


@pytest.mark.parametrize("field", EDITS)
async def test_a_field_that_somebody_adds_to_a_device_goes_away(world: World, field: str) -> None:
    ((name, found),) = world.api.objects(resources.RESOURCE_SLICE).items()
    first, *others = found["spec"]["devices"]
    devices = [{**first, field: EDITS[field]}, *others]
    world.api.put(
        resources.RESOURCE_SLICE, {**found, "spec": {**found["spec"], "devices": devices}}
    )
    await world.until(lambda: world.devices() == found["spec"]["devices"])
    assert list(world.api.objects(resources.RESOURCE_SLICE)) == [name]


async def test_a_request_policy_that_somebody_adds_goes_away(world: World) -> None:
    ((_, found),) = world.api.objects(resources.RESOURCE_SLICE).items()
    edited = copy.deepcopy(found)
    edited["spec"]["devices"][0]["capacity"]["memory"]["requestPolicy"] = {"default": "1Gi"}
    world.api.put(resources.RESOURCE_SLICE, edited)
    await world.until(lambda: world.devices() == found["spec"]["devices"])


@pytest.mark.parametrize("field", SPEC_EDITS)
async def test_a_field_that_somebody_adds_to_a_slice_goes_away(world: World, field: str) -> None:
    ((name, found),) = world.api.objects(resources.RESOURCE_SLICE).items()
    other = {"metadata": {"name": name}, "spec": {field: SPEC_EDITS[field]}}
    async with world.api.client() as stranger:
        await stranger.apply(resources.RESOURCE_SLICE, other, Meta, manager="stranger")
    spec = await world.until(lambda: healed(world, found["spec"]))
    assert spec["pool"]["generation"] == 2
    assert list(world.api.objects(resources.RESOURCE_SLICE)) == [name]


async def test_a_field_that_the_api_server_adds_itself_is_not_fought(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutating webhook, say: what our own write came back with is left as it is."""
    plain = world.api.store.apply

    def stamping(kind: Any, key: str, value: dict[str, Any], write: Any) -> dict[str, Any]:
        if kind[1] == "resourceslices":
            value["spec"]["skipNodeOperations"] = SPEC_EDITS["skipNodeOperations"]
        return plain(kind, key, value, write)

    monkeypatch.setattr(world.api.store, "apply", stamping)
    writes = len(world.api.writes)
    world.adapter.show([*world.adapter.cards, card(4)])
    await world.published(5)
    add_physical_gpu(world, 0)
    await world.until(lambda: reported(world, 0))
    slices = [each for each in world.api.writes[writes:] if "resourceslices" in each.path]
    assert [each.method for each in slices] == ["PATCH"]


async def test_a_sick_card_is_tainted_and_comes_back_when_it_is_well(world: World) -> None:
    world.adapter.show([card(0), sick(1), card(2), card(3)])
    await world.until(lambda: taints(world)[1])
    assert taints(world)[1] == [(TAINT, "HardwareXid", "NoSchedule")]
    assert taints(world)[0] == []
    world.adapter.show(map(card, range(4)))
    await world.until(lambda: not taints(world)[1])


async def test_an_unknown_verdict_keeps_the_taint_over_a_restart(world: World) -> None:
    world.adapter.show([card(0), sick(1), card(2), card(3)])
    await world.until(lambda: taints(world)[1])
    await world.stop()
    unknown = adapter_pb2.Health(verdict=adapter_pb2.VERDICT_UNKNOWN, reason="NotReadYet")
    cards = [card(number) for number in range(5)]
    cards[1].health.CopyFrom(unknown)
    cards[2].health.CopyFrom(unknown)
    world.adapter.show(cards)
    await world.start()
    await world.published(5)
    assert [bool(each) for each in taints(world)] == [False, True, False, False, False]


async def test_a_card_without_its_driver_is_not_published(world: World) -> None:
    cards = [card(number) for number in range(4)]
    cards[2].driver.ready = False
    world.adapter.show(cards)
    await world.published(3)
    assert device(2) not in [each["name"] for each in world.devices()]


async def test_a_restart_before_the_adapter_answers_leaves_the_slices(world: World) -> None:
    await world.stop()
    await world.adapter.stop()
    before = world.api.objects(resources.RESOURCE_SLICE)
    asked = len(world.api.seen)
    await world.start()
    await world.until(lambda: watches(world, asked) == WATCHED)
    assert world.api.objects(resources.RESOURCE_SLICE) == before


async def test_the_pool_without_cards_has_one_empty_slice(world: World) -> None:
    world.adapter.show([])
    await world.published(0)
    (found,) = world.api.objects(resources.RESOURCE_SLICE).values()
    assert found["spec"]["pool"]["resourceSliceCount"] == 1


async def test_the_status_of_a_card_says_what_the_adapter_says(world: World) -> None:
    add_physical_gpu(world, 0)
    status = await world.until(lambda: reported(world, 0))
    assert status["capabilities"]["productName"] == "NVIDIA H100 80GB HBM3"
    assert status["capabilities"]["memoryMiB"] == 81920
    assert status["currentState"] == {
        "driverType": "Nvidia",
        "driverVersion": "580.65.06",
        "partitioning": {"mode": "NotAvailable"},
        "uuid": card(0).uuid,
    }
    assert verdicts(status) == {
        "DriverReady": ("True", "DriverReady"),
        "HardwareHealthy": ("True", "Healthy"),
        "Published": ("True", "Published"),
    }
    owners = world.api.owners(resources.PHYSICAL_GPU, name_of(0))
    assert {"gpudeck-adapter", "gpudeck-dra-plugin"} <= set(owners)


async def test_the_word_of_a_device_plugin_ends_with_its_mode(world: World) -> None:
    holder = {"namespace": "t", "pod": "p", "container": "c", "resource": "r", "device": "d"}
    said = {
        "metadata": {"name": name_of(0)},
        "status": {
            "extendedResources": [{"resource": "nvidia.com/gpu", "devices": 1}],
            "occupancy": {"plugin": [holder]},
            "conditions": [gpus.condition("Published", "True", reason="OfferedByDevicePlugin")],
        },
    }
    add_physical_gpu(world, 0)
    await world.until(lambda: reported(world, 0))
    async with world.api.client() as client:
        state = {"metadata": said["metadata"], "status": {"occupancy": {"state": "Full"}}}
        for body, manager in ((said, labels.MANAGER_PUBLISHER), (state, labels.MANAGER_CONTROLLER)):
            await client.apply(
                resources.PHYSICAL_GPU, body, Meta, manager=manager, subresource="status"
            )
    status = await world.until(
        lambda: "extendedResources" not in reported(world, 0) and reported(world, 0)
    )
    assert status["occupancy"] == {"state": "Full"}
    assert verdicts(status)["Published"] == ("True", "Published")


async def test_a_verdict_reaches_the_status_and_the_kubelet(world: World) -> None:
    add_physical_gpu(world, 1)
    await world.until(lambda: reported(world, 1))
    world.adapter.show([card(0), sick(1, "Hung"), card(2), card(3)])
    await world.until(lambda: verdicts(reported(world, 1))["HardwareHealthy"] == ("False", "Hung"))
    for version in ("v1", "v1alpha1"):
        report = {
            each.device.device_name: each for each in (await world.kubelet.health(version)).devices
        }
        assert [report[device(number)].health for number in range(2)] == [1, 2]
        assert report[device(1)].message == "Hung: Xid 79: off the bus."


async def test_an_open_health_stream_does_not_delay_the_end_of_the_plugin(world: World) -> None:
    stream = await world.kubelet.open_health()
    await stream.read()
    async with asyncio.timeout(registering.GRACE_SECONDS / 2):
        await world.end("")
    stream.cancel()


async def test_a_card_that_the_adapter_lost_keeps_its_facts_and_no_verdict(world: World) -> None:
    add_physical_gpu(world, 1)
    await world.until(lambda: reported(world, 1))
    world.adapter.show([card(0)])
    await world.until(lambda: verdicts(reported(world, 1))["Published"][0] == "False")
    status = reported(world, 1)
    assert verdicts(status)["HardwareHealthy"] == ("Unknown", "CardNotSeen")
    assert status["currentState"]["uuid"] == card(1).uuid


async def test_slices_that_the_api_rejects_are_said_and_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "REJECTED_SECONDS", 0.05)
    add_physical_gpu(world, 4)
    world.api.fail(2, 422, method="PATCH", path="resourceslices", reason="Invalid")
    world.adapter.show([*world.adapter.cards, card(4)])
    await world.until(lambda: "ResourceSlicesRejected" in world.events())
    await world.published(5)
    await world.until(lambda: verdicts(reported(world, 4)).get("Published", ("",))[0] == "True")


async def test_an_adapter_that_stays_away_makes_its_verdicts_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "AWAY_SECONDS", 0.05)
    add_physical_gpu(world, 1)
    await world.until(lambda: reported(world, 1))
    await world.adapter.stop()
    unknown = ("Unknown", "AdapterUnavailable")
    await world.until(lambda: verdicts(reported(world, 1))["HardwareHealthy"] == unknown)
    assert reported(world, 1)["currentState"]["uuid"] == card(1).uuid
    assert len(world.devices()) == 4
    await world.adapter.start()
    healthy = ("True", "Healthy")
    await world.until(lambda: verdicts(reported(world, 1))["HardwareHealthy"] == healthy)


async def test_a_quiet_node_writes_nothing(world: World) -> None:
    for number in range(4):
        add_physical_gpu(world, number)
    await world.until(lambda: all(reported(world, number) for number in range(4)))
    writes = len(world.api.writes)
    world.adapter.show(world.adapter.cards)
    asked = len(world.api.seen)
    world.api.cut_streams()
    await world.until(lambda: watches(world, asked) == WATCHED)
    add_physical_gpu(world, 5)  # Its status is written after whatever was waiting.
    await world.until(lambda: verdicts(reported(world, 5, all_of_it=False)))
    others = [each.path for each in world.api.writes[writes:] if name_of(5) not in each.path]
    assert others == []


def healed(world: World, spec: dict[str, Any]) -> dict[str, Any] | None:
    """The spec of the one slice, once nothing but its generation differs from `spec`."""
    for found in world.api.objects(resources.RESOURCE_SLICE).values():
        now: dict[str, Any] = found["spec"]
        if {**now, "pool": None} == {**spec, "pool": None}:
            return now
    return None


def watches(world: World, since: int) -> set[str]:
    """What the plugin has begun to watch since a request's number."""
    seen = world.api.seen[since:]
    return {each.path.rpartition("/")[2] for each in seen if each.query.get("watch")}


def taints(world: World) -> list[list[tuple[str, str, str]]]:
    return [
        [(each["key"], each["value"], each["effect"]) for each in found.get("taints") or ()]
        for found in world.devices()
    ]


def name_of(number: int) -> str:
    return f"{NODE}-{device(number).removeprefix('gpu-')}"


def add_physical_gpu(world: World, number: int) -> None:
    """What the node agent writes."""
    marks = {"gpu.deckhouse.io/node": NODE, "gpu.deckhouse.io/vendor": "nvidia"}
    world.api.put(
        resources.PHYSICAL_GPU,
        {
            "metadata": {"name": name_of(number), "labels": marks},
            "status": {
                "pciInfo": {"address": card(number).pci_address},
                "currentState": {"driverType": "Nvidia"},
            },
        },
    )


def reported(world: World, number: int, *, all_of_it: bool = True) -> dict[str, Any]:
    """The status of a card once both managers have written; else nothing."""
    status: dict[str, Any] = world.api.objects(resources.PHYSICAL_GPU)[name_of(number)]["status"]
    return status if not all_of_it or len(status.get("conditions") or ()) == 3 else {}


def verdicts(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    found = status.get("conditions") or ()
    return {each["type"]: (each["status"], each["reason"]) for each in found}


async def test_a_class_that_gets_ready_brings_its_parts_and_takes_them_when_it_goes(
    world: World,
) -> None:
    world.adapter.show([splittable(0), card(1)])
    add_physical_gpu(world, 0)
    await world.published(2)
    put_class(world, "halves", ready="False")
    put_class(world, "shared", devices=["Share"])
    names = await world.until(lambda: offered(world, 4))
    assert [name.split("-")[0] for name in names] == ["share", "share", "gpu", "gpu"]
    put_class(world, "halves")
    names = await world.until(lambda: offered(world, 6))
    assert names[:2] == ["mig-0000-10-00-0-3g40gb-9-4", "mig-0000-10-00-0-3g40gb-9-0"]
    await world.until(lambda: "2 places for partitions" in published_text(world, 0))
    assert "whole" in published_text(world, 0)
    report = {each.device.device_name for each in (await world.kubelet.health("v1")).devices}
    assert report == set(names)
    for name in ("halves", "shared"):
        world.api.remove(resources.GPU_CLASS, name)
    assert await world.until(lambda: offered(world, 2)) == [device(0), device(1)]
    for found in world.api.objects(resources.RESOURCE_SLICE).values():
        assert "sharedCounters" not in found["spec"]


async def test_all_parts_of_a_sick_card_are_tainted(world: World) -> None:
    world.adapter.show([splittable(0)])
    put_class(world, "halves")
    await world.published(3)
    world.adapter.show([splittable(0, health=sick(0).health)])
    await world.until(lambda: all(taints(world)))
    assert taints(world) == [[(TAINT, "HardwareXid", "NoSchedule")]] * 3


def label_node(world: World, **labels: str) -> None:
    node = world.api.objects(resources.NODE)[NODE]
    named = {name.replace("_", "-"): text for name, text in labels.items()}
    labelled = {f"gpu.deckhouse.io/{name}": text for name, text in named.items()}
    world.api.put(resources.NODE, {**node, "metadata": {**node["metadata"], "labels": labelled}})


def taint_node(world: World, mode: str | None) -> None:
    """What the controller does to a Node whose mode changes."""
    node = world.api.objects(resources.NODE)[NODE]
    taint = {"key": "gpu.deckhouse.io/mode-change", "value": mode, "effect": "NoSchedule"}
    world.api.put(resources.NODE, {**node, "spec": {"taints": [taint] if mode else []}})


async def test_a_node_that_leaves_the_mode_offers_nothing_and_a_change_of_mind_brings_it_back(
    world: World,
) -> None:
    add_physical_gpu(world, 0)
    await world.published(4)
    taint_node(world, "device-plugin")
    await world.until(lambda: slices(world) == [])
    await world.until(lambda: "ModeChanging" in reasons(world, 0))
    await world.restart()
    taint_node(world, "dra")
    await world.published(4)
    await world.until(lambda: "ModeChanging" not in reasons(world, 0))
    taint_node(world, None)
    await world.published(4)


def reasons(world: World, number: int) -> set[str]:
    found = world.api.objects(resources.PHYSICAL_GPU)[name_of(number)]
    return {each["reason"] for each in found.get("status", {}).get("conditions", [])}


def amounts(world: World) -> set[str]:
    """What shares have by default, as published."""
    policies = [each["capacity"]["memory"].get("requestPolicy") for each in world.devices()]
    return {each["default"] for each in policies if each}


async def test_the_label_of_the_node_says_what_memory_a_share_has(stopped: World) -> None:
    world = stopped
    put_class(world, "shared", devices=["Share"])
    label_node(world, share_memory="8Gi")
    await world.start()
    await world.until(lambda: amounts(world))
    assert amounts(world) == {"8Gi"}
    assert {each["spec"]["pool"]["generation"] for each in slices(world)} == {1}
    label_node(world, share_memory="2Gi")
    await world.until(lambda: amounts(world) == {"2Gi"})
    label_node(world)
    await world.until(lambda: amounts(world) == {"4Gi"})


@pytest.mark.parametrize("text", ["much", "0", "5", "-1Gi"])
async def test_a_label_that_is_no_amount_is_told_of_and_does_not_count(
    stopped: World, text: str
) -> None:
    world = stopped
    put_class(world, "shared", devices=["Share"])
    label_node(world, share_memory=text)
    await world.start()
    await world.until(lambda: "InvalidNodeLabel" in world.events())
    (told,) = (
        each["message"]
        for each in world.api.objects(resources.EVENT).values()
        if each["reason"] == "InvalidNodeLabel"
    )
    assert told == (
        f"label gpu.deckhouse.io/share-memory: {text!r} is not valid; allowed: a Kubernetes "
        "quantity of at least 1Mi, such as 4Gi. Until then 4Gi counts."
    )
    await world.until(lambda: amounts(world) == {"4Gi"})


def slices(world: World) -> list[dict[str, Any]]:
    return list(world.api.objects(resources.RESOURCE_SLICE).values())


@pytest.mark.parametrize("dropped", ["sharedCounters", "consumesCounters"])
async def test_a_server_that_drops_counters_gets_whole_cards_alone_and_is_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch, dropped: str
) -> None:
    plain = world.api.store.apply

    def dropping(kind: Any, key: str, value: dict[str, Any], write: Any) -> dict[str, Any]:
        if kind[1] == "resourceslices":
            spec = value["spec"]
            spec.pop(dropped, None)
            for each in spec.get("devices") or ():
                each.pop(dropped, None)
        return plain(kind, key, value, write)

    monkeypatch.setattr(world.api.store, "apply", dropping)
    add_physical_gpu(world, 0)
    world.adapter.show([splittable(0)])
    put_class(world, "halves")
    await world.until(lambda: "ResourceSliceFieldsDropped" in world.events())
    assert await world.until(lambda: offered(world, 1)) == [device(0)]
    await world.until(lambda: "not keep the fields" in published_text(world, 0))
    # Not for a moment was a half offered that nothing guards.
    stored = [each.value for each in world.api.store.history if each.kind[1] == "resourceslices"]
    names = {found["name"] for each in stored for found in each["spec"].get("devices") or ()}
    assert not [name for name in names if name.startswith("mig-")]


async def test_a_server_that_was_updated_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsing, "AGAIN_SECONDS", 0.5)
    plain = world.api.store.apply

    def dropping(kind: Any, key: str, value: dict[str, Any], write: Any) -> dict[str, Any]:
        if kind[1] == "resourceslices":
            value["spec"].pop("sharedCounters", None)
        return plain(kind, key, value, write)

    with monkeypatch.context() as old:
        old.setattr(world.api.store, "apply", dropping)
        world.adapter.show([splittable(0)])
        put_class(world, "halves")
        await world.until(lambda: "ResourceSliceFieldsDropped" in world.events())
        await world.until(lambda: offered(world, 1))
    await world.until(lambda: offered(world, 3))
    assert world.events().count("ResourceSliceFieldsDropped") == 1


async def test_a_server_that_rejects_counters_gets_whole_cards_and_is_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = world.api.store.apply

    def refusing(kind: Any, key: str, value: dict[str, Any], write: Any) -> dict[str, Any]:
        if kind[1] == "resourceslices":
            for each in value["spec"].get("devices") or ():
                if "consumesCounters" in each:
                    raise apistore.RefusedError(422, "Invalid", "counterSet: Invalid value")
        return plain(kind, key, value, write)

    monkeypatch.setattr(world.api.store, "apply", refusing)
    world.adapter.show([splittable(0)])
    put_class(world, "halves")
    await world.until(lambda: "ResourceSlicePartsRejected" in world.events())
    assert await world.until(lambda: offered(world, 1)) == [device(0)]


def splittable(number: int, **changes: Any) -> adapter_pb2.Card:
    """A card that can be cut in halves at once."""
    halves = adapter_pb2.PartitionProfile(
        name="3g.40gb",
        profile_id=9,
        memory_mib=40320,
        slices=3,
        max_instances=2,
        placements=[adapter_pb2.Placement(start=start, size=4) for start in (0, 4)],
    )
    support = adapter_pb2.PartitionSupport(
        supported=True, dynamic=True, total_slices=7, profiles=[halves]
    )
    off = adapter_pb2.Partitioning(mode=adapter_pb2.PARTITIONING_MODE_DISABLED)
    return card(number, partition_support=support, partitioning=off, **changes)


def put_class(
    world: World, name: str, *, devices: list[str] | None = None, ready: str = "True"
) -> None:
    """A GPUClass as the controller leaves it."""
    verdict = {
        "type": "Ready",
        "status": ready,
        "reason": "Told",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    world.api.put(
        resources.GPU_CLASS,
        {
            "metadata": {"name": name},
            "spec": {"devices": devices or ["Partition"]},
            "status": {"conditions": [verdict]},
        },
    )


def offered(world: World, count: int) -> list[str] | None:
    """The names of the devices, in order, once there are `count`."""
    names = [each["name"] for each in world.devices()]
    return names if len(names) == count else None


def published_text(world: World, number: int) -> str:
    """The message of a card's condition Published."""
    status = world.api.objects(resources.PHYSICAL_GPU)[name_of(number)]["status"]
    found = {each["type"]: each for each in status.get("conditions") or ()}
    return str(found.get("Published", {}).get("message", ""))
