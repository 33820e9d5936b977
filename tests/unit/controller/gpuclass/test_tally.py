# SPDX-License-Identifier: Apache-2.0
"""Counts follow the cards and end where they began."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import gpus

from gpudeck.api import conditions
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller.gpuclass import tally
from gpudeck.controller.gpuclass.tally import Counts

ALL = GPUClassSpec()
H100 = msgspec.convert({"requirements": {"products": ["*H100*"]}}, GPUClassSpec)


def card(**fields: Any) -> PhysicalGPU:
    return msgspec.convert(gpus.gpu(**fields), PhysicalGPU)


class Tally(tally.Tally):
    """Cards of attended nodes, unless a test says otherwise."""

    def put(self, old: PhysicalGPU | None, new: PhysicalGPU | None) -> bool:
        return self.change(old, new, was_attended=True, is_attended=True)


READY = {"phase": "Ready", "occupancy": {"state": "Free"}}
HELD = {"phase": "InUse", "occupancy": gpus.held("gpu")}


def spec(*devices: str, **fields: Any) -> GPUClassSpec:
    return msgspec.convert({"devices": devices, **fields}, GPUClassSpec)


def cut(**fields: Any) -> PhysicalGPU:
    return card(**{"support": gpus.FOUR_SLICES, **READY, **fields})


PARTS = spec("Partition")
SMALL = spec("Partition", partition={"profiles": ["1g.6gb"]})
HALVES = spec("Partition", partition={"memory": {"min": "10G", "max": "20G"}})
SHARES = spec("Share")
ANY = spec("Whole", "Partition", "Share")


def test_a_class_counts_the_cards_it_selects() -> None:
    counted = Tally()
    counted.put(None, card(**READY))
    counted.put(None, card(**HELD))
    counted.put(None, card(product="NVIDIA A100-SXM4-40GB", **READY))
    found = counted.of(ALL)
    assert (found.gpus, found.devices, found.free, found.allocated) == (3, 3, 2, 1)
    found = counted.of(H100)
    assert (found.gpus, found.devices, found.free, found.allocated) == (2, 2, 1, 1)


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, (1, 1, 1, 0)),
        (READY, (1, 1, 1, 0)),
        (HELD, (1, 1, 0, 1)),
        ({**READY, "states": {**gpus.HEALTHY, "Published": "False"}}, (1, 0, 0, 0)),
        ({**HELD, "states": {**gpus.HEALTHY, "Published": "False"}}, (1, 0, 0, 1)),
        ({**READY, "states": {**gpus.HEALTHY, "HardwareHealthy": "False"}}, (1, 1, 0, 0)),
        ({**READY, "states": {**gpus.HEALTHY, "DriverReady": "Unknown"}}, (1, 1, 0, 0)),
        ({**READY, "states": {**gpus.HEALTHY, "Discovered": "False"}}, (0, 0, 0, 0)),
        ({"occupancy": gpus.held("mig-1g6gb-14-0"), "support": gpus.FOUR_SLICES}, (1, 1, 0, 0)),
        ({"occupancy": gpus.held(shares=(1024,))}, (1, 1, 0, 0)),
    ],
)
def test_what_one_card_counts_as_to_a_class_of_whole_cards(
    fields: dict[str, Any], counts: tuple[int, ...]
) -> None:
    counted = Tally()
    counted.put(None, card(**fields))
    found = counted.of(ALL)
    assert (found.gpus, found.devices, found.free, found.allocated) == counts


@pytest.mark.parametrize(
    ("occupancy", "free", "allocated"),
    [
        (gpus.held(), {"PARTS": 4, "SMALL": 4, "HALVES": 2, "ANY": 4}, {}),
        (
            gpus.held("mig-1g6gb-14-3"),
            {"PARTS": 3, "SMALL": 3, "HALVES": 1, "ANY": 3},
            {"PARTS": 1, "SMALL": 1, "ANY": 1},
        ),
        (
            gpus.held("mig-1g6gb-14-1", "mig-1g6gb-14-2"),
            {"PARTS": 2, "SMALL": 2, "HALVES": 0, "ANY": 2},
            {"PARTS": 2, "SMALL": 2, "ANY": 2},
        ),
        (
            gpus.held("mig-2g12gb-5-0"),
            {"PARTS": 2, "SMALL": 2, "HALVES": 1, "ANY": 2},
            {"PARTS": 1, "HALVES": 1, "ANY": 1},
        ),
        (gpus.held("gpu"), {}, {"ANY": 1}),
        (gpus.held(shares=(1024, 2048)), {}, {"SHARES": 2, "ANY": 2}),
    ],
)
def test_what_is_held_of_a_card_decides_how_many_more_partitions_it_gives(
    occupancy: dict[str, Any], free: dict[str, int], allocated: dict[str, int]
) -> None:
    classes = {"PARTS": PARTS, "SMALL": SMALL, "HALVES": HALVES, "SHARES": SHARES, "ANY": ANY}
    counted = Tally()
    counted.put(None, cut(occupancy=occupancy))
    found = {name: counted.of(each) for name, each in classes.items()}
    assert {name: found[name].free for name in free} == free
    if not free:
        assert found["PARTS"].free == found["ANY"].free == 0
    assert {name: each.allocated for name, each in found.items() if each.allocated} == allocated
    assert {name: each.devices for name, each in found.items()} == {
        "PARTS": 4,
        "SMALL": 4,
        "HALVES": 2,
        "SHARES": 1,
        "ANY": 4,
    }


def test_partitions_of_somebody_else_are_neither_ours_nor_free() -> None:
    counted = Tally()
    state = {
        "driverVersion": "570.86.05",
        "partitioning": {
            "mode": "Enabled",
            "partitions": [
                {"profile": "1g.6gb", "uuid": "MIG-a", "placement": "0:1"},
                {"profile": "1g.6gb", "uuid": "MIG-b", "placement": "3:1"},
            ],
        },
    }
    counted.put(None, cut(currentState=state, occupancy=gpus.held("mig-1g6gb-14-3")))
    found = counted.of(PARTS)
    assert (found.devices, found.free, found.allocated) == (3, 2, 1)
    assert counted.of(ALL).devices == 0


@pytest.mark.parametrize(
    ("mode", "whole", "parts"), [("Disabled", 1, 0), ("Enabled", 0, 4), ("NotAvailable", 1, 0)]
)
def test_a_card_that_needs_a_reset_gives_what_its_mode_admits(
    mode: str, whole: int, parts: int
) -> None:
    counted = Tally()
    state = {"driverVersion": "570.86.05", "partitioning": {"mode": mode}}
    counted.put(None, cut(support={**gpus.FOUR_SLICES, "dynamic": False}, currentState=state))
    assert (counted.of(ALL).devices, counted.of(PARTS).devices) == (whole, parts)


def test_the_memory_that_is_left_for_shares_is_that_of_cards_held_in_no_other_way() -> None:
    counted = Tally()
    counted.put(None, cut(occupancy=gpus.held(shares=(4096, 8192))))
    counted.put(None, cut(occupancy=gpus.held("mig-1g6gb-14-3")))
    counted.put(None, cut(occupancy=gpus.held("gpu")))
    found = counted.of(SHARES)
    assert (found.share_mib, found.allocated, found.devices) == (81559 - 12288, 2, 3)


def test_shares_by_mps_are_had_of_cards_whose_node_keeps_daemons() -> None:
    by_mps, counted = spec("Share", share={"strategy": "MPS"}), Tally()
    raw = gpus.gpu(**READY)
    raw["status"]["capabilities"]["shareStrategies"] = ["TimeSlicing", "MPS"]
    counted.put(None, msgspec.convert(raw, PhysicalGPU))
    counted.put(None, card(**READY))
    raw["status"]["occupancy"] = gpus.held(shares=(4096,))
    counted.put(None, msgspec.convert(raw, PhysicalGPU))
    found = counted.of(by_mps)
    assert (found.gpus, found.devices, found.allocated, found.share_mib) == (3, 2, 0, 81559)
    sliced = counted.of(SHARES)
    assert (sliced.devices, sliced.allocated) == (3, 1)


def test_parts_that_the_api_server_would_not_guard_are_not_counted() -> None:
    counted, raw = Tally(), gpus.gpu(support=gpus.FOUR_SLICES, **READY)
    (published,) = (
        each for each in raw["status"]["conditions"] if each["type"] == conditions.PUBLISHED
    )
    published["reason"] = conditions.PARTS_WITHHELD
    counted.put(None, msgspec.convert(raw, PhysicalGPU))
    assert [counted.of(each).devices for each in (ALL, PARTS, SHARES, ANY)] == [1, 0, 0, 1]
    assert counted.of(SHARES).share_mib == 0


def test_a_class_of_whole_cards_knows_of_cards_that_are_held_in_parts() -> None:
    counted = Tally()
    counted.put(None, cut(occupancy=gpus.held(shares=(4096,))))
    counted.put(None, cut(occupancy=gpus.held("mig-1g6gb-14-3")))
    counted.put(None, cut(occupancy=gpus.held("gpu")))
    assert (counted.of(ALL).held_otherwise, counted.of(ALL).allocated) == (2, 1)


def test_counts_end_where_they_began() -> None:
    counted = Tally()
    states = [
        cut(occupancy=gpus.held()),
        cut(occupancy=gpus.held("mig-1g6gb-14-3", "mig-2g12gb-5-0")),
        cut(occupancy=gpus.held(shares=(4096,))),
        cut(occupancy=gpus.held("gpu")),
        card(**READY),
    ]
    for old, new in zip([None, *states], [*states, None], strict=True):
        assert counted.put(old, new)
        assert not counted.put(new, new)
    assert counted.of(ALL) == Counts()
    assert counted.of(ANY) == Counts()
    assert {phase: count for phase, count in counted.phases.items() if phase and count} == {}


def test_a_card_of_which_nobody_answers_offers_nothing_until_somebody_does() -> None:
    counted, free = Tally(), card(**READY)
    counted.put(None, free)
    assert counted.change(free, free, was_attended=True, is_attended=False)
    assert counted.of(ALL) == Counts(gpus=1)
    assert counted.change(free, free, was_attended=False, is_attended=True)
    assert counted.of(ALL) == Counts(gpus=1, devices=1, free=1, share_mib=81559)


def test_phases_are_counted() -> None:
    counted = Tally()
    for fields in (READY, READY, HELD):
        counted.put(None, card(**fields))
    assert (counted.phases["Ready"], counted.phases["InUse"]) == (2, 1)
