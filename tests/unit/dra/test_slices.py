# SPDX-License-Identifier: Apache-2.0
"""Cards to devices, and devices to slices."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import resource
from gpudeck.api.meta import OwnerReference
from gpudeck.dra import slices

OWNER = OwnerReference(api_version="v1", kind="Node", name="node-0", uid="u", controller=True)
HEALTHY = adapter_pb2.Health(verdict=adapter_pb2.VERDICT_HEALTHY)
SICK = adapter_pb2.Health(verdict=adapter_pb2.VERDICT_UNHEALTHY, reason="GpuLost")
UNKNOWN = adapter_pb2.Health(verdict=adapter_pb2.VERDICT_UNKNOWN)


def card(bus: int = 1, health: adapter_pb2.Health = HEALTHY, **more: Any) -> adapter_pb2.Card:
    driver = adapter_pb2.DriverState(ready=True, version=more.pop("driver_version", "580.65.06"))
    return adapter_pb2.Card(
        pci_address=f"0000:{bus:02x}:00.0", driver=driver, health=health, compute_api="CUDA", **more
    )


def one(found: adapter_pb2.Card, **more: Any) -> resource.Device:
    (device,) = slices.devices([found], vendor="nvidia", **more)
    return device


def texts(device: resource.Device) -> dict[str, str | None]:
    return {name: each.string or each.version for name, each in (device.attributes or {}).items()}


def test_a_device_says_what_the_card_is() -> None:
    found = card(
        uuid="GPU-1",
        product_name="NVIDIA H100 80GB HBM3",
        architecture="Hopper",
        compute_capability="9.0",
        api_driver_version="13.0",
        pcie_root="pci0000:00",
        numa_node=1,
        memory_bytes=85520809984,
    )
    device = one(found)
    assert device.name == "gpu-0000-01-00-0"
    assert texts(device) == {
        "type": "gpu",
        "deviceType": "physical",
        "vendor": "nvidia",
        "productName": "NVIDIA H100 80GB HBM3",
        "device": "h100-80gb-hbm3",
        "uuid": "GPU-1",
        "gpuUUID": "GPU-1",
        "architecture": "Hopper",
        "cudaComputeCapability": "9.0.0",
        "driverVersion": "580.65.6",
        "cudaDriverVersion": "13.0.0",
        "resource.kubernetes.io/pciBusID": "0000:01:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
        "resource.kubernetes.io/numaNode": None,
    }
    assert (device.attributes or {})["resource.kubernetes.io/numaNode"].int_ == 1
    assert device.capacity == {"memory": resource.Capacity(value="81559Mi")}


def test_what_a_card_does_not_know_is_absent() -> None:
    device = one(card(driver_version=""))
    assert texts(device) == {
        "type": "gpu",
        "deviceType": "physical",
        "vendor": "nvidia",
        "resource.kubernetes.io/pciBusID": "0000:01:00.0",
    }
    assert device.capacity is None


@pytest.mark.parametrize(
    ("text", "version"), [("570.86.05", "570.86.5"), ("550.54", "550.54.0"), ("", None)]
)
def test_versions_are_semantic_or_absent(text: str, version: str | None) -> None:
    assert texts(one(card(driver_version=text))).get("driverVersion") == version


def test_strings_are_cut_to_the_limit_of_the_api() -> None:
    assert len(texts(one(card(product_name="x" * 100)))["productName"] or "") == 64


def test_devices_come_by_address_whatever_the_order_of_the_cards() -> None:
    cards = [card(3), card(1), card(2)]
    names = [each.name for each in slices.devices(cards, vendor="nvidia")]
    assert names == sorted(names)


def test_a_sick_card_carries_a_taint_and_a_well_one_none() -> None:
    taint = resource.DeviceTaint(
        key="gpu.deckhouse.io/unhealthy", value="GpuLost", effect="NoSchedule"
    )
    assert one(card(health=SICK)).taints == [taint]
    assert one(card()).taints is None


def test_an_unknown_verdict_keeps_what_was_published() -> None:
    tainted, clean = one(card(health=SICK)), one(card())
    assert one(card(health=UNKNOWN), before={tainted.name: tainted}).taints == tainted.taints
    assert one(card(health=UNKNOWN), before={clean.name: clean}).taints is None
    assert one(card(health=UNKNOWN)).taints is None


def test_a_taint_that_stays_keeps_its_time() -> None:
    before = one(card(health=SICK))
    assert before.taints
    before.taints[0].time_added = "2026-01-01T00:00:00Z"
    again = one(card(health=SICK), before={before.name: before})
    assert again.taints
    assert again.taints[0].time_added == "2026-01-01T00:00:00Z"


def test_where_taints_are_dropped_a_sick_card_is_withheld() -> None:
    cards = [card(1, health=SICK), card(2)]
    found = slices.devices(cards, vendor="nvidia", taints_kept=False)
    assert [each.name for each in found] == ["gpu-0000-02-00-0"]


def test_cards_without_driver_or_in_partitioning_mode_are_refused_with_a_reason() -> None:
    no_driver = card()
    no_driver.driver.CopyFrom(adapter_pb2.DriverState(reason="DriverNotLoaded", message="m"))
    partitioned = card()
    partitioned.partitioning.mode = adapter_pb2.PARTITIONING_MODE_ENABLED
    refusals = [slices.refusal(each) for each in (no_driver, partitioned, card())]
    assert [each and each.reason for each in refusals] == [
        "DriverNotLoaded",
        "CardPartitioned",
        None,
    ]
    assert slices.devices([no_driver, partitioned], vendor="nvidia") == []


def many(count: int, health: adapter_pb2.Health = HEALTHY) -> list[resource.Device]:
    cards = [card(number, health=health) for number in range(count)]
    return slices.devices(cards, vendor="nvidia")


def plan(
    existing: list[resource.ResourceSlice], wanted: list[resource.Device], last: int = 0
) -> slices.Plan:
    return slices.plan(existing, wanted, owner=OWNER, last_generation=last)


def after(existing: list[resource.ResourceSlice], made: slices.Plan) -> list[Any]:
    kept = {each.metadata.name: each for each in existing if each not in made.delete}
    return list({**kept, **{each.metadata.name: each for each in made.apply}}.values())


def check(found: list[resource.ResourceSlice]) -> None:
    """What Kubernetes asks of a pool."""
    pools = {
        (each.spec.pool.generation, each.spec.pool.resource_slice_count, each.spec.pool.name)
        for each in found
    }
    assert len(pools) == 1
    ((_, count, _),) = pools
    assert count == len(found)
    for each in found:
        devices = each.spec.devices or []
        assert len(devices) <= (64 if any(map(slices.is_tainted, devices)) else 128)


@pytest.mark.parametrize(
    ("count", "health", "slices_needed"),
    [(0, HEALTHY, 1), (8, HEALTHY, 1), (128, HEALTHY, 1), (129, HEALTHY, 2), (65, SICK, 2)],
)
def test_slices_hold_as_many_devices_as_the_api_allows(
    count: int, health: adapter_pb2.Health, slices_needed: int
) -> None:
    made = plan([], many(count, health))
    assert (len(made.apply), made.generation) == (slices_needed, 1)
    check(made.apply)


def test_a_published_pool_needs_nothing() -> None:
    first = plan([], many(8))
    again = plan(first.apply, many(8))
    assert (again.apply, again.delete, again.generation) == ([], [], 1)


def test_one_changed_slice_keeps_the_generation() -> None:
    first = plan([], many(8))
    changed = plan(first.apply, many(7))
    assert (len(changed.apply), changed.generation) == (1, 1)
    check(after(first.apply, changed))


@pytest.mark.parametrize(("before", "now"), [(100, 130), (130, 100), (0, 250)])
def test_another_number_of_slices_takes_a_new_generation(before: int, now: int) -> None:
    first = plan([], many(before))
    changed = plan(first.apply, many(now))
    assert changed.generation == 2
    check(after(first.apply, changed))


def test_wiped_slices_come_back_with_a_later_generation() -> None:
    assert plan([], many(8), last=4).generation == 5


def test_an_edit_of_any_field_is_a_difference() -> None:
    (sent,) = plan([], many(1, SICK)).apply
    for path, change in {
        "spec.driver": lambda spec: setattr(spec, "driver", "x"),
        "spec.pool": lambda spec: setattr(spec.pool, "generation", 9),
        "spec.devices": lambda spec: spec.devices.clear(),
        "spec.devices[gpu-0000-00-00-0].taints": lambda spec: spec.devices[0].taints.clear(),
        "spec.devices[gpu-0000-00-00-0].attributes": lambda spec: spec.devices[
            0
        ].attributes.clear(),
    }.items():
        (kept,) = plan([], many(1, SICK)).apply
        change(kept.spec)
        assert slices.differences(sent, kept) == [path]


def test_a_slice_that_no_apply_can_put_right_is_made_anew() -> None:
    stranger = OwnerReference(api_version="v1", kind="Node", name="x", uid="x")
    for change in (
        lambda each: setattr(each.spec, "shared_counters", msgspec.Raw(b"[]")),
        lambda each: setattr(each.spec.pool, "name", "x"),
        lambda each: setattr(each.spec, "node_name", None),
        lambda each: each.metadata.owner_references.append(stranger),
    ):
        existing = plan([], many(1)).apply
        change(existing[0])
        made = plan(existing, many(1))
        assert (made.delete, made.generation) == (existing, 2)
        assert plan(made.apply, many(1)).apply == []


def test_undecoded_fields_are_differences_by_their_path() -> None:
    (sent,), (kept,) = plan([], many(1)).apply, plan([], many(1)).apply
    assert kept.spec.devices
    kept.spec.devices[0].binds_to_node = msgspec.Raw(b"false")
    kept.spec.skip_node_operations = msgspec.Raw(b"true")
    assert slices.differences(sent, kept) == [
        "spec.skipNodeOperations",
        "spec.devices[gpu-0000-00-00-0].bindsToNode",
    ]


def test_the_servers_spelling_is_no_difference() -> None:
    (sent,) = plan([], [one(card(memory_bytes=80 * 1024**3))]).apply
    (kept,) = plan([], [one(card(memory_bytes=80 * 1024**3))]).apply
    device = (kept.spec.devices or [])[0]
    device.capacity = {"gpu.deckhouse.io/memory": resource.Capacity(value="85899345920")}
    assert slices.differences(sent, kept) == []


def test_slice_names_are_numbered_and_fit() -> None:
    assert slices.slice_name("node-0", 17) == "00011-gpu.deckhouse.io-node-0"
    long = slices.slice_name("n" * 253, 0)
    assert len(long) == 253
    assert long != slices.slice_name("n" * 252 + "m", 0)
