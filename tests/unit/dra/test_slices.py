# SPDX-License-Identifier: Apache-2.0
"""Devices and counters to slices."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.dra.test_offering import HEALTHY, SICK, card, devices, one

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import resource
from gpudeck.api.meta import OwnerReference
from gpudeck.dra import slices, tainting

OWNER = OwnerReference(api_version="v1", kind="Node", name="node-0", uid="u", controller=True)


def many(count: int, health: adapter_pb2.Health = HEALTHY) -> list[resource.Device]:
    cards = [card(number, health=health) for number in range(count)]
    return devices(cards)


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
        assert len(devices) <= (64 if any(map(tainting.is_tainted, devices)) else 128)


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
        lambda each: setattr(each.spec, "shared_counters", [resource.CounterSet(name="a")]),
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


def test_counters_have_slices_of_their_own_and_devices_come_by_64() -> None:
    consumption = resource.CounterConsumption(counter_set="c")
    parts = [
        resource.Device(name=f"d-{index}", consumes_counters=[consumption]) for index in range(70)
    ]
    sets = [resource.CounterSet(name=f"c-{index}") for index in range(9)]
    made = slices.plan([], parts, sets, owner=OWNER)
    held = [
        (len(each.spec.devices or ()), len(each.spec.shared_counters or ())) for each in made.apply
    ]
    assert held == [(64, 0), (6, 0), (0, 8), (0, 1)]
    assert {each.spec.pool.resource_slice_count for each in made.apply} == {4}
    assert slices.plan(made.apply, parts, sets, owner=OWNER).apply == []
    assert slices.plan(made.apply, parts, sets[:8], owner=OWNER).delete
