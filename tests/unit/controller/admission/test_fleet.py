# SPDX-License-Identifier: Apache-2.0
"""What the cards of a cluster could give at most to one claim."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.support import gpus

from gpudeck.api.v1alpha1.gpuclass import GPUClass, GPUClassSpec
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller.admission.fleet import Fleet, Reach

GIB = 1 << 30
PROFILES = [
    {"name": "1g.10gb", "memoryMiB": 9856, "maxInstances": 7},
    {"name": "3g.40gb", "memoryMiB": 40320, "maxInstances": 2},
]


def card(node: str = "node-0", bus: int = 1, **fields: Any) -> PhysicalGPU:
    raw = gpus.gpu(node=node, address=f"0000:{bus:02x}:00.0", **fields)
    return msgspec.convert(raw, PhysicalGPU)


def partitioned(node: str = "node-0", bus: int = 1) -> PhysicalGPU:
    raw = gpus.gpu(node=node, address=f"0000:{bus:02x}:00.0")
    raw["status"]["capabilities"]["partitionSupport"] = {
        "supported": True,
        "profiles": [
            {**each, "profileID": 1, "slices": 1, "multiprocessors": 16} for each in PROFILES
        ],
    }
    return msgspec.convert(raw, PhysicalGPU)


def spec(**fields: Any) -> GPUClassSpec:
    return msgspec.convert(gpus.gpu_class(**fields), GPUClass).spec


def fleet(*cards: PhysicalGPU) -> Fleet:
    made = Fleet()
    for each in cards:
        made.change(None, each)
    return made


def test_the_node_with_the_most_cards_is_what_a_claim_can_get() -> None:
    found = fleet(card("a", 1), card("a", 2), card("b", 1))
    assert found.reach(spec()) == Reach(81559 << 20, 2)


def test_a_card_counts_until_its_object_is_gone_for_it_may_be_lost_for_a_moment() -> None:
    found, lost = fleet(card("a", 1), card("a", 2)), card("a", 2, states={"Discovered": "False"})
    found.change(card("a", 2), lost)
    assert found.reach(spec()) == Reach(81559 << 20, 2)
    found.change(lost, None)
    assert found.reach(spec()) == Reach(81559 << 20, 1)
    found.change(card("a", 1), None)
    assert found.reach(spec()) is None


def test_partitions_count_by_the_profile_of_which_most_fit() -> None:
    found = fleet(partitioned("a", 1), partitioned("a", 2))
    parts = {"devices": ["Partition"]}
    assert found.reach(spec(**parts)) == Reach(40320 << 20, 14)
    small = {"profiles": ["1g.10gb"]}
    assert found.reach(spec(**parts, partition=small)) == Reach(9856 << 20, 14)
    assert found.reach(spec(**parts, partition={"profiles": ["1g.5gb"]})) == Reach(0, 0)
    large = {"memory": {"min": "20G"}}
    assert found.reach(spec(**parts, partition=large)) == Reach(40320 << 20, 4)


def test_shares_have_a_size_and_no_number() -> None:
    assert fleet(card()).reach(spec(devices=["Share"])) == Reach(81559 << 20, None)


def test_nobody_can_tell_without_a_card_of_the_class_or_with_one_that_is_not_read_yet() -> None:
    wanted = spec(requirements={"products": ["*B200*"]})
    assert fleet(card()).reach(wanted) is None
    unread = card(bus=9, memory_mib=None)
    assert fleet(card(), unread).reach(spec()) is None
    assert fleet(card(), unread).reach(spec(vendor="metax")) is None
    read = fleet(card(), unread)
    read.change(unread, card(bus=9))
    assert read.reach(spec()) == Reach(81559 << 20, 2)


def test_the_profiles_of_all_cards_are_told_smallest_first() -> None:
    assert fleet(card(), partitioned(bus=3)).profiles() == ["1g.10gb", "3g.40gb"]
