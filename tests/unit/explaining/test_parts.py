# SPDX-License-Identifier: Apache-2.0
"""Explanations of pods that ask for partitions and shares: one reason a card, and who has what."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import make

from gpudeck.api.core import Pod
from gpudeck.explaining import answering, cards, leaving
from gpudeck.explaining.answering import Answer, State
from gpudeck.explaining.world import Placement

DRIVER = "gpu.deckhouse.io"
GIB = 1 << 30
PROFILES = [
    {"name": name, "profileID": number, "memoryMiB": memory, "maxInstances": most, "slices": size,
     "multiprocessors": 16}
    for name, number, memory, most, size in (
        ("1g.10gb", 19, 9856, 7, 1), ("3g.40gb", 9, 40320, 2, 3), ("7g.80gb", 0, 80896, 1, 7),
    )
]  # fmt: skip
ASK_PART = {"nvidia.com/mig-1g.10gb": 1}


def card(index: int, *, support: make.Object | None = None, mode: str = "Enabled") -> make.Object:
    """An H100 that can be partitioned."""
    made = make.card(index)
    told = {"supported": True, "totalSlices": 7, "dynamic": True, "profiles": PROFILES}
    made["status"]["capabilities"]["partitionSupport"] = told | (support or {})
    made["status"]["currentState"]["partitioning"] = {"mode": mode}
    return made


def whole(index: int) -> make.Object:
    name = f"gpu-0000-{0x1B + index:02x}-00-0"
    return device(index, name, "gpu", 80 * GIB, range(8))


def part(index: int, place: int) -> make.Object:
    name = f"mig-0000-{0x1B + index:02x}-00-0-1g10gb-19-{place}"
    made = device(index, name, "mig", 9856 << 20, [place])
    made["attributes"]["profile"] = {"string": "1g.10gb"}
    return made


def share(index: int, *, memory: int = 20 * GIB) -> make.Object:
    made = device(index, f"share-0000-{0x1B + index:02x}-00-0", "share", memory, range(8))
    made["attributes"]["sharingStrategy"] = {"string": "TimeSlicing"}
    made["allowMultipleAllocations"] = True
    made["capacity"]["memory"]["requestPolicy"] = {"default": "4Gi"}
    return made


def device(index: int, name: str, kind: str, memory: int, slices: Any) -> make.Object:
    """A device that consumes memory slices of its card."""
    identity = "uuid" if kind == "gpu" else "parentUUID"
    counters = {f"memory-slice-{each}": {"value": "1"} for each in slices}
    return {
        "name": name,
        "attributes": {
            "type": {"string": kind},
            identity: {"string": f"GPU-node-0-{index}"},
            "vendor": {"string": "nvidia"},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{0x1B + index:02x}:00.0"},
        },
        "capacity": {"memory": {"value": str(memory)}},
        "consumesCounters": [{"counterSet": f"card-{index}", "counters": counters}],
    }


def counters(count: int) -> make.Object:
    slices = {f"memory-slice-{each}": {"value": "1"} for each in range(8)}
    made = make.resource_slice(DRIVER, "node-0")
    made["metadata"]["name"] = "counters"
    made["spec"]["sharedCounters"] = [
        {"name": f"card-{index}", "counters": slices} for index in range(count)
    ]
    return made


def held(name: str, device_name: str, **consumed: str) -> make.Object:
    result = {"request": "r", "driver": DRIVER, "pool": "node-0", "device": device_name}
    if consumed:
        result["consumedCapacity"] = consumed
    return make.claim(f"{name}-claim", devices=[result], pods=[name])


def classes(name: str, resource: str, **spec: Any) -> list[make.Object]:
    """A ready GPUClass of these fields, and its DeviceClass."""
    gpu_class, device_class = make.classes(name, resource=resource)
    return [{**gpu_class, "spec": {"extendedResourceName": resource, **spec}}, device_class]


CLASSES = [
    *classes(
        "mig-1g.10gb",
        "nvidia.com/mig-1g.10gb",
        devices=["Partition"],
        partition={"profiles": ["1g.10gb"]},
    ),
    *classes("shared", "nvidia.com/gpu.shared", devices=["Share"]),
    *classes("mps", "nvidia.com/gpu.mps", devices=["Share"], share={"strategy": "MPS"}),
    *classes("gpu", "nvidia.com/gpu"),
]


def explain(limits: dict[str, int], *objects: make.Object) -> Answer:
    pod = make.pod("new", limits=limits)
    world = make.world(pod, make.node("node-0"), *CLASSES, *objects)
    answer = answering.explain(msgspec.convert(pod, Pod), msgspec.convert(pod, Placement), world)
    assert sum(answer.counts.values()) == len(answer.verdicts)
    return answer


def test_a_card_with_a_free_place_would_do_and_one_held_whole_would_not() -> None:
    answer = explain(
        ASK_PART,
        *(card(index) for index in range(2)),
        make.resource_slice(
            DRIVER, "node-0", *(part(index, place) for index in range(2) for place in range(7)),
            *(whole(index) for index in range(2)),
        ),
        counters(2),
        held("first", "mig-0000-1b-00-0-1g10gb-19-0"),
        held("second", "gpu-0000-1c-00-0"),
    )  # fmt: skip
    assert [(each.reason, each.detail) for each in answer.verdicts] == [
        ("Matches", "a part of it is free; held: default/first (1g.10gb)"),
        ("HeldByPod", "default/second"),
    ]


def test_places_that_are_all_taken_are_told_with_their_holders() -> None:
    names = [f"mig-0000-1b-00-0-1g10gb-19-{place}" for place in range(7)]
    answer = explain(
        ASK_PART,
        card(0),
        make.resource_slice(DRIVER, "node-0", *(part(0, place) for place in range(7)), whole(0)),
        counters(1),
        *(held(f"pod-{place}", name) for place, name in enumerate(names)),
    )
    assert answer.state is State.NO_CARD_IS_FREE
    assert answer.verdicts[0].reason == "HeldByPod"
    assert answer.verdicts[0].detail.startswith("default/pod-0 (1g.10gb), default/pod-1 (")


def test_a_whole_card_is_not_free_while_a_part_of_it_is_held() -> None:
    answer = explain(
        {"nvidia.com/gpu": 1},
        card(0),
        make.resource_slice(DRIVER, "node-0", part(0, 3), whole(0)),
        counters(1),
        held("small", "mig-0000-1b-00-0-1g10gb-19-3"),
    )
    assert [(each.reason, each.detail) for each in answer.verdicts] == [
        ("HeldByPod", "default/small (1g.10gb)")
    ]


def test_a_share_that_is_too_small_is_told_in_amounts() -> None:
    answer = explain(
        {"nvidia.com/gpu.shared": 1},
        card(0),
        make.resource_slice(DRIVER, "node-0", share(0), whole(0)),
        counters(1),
        held("first", "share-0000-1b-00-0", memory="10Gi"),
        held("second", "share-0000-1b-00-0", memory="8Gi"),
    )
    assert [(each.reason, each.detail) for each in answer.verdicts] == [
        ("NotEnoughLeft", "2 GiB of memory is left, 4 GiB is needed")
    ]
    assert answer.sentences[0] == (
        "Pod default/new waits for 1 share by nvidia.com/gpu.shared: the only "
        "matching card has not enough left (2 GiB of memory is left, 4 GiB is needed)."
    )


@pytest.mark.parametrize(
    ("support", "mode", "reason", "detail"),
    [
        ({"supported": False, "profiles": None}, "NotAvailable", "DoesNotMatchClass",
         "it cannot be partitioned"),
        ({"profiles": PROFILES[1:]}, "Enabled", "DoesNotMatchClass",
         "spec.partition.profiles must be 1g.10gb, its profiles are 3g.40gb, 7g.80gb"),
        ({"dynamic": False}, "Disabled", "PartitioningOff",
         "the label gpu.deckhouse.io/mig-mode=enabled of the card or its node turns the mode on, "
         "which takes a reset of the card"),
    ],
)  # fmt: skip
def test_why_a_card_offers_no_partition(
    support: make.Object, mode: str, reason: str, detail: str
) -> None:
    answer = explain(
        ASK_PART,
        card(0, support=support, mode=mode),
        make.resource_slice(DRIVER, "node-0", whole(0)),
    )
    assert [(each.reason, each.detail) for each in answer.verdicts] == [(reason, detail)]


@pytest.mark.parametrize("asked", [{"nvidia.com/gpu": 1}, {"nvidia.com/gpu.shared": 1}])
def test_why_a_card_that_is_offered_in_partitions_is_not_offered_whole(
    asked: dict[str, int],
) -> None:
    answer = explain(
        asked,
        card(0, support={"dynamic": False}, mode="Enabled"),
        make.resource_slice(DRIVER, "node-0", part(0, 0)),
        counters(1),
    )
    assert [(each.reason, each.detail) for each in answer.verdicts] == [
        (
            "PartitioningOn",
            "it is offered in partitions; the label gpu.deckhouse.io/mig-mode=disabled of the "
            "card or its node turns the mode off, which takes a reset of the card",
        )
    ]


def test_a_card_of_which_no_partition_is_offered_is_not_said_to_be_offered_in_partitions() -> None:
    answer = explain({"nvidia.com/gpu": 1}, card(0, support={"dynamic": False}, mode="Enabled"))
    assert [(each.reason, each.detail) for each in answer.verdicts] == [
        (
            "PartitioningOn",
            "the label gpu.deckhouse.io/mig-mode=disabled of the card or its node turns the mode "
            "off, which takes a reset of the card",
        )
    ]


def test_a_node_that_keeps_no_mps_daemons_is_told() -> None:
    answer = explain(
        {"nvidia.com/gpu.mps": 1},
        card(0),
        make.resource_slice(DRIVER, "node-0", share(0), whole(0)),
        counters(1),
    )
    assert [(each.reason, each.detail) for each in answer.verdicts] == [
        (
            "NotPublished",
            "MPS has to be enabled on its node, and the card's compute capability be 7.0 or more",
        )
    ]


@pytest.mark.parametrize("asked", [ASK_PART, {"nvidia.com/gpu.shared": 1}])
def test_a_server_that_would_not_guard_parts_is_named(asked: dict[str, int]) -> None:
    withheld = card(0)
    for each in withheld["status"]["conditions"]:
        if each["type"] == "Published":
            each["reason"] = "PartsWithheld"
    answer = explain(asked, withheld, make.resource_slice(DRIVER, "node-0", whole(0)))
    ((reason, detail),) = [(each.reason, each.detail) for each in answer.verdicts]
    assert reason == "NotPublished"
    assert detail.startswith("its parts are not: the API server does not keep the fields")


def test_a_card_whose_mode_is_about_to_change_says_what_that_waits_for() -> None:
    found = card(0)
    found["status"]["conditions"].append(
        {
            "type": "PartitioningApplied",
            "status": "False",
            "reason": "WaitingForClaims",
            "message": "It waits for claim t/train.",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    )
    taint = {"key": "gpu.deckhouse.io/mig-mode", "value": "changing", "effect": "NoSchedule"}
    answer = explain(
        {"nvidia.com/gpu": 1},
        found,
        make.resource_slice(DRIVER, "node-0", {**whole(0), "taints": [taint]}),
        counters(1),
    )
    assert [(each.reason, each.detail) for each in answer.verdicts] == [
        ("PartitioningChanges", "WaitingForClaims: It waits for claim t/train.")
    ]


def test_a_taint_rule_is_named() -> None:
    rule = {
        "kind": "DeviceTaintRule",
        "metadata": {"name": "card-0"},
        "spec": {
            "deviceSelector": {"driver": DRIVER, "pool": "node-0", "device": "gpu-0000-1b-00-0"},
            "taint": {"key": "gpu.deckhouse.io/cordoned", "effect": "NoSchedule"},
        },
    }
    answer = explain(
        {"nvidia.com/gpu": 1},
        *(card(index) for index in range(2)),
        make.resource_slice(DRIVER, "node-0", whole(0), whole(1)),
        rule,
    )
    assert [(each.reason, each.detail) for each in answer.verdicts] == [
        ("Cordoned", "DeviceTaintRule card-0 gives it gpu.deckhouse.io/cordoned:NoSchedule"),
        ("Matches", ""),
    ]


def test_a_share_by_mps_is_told_as_one() -> None:
    world = make.world(
        card(0),
        make.node("node-0"),
        make.resource_slice(DRIVER, "node-0", share(0), whole(0)),
        held("first", "share-0000-1b-00-0-mps", memory="8Gi"),
    )
    (found,) = cards.all_of(world)
    assert [each.label for each in found.holders] == ["default/first (8 GiB by MPS)"]


def test_holders_are_told_with_what_they_have() -> None:
    world = make.world(
        card(0),
        make.node("node-0"),
        make.resource_slice(DRIVER, "node-0", part(0, 0), share(0), whole(0)),
        counters(1),
        held("first", "mig-0000-1b-00-0-1g10gb-19-0"),
        held("second", "share-0000-1b-00-0", memory="8Gi"),
    )
    (found,) = cards.all_of(world)
    assert [each.label for each in found.holders] == [
        "default/first (1g.10gb)",
        "default/second (8 GiB)",
    ]
    assert leaving.free(found, found.devices, {}) == ["share-0000-1b-00-0"]
