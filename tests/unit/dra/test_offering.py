# SPDX-License-Identifier: Apache-2.0
"""Cards to devices and counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import resource
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import offering

HEALTHY = adapter_pb2.Health(verdict=adapter_pb2.VERDICT_HEALTHY)
SICK = adapter_pb2.Health(verdict=adapter_pb2.VERDICT_UNHEALTHY, reason="GpuLost")
UNKNOWN = adapter_pb2.Health(verdict=adapter_pb2.VERDICT_UNKNOWN)


def card(bus: int = 1, health: adapter_pb2.Health = HEALTHY, **more: Any) -> adapter_pb2.Card:
    driver = adapter_pb2.DriverState(ready=True, version=more.pop("driver_version", "580.65.06"))
    return adapter_pb2.Card(
        pci_address=f"0000:{bus:02x}:00.0", driver=driver, health=health, compute_api="CUDA", **more
    )


def one(found: adapter_pb2.Card, **more: Any) -> resource.Device:
    (device,) = devices([found], **more)
    return device


def offer(
    cards: list[adapter_pb2.Card],
    *classes: dict[str, Any],
    before: Mapping[str, resource.Device] | None = None,
    **rules: Any,
) -> offering.Offer:
    """The offer of cards where these GPUClasses are Ready."""
    specs = tuple(msgspec.convert(each, GPUClassSpec) for each in classes)
    made = offering.Rules(vendor="nvidia", classes=specs, **rules)
    return offering.offer(cards, made, before=before)


def devices(cards: list[adapter_pb2.Card], **more: Any) -> list[resource.Device]:
    return offer(cards, **more).devices


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
    names = [each.name for each in devices(cards)]
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
    found = devices(cards, taints_kept=False)
    assert [each.name for each in found] == ["gpu-0000-02-00-0"]


def test_cards_without_driver_or_in_partitioning_mode_are_refused_with_a_reason() -> None:
    no_driver = card()
    no_driver.driver.CopyFrom(adapter_pb2.DriverState(reason="DriverNotLoaded", message="m"))
    partitioned = card()
    partitioned.partitioning.mode = adapter_pb2.PARTITIONING_MODE_ENABLED
    refusals = [offering.refusal(each) for each in (no_driver, partitioned, card())]
    assert [each and each.reason for each in refusals] == [
        "DriverNotLoaded",
        "CardPartitioned",
        None,
    ]
    assert devices([no_driver, partitioned]) == []


# Parts of cards


def profile(
    name: str, number: int, memory: int, slices: int, *places: tuple[int, int]
) -> adapter_pb2.PartitionProfile:
    return adapter_pb2.PartitionProfile(
        name=name,
        profile_id=number,
        memory_mib=memory,
        slices=slices,
        max_instances=len(places),
        multiprocessors=16 * slices,
        copy_engines=slices,
        placements=[adapter_pb2.Placement(start=start, size=size) for start, size in places],
    )


PROFILES = [
    profile("1g.10gb", 19, 9856, 1, *((start, 1) for start in range(7))),
    profile("2g.20gb", 14, 19968, 2, (0, 2), (2, 2), (4, 2)),
    profile("3g.40gb", 9, 40320, 3, (0, 4), (4, 4)),
    profile("4g.40gb", 5, 40448, 4, (0, 4)),
    profile("7g.80gb", 0, 80896, 7, (0, 8)),
]


def hopper(bus: int = 1, **more: Any) -> adapter_pb2.Card:
    """An H100: partitions on demand."""
    support = adapter_pb2.PartitionSupport(
        supported=True, total_slices=7, profiles=PROFILES, dynamic=more.pop("dynamic", True)
    )
    mode = (
        adapter_pb2.PARTITIONING_MODE_ENABLED
        if more.pop("enabled", False)
        else (adapter_pb2.PARTITIONING_MODE_DISABLED)
    )
    parts = adapter_pb2.Partitioning(mode=mode, partitions=more.pop("partitions", []))
    return card(
        bus, uuid=f"GPU-{bus}", memory_bytes=81559 << 20, partition_support=support,
        partitioning=parts, **more,
    )  # fmt: skip


ONE_G = {"devices": ["Partition"], "partition": {"profiles": ["1g.10gb"]}}
ANY_PART: dict[str, Any] = {"devices": ["Partition"]}
SHARE: dict[str, Any] = {"devices": ["Share"]}
WHOLE: dict[str, Any] = {}


def named(found: offering.Offer) -> list[str]:
    return [each.name for each in found.devices]


def test_without_a_class_for_them_there_are_no_parts_and_no_counters() -> None:
    found = offer([hopper()], WHOLE)
    assert named(found) == ["gpu-0000-01-00-0"]
    assert found.counters == []
    assert found.devices[0].consumes_counters is None


def test_only_what_a_class_selects_is_offered_smallest_and_least_spoiling_first() -> None:
    assert named(offer([hopper()], ONE_G)) == [
        *(f"mig-0000-01-00-0-1g10gb-19-{start}" for start in (6, 5, 4, 3, 2, 1, 0)),
        "gpu-0000-01-00-0",
    ]
    everything = named(offer([hopper(2), hopper(1)], ANY_PART, SHARE))
    kinds = [name.split("-")[0] for name in everything]
    assert kinds == ["mig"] * 28 + ["share"] * 2 + ["gpu"] * 2
    assert everything[:8] == [
        *(f"mig-0000-01-00-0-1g10gb-19-{start}" for start in (6, 5, 4, 3, 2, 1, 0)),
        "mig-0000-02-00-0-1g10gb-19-6",
    ]


def test_whole_cards_are_taken_from_the_other_end_than_parts() -> None:
    found = named(offer([hopper(bus) for bus in (1, 2, 3)], ONE_G, WHOLE))
    assert found[0] == "mig-0000-01-00-0-1g10gb-19-6"
    # A pod with a whole card that leaves does not draw the next partition to its card.
    assert found[-3:] == ["gpu-0000-03-00-0", "gpu-0000-02-00-0", "gpu-0000-01-00-0"]


def test_a_partition_says_what_it_is_and_what_its_card_is() -> None:
    device = offer([hopper()], ONE_G).devices[0]
    found = texts(device)
    assert (found["type"], found["profile"], found["parentUUID"]) == ("mig", "1g.10gb", "GPU-1")
    assert "uuid" not in found
    assert (device.attributes or {})["cardMemory"].int_ == 81559 << 20
    assert device.capacity == {
        "memory": resource.Capacity(value="9856Mi"),
        "multiprocessors": resource.Capacity(value="16"),
    }


def consumption(device: resource.Device) -> dict[str, int]:
    (one_set,) = device.consumes_counters or ()
    return {name: int(each.value) for name, each in one_set.counters.items()}


def test_whole_card_partitions_and_shares_exclude_each_other_by_counters() -> None:
    found = offer([hopper()], ANY_PART, SHARE)
    (total,) = found.counters
    everything = {name: int(each.value) for name, each in total.counters.items()}
    assert everything == {
        **{f"memory-slice-{index}": 1 for index in range(8)}, "slices": 7, "copy-engines": 7
    }  # fmt: skip
    by_name = {each.name: each for each in found.devices}
    assert consumption(by_name["gpu-0000-01-00-0"]) == everything
    assert consumption(by_name["share-0000-01-00-0"]) == everything
    assert consumption(by_name["mig-0000-01-00-0-3g40gb-9-4"]) == {
        **{f"memory-slice-{index}": 1 for index in range(4, 8)}, "slices": 3, "copy-engines": 3
    }  # fmt: skip


def test_a_share_has_the_node_s_policy() -> None:
    policy = offering.SharePolicy(default_bytes=2 << 30, step_bytes=1 << 30)
    found = offer([card(memory_bytes=(15 << 30) + 5)], SHARE, shares=policy)
    device, whole = found.devices
    assert device.allow_multiple_allocations
    assert (device.capacity or {})["memory"] == resource.Capacity(
        value=str((15 << 30) + 5),
        request_policy=resource.RequestPolicy(
            default="2Gi", valid_range=resource.CapacityRange(min="1Gi", max="15Gi", step="1Gi")
        ),
    )
    assert consumption(device) == consumption(whole) == {"card": 1}
    assert texts(device)["sharingStrategy"] == "TimeSlicing"


MPS: dict[str, Any] = {"devices": ["Share"], "share": {"strategy": "MPS"}}
BY_MPS = adapter_pb2.ShareSupport(time_slicing=True, mps=True)


def test_shares_by_mps_are_offered_where_the_card_has_them_and_a_class_asks() -> None:
    share, whole = "share-0000-01-00-0-mps", "gpu-0000-01-00-0"
    assert named(offer([hopper(share_support=BY_MPS)], MPS)) == [share, whole]
    assert named(offer([hopper(share_support=BY_MPS)], WHOLE)) == [whole]
    assert named(offer([hopper()], MPS)) == [whole]


def test_one_card_is_shared_in_one_way_at_a_time() -> None:
    found = offer([hopper(share_support=BY_MPS)], MPS, SHARE, ANY_PART)
    by_name = {each.name: each for each in found.devices}
    sliced, daemon = by_name["share-0000-01-00-0"], by_name["share-0000-01-00-0-mps"]
    assert consumption(sliced) == consumption(daemon) == consumption(by_name["gpu-0000-01-00-0"])
    assert texts(daemon)["sharingStrategy"] == "MPS"


def test_a_share_that_is_held_stays_while_nobody_keeps_daemons() -> None:
    held = "share-0000-01-00-0-mps"
    found = offer([hopper()], WHOLE, ours=frozenset({held}))
    assert named(found) == [held, "gpu-0000-01-00-0"]
    assert consumption(found.devices[0]) == consumption(found.devices[1])


def test_what_a_claim_holds_stays_although_no_class_selects_it() -> None:
    held = "mig-0000-01-00-0-2g20gb-14-2"
    assert held in named(offer([hopper()], WHOLE, ours=frozenset({held})))


def test_partitions_of_others_are_respected() -> None:
    other = adapter_pb2.Partition(profile="2g.20gb", uuid="MIG-1", start=4, size=2, profile_id=14)
    found = named(offer([hopper(enabled=True, partitions=[other])], ONE_G, SHARE))
    assert found == [f"mig-0000-01-00-0-1g10gb-19-{start}" for start in (6, 3, 2, 1, 0)]
    refused = offering.refusal(hopper(enabled=True, partitions=[other]))
    assert refused
    assert refused.reason == "ForeignPartitions"
    mine = frozenset({"mig-0000-01-00-0-2g20gb-14-4"})
    assert "gpu-0000-01-00-0" in named(
        offer([hopper(enabled=True, partitions=[other])], ONE_G, ours=mine)
    )


def test_a_card_that_needs_a_reset_offers_what_its_mode_allows() -> None:
    off = hopper(dynamic=False)
    assert named(offer([off], ANY_PART, SHARE)) == ["share-0000-01-00-0", "gpu-0000-01-00-0"]
    on = hopper(dynamic=False, enabled=True)
    assert {name.split("-")[0] for name in named(offer([on], ANY_PART, SHARE))} == {"mig"}


def test_all_devices_of_a_sick_card_are_tainted_with_the_effect_of_the_node() -> None:
    found = offer([hopper(health=SICK)], ONE_G, SHARE, effect="NoExecute")
    effects = [[taint.effect for taint in each.taints or ()] for each in found.devices]
    assert effects == [["NoExecute"]] * 9


def test_a_server_that_drops_counters_is_offered_whole_cards_alone() -> None:
    found = offer([hopper()], ANY_PART, SHARE, counters_kept=False)
    assert named(found) == ["gpu-0000-01-00-0"]
    assert found.withheld == {"gpu-0000-01-00-0"}
    assert found.devices[0].consumes_counters is None
    assert not offer([hopper()], WHOLE, counters_kept=False).withheld


def test_a_server_that_drops_shares_is_offered_cards_and_partitions() -> None:
    found = offer([hopper()], ONE_G, SHARE, shares_kept=False)
    assert {name.split("-")[0] for name in named(found)} == {"mig", "gpu"}
    assert found.withheld == {"gpu-0000-01-00-0"}
    assert all(each.consumes_counters for each in found.devices)
    alone = offer([hopper()], SHARE, shares_kept=False)
    assert named(alone) == ["gpu-0000-01-00-0"]
    assert alone.counters == []


@pytest.mark.parametrize(
    ("held", "kept"),
    [
        ("mig-0000-01-00-0-2g20gb-14-2", {"counters_kept": False}),
        ("share-0000-01-00-0", {"counters_kept": False}),
        ("share-0000-01-00-0", {"shares_kept": False}),
    ],
)
def test_beside_a_held_part_that_no_server_counts_nothing_of_its_card_is_offered(
    held: str, kept: dict[str, bool]
) -> None:
    found = offer([hopper(), hopper(2)], ANY_PART, ours=frozenset({held}), **kept)
    assert not [name for name in named(found) if "-0000-01-" in name]
    assert "gpu-0000-02-00-0" in named(found)
    assert "gpu-0000-01-00-0" in found.withheld


def test_a_class_that_cannot_be_read_selects_nothing() -> None:
    bad = {"devices": ["Partition"], "partition": {"memory": {"min": "9GB"}}}
    assert named(offer([hopper()], bad)) == ["gpu-0000-01-00-0"]


CHANGING = frozenset({PciAddress.parse("0000:01:00.0")})
MODE_TAINT = resource.DeviceTaint(
    key="gpu.deckhouse.io/mig-mode", value="changing", effect="NoSchedule"
)


def test_a_card_whose_mode_is_about_to_change_gets_no_new_claims_and_the_others_do() -> None:
    changing, other = devices([card(1), card(2)], kept_off=CHANGING)
    assert changing.taints == [MODE_TAINT]
    assert other.taints is None
    (sick,) = devices([card(health=SICK)], kept_off=CHANGING)
    assert [each.key for each in sick.taints or ()] == [
        "gpu.deckhouse.io/unhealthy",
        "gpu.deckhouse.io/mig-mode",
    ]


def test_until_it_is_known_whose_mode_changes_the_taint_stays_as_published() -> None:
    changing = one(card(), kept_off=CHANGING)
    assert one(card(), before={changing.name: changing}, kept_off=None).taints == [MODE_TAINT]
    plain = one(card())
    assert one(card(), before={plain.name: plain}, kept_off=None).taints is None
    assert one(card(), before={changing.name: changing}).taints is None


def test_where_taints_are_dropped_a_card_whose_mode_changes_is_withheld() -> None:
    (found,) = devices([card(1), card(2)], kept_off=CHANGING, taints_kept=False)
    assert found.name == "gpu-0000-02-00-0"
