# SPDX-License-Identifier: Apache-2.0
"""How much of a card is held, whole or in parts."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.support import gpus

from gpudeck.api.v1alpha1.physicalgpu import (
    HeldMemory,
    HolderClaim,
    HolderPod,
    Occupancy,
    PartitionSupport,
    PhysicalGPU,
)
from gpudeck.controller.physicalgpu import occupancy

HOLDER = HolderClaim(namespace="t", name="c", uid="u", device="gpu-0000-1b-00-0")


def card(memory_mib: int | None = 81559) -> PhysicalGPU:
    return msgspec.convert(gpus.gpu(memory_mib=memory_mib), PhysicalGPU)


def test_a_card_without_holders_is_free() -> None:
    found = occupancy.of(card(), [])
    assert found.state == "Free"
    assert found.memory_mib == HeldMemory(total=81559, used=0)
    assert found.claims is None


def test_a_card_with_a_holder_is_full() -> None:
    found = occupancy.of(card(), [HOLDER])
    assert found.state == "Full"
    assert found.memory_mib == HeldMemory(total=81559, used=81559)
    assert found.claims == [HOLDER]


def test_memory_that_is_not_known_is_not_made_up() -> None:
    assert occupancy.of(card(memory_mib=None), [HOLDER]).memory_mib is None


def test_a_card_that_nobody_looked_at_yet_can_be_free() -> None:
    assert occupancy.of(PhysicalGPU(), []).state == "Free"


PROFILES = [
    {"name": "1g.10gb", "profileID": 19, "memoryMiB": 9856, "maxInstances": 7, "slices": 1,
     "multiprocessors": 16},
    {"name": "3g.40gb", "profileID": 9, "memoryMiB": 40448, "maxInstances": 2, "slices": 3,
     "multiprocessors": 60},
]  # fmt: skip


def cut(*devices: str) -> Occupancy:
    """The occupancy of a card whose partitions of these names are held."""
    found = card()
    assert found.status
    assert found.status.capabilities
    support = {"supported": True, "totalSlices": 7, "profiles": PROFILES}
    found.status.capabilities.partition_support = msgspec.convert(support, PartitionSupport)
    holders = [
        HolderClaim(namespace="t", name=name, uid=name, device=f"mig-0000-1b-00-0-{name}")
        for name in devices
    ]
    return occupancy.of(found, holders)


def test_partitions_hold_their_own_memory_until_the_card_is_cut_up() -> None:
    some = cut("1g10gb-19-0", "3g40gb-9-4")
    assert (some.state, some.memory_mib) == ("Partial", HeldMemory(total=81559, used=50304))
    all_of_it = cut(*(f"1g10gb-19-{start}" for start in range(7)))
    assert (all_of_it.state, all_of_it.memory_mib) == (
        "Full",
        HeldMemory(total=81559, used=7 * 9856),
    )


def test_shares_hold_what_was_agreed() -> None:
    shares = [
        HolderClaim(
            namespace="t", name="c", uid=f"u{number}", device="share-0000-1b-00-0",
            share_id=f"s{number}", memory_mib=4096,
        )
        for number in range(2)
    ]  # fmt: skip
    found = occupancy.of(card(), shares)
    assert (found.state, found.memory_mib) == ("Partial", HeldMemory(total=81559, used=8192))


def given(*devices: str, **of_each: Any) -> Occupancy:
    """The occupancy of a card whose devices of these ids a device plugin has given."""
    found = card(memory_mib=40960)
    assert found.status
    assert found.status.capabilities
    support = {"supported": True, "totalSlices": 7, "profiles": PROFILES}
    found.status.capabilities.partition_support = msgspec.convert(support, PartitionSupport)
    found.status.occupancy = Occupancy(
        plugin=[
            HolderPod(
                namespace="t", pod=f"p{number}", container="main", resource="r", device=device,
                **of_each,
            )
            for number, device in enumerate(devices)
        ]
    )  # fmt: skip
    return occupancy.of(found, [])


def test_a_card_that_a_device_plugin_gave_whole_is_full() -> None:
    found = given("GPU-1")
    assert (found.state, found.memory_mib) == ("Full", HeldMemory(total=40960, used=40960))
    assert [each.pod for each in found.plugin or ()] == ["p0"]


def test_replicas_fill_a_card_by_their_number() -> None:
    some = given("GPU-1::0", "GPU-1::3", replicas=4)
    assert (some.state, some.memory_mib) == ("Partial", HeldMemory(total=40960, used=20480))
    assert given(*(f"GPU-1::{number}" for number in range(4)), replicas=4).state == "Full"
    assert given("GPU-1::0").state == "Partial"


def test_a_replica_with_a_limit_holds_that() -> None:
    found = given("GPU-1::0", replicas=4, memory_mib=1024)
    assert found.memory_mib == HeldMemory(total=40960, used=1024)


def test_partitions_of_a_device_plugin_hold_their_own() -> None:
    some = given("MIG-1", "MIG-2", profile="1g.10gb")
    assert (some.state, some.memory_mib) == ("Partial", HeldMemory(total=40960, used=2 * 9856))
    shared = given("MIG-1::0", profile="1g.10gb", replicas=2)
    assert shared.memory_mib == HeldMemory(total=40960, used=4928)
    assert given(*(f"MIG-{number}" for number in range(7)), profile="1g.10gb").state == "Full"
