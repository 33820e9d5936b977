# SPDX-License-Identifier: Apache-2.0
"""What the device plugin says of a card: as what it is offered, and who has what of it."""

import msgspec
import pytest
from tests.unit.deviceplugin.nodes import ENABLED, card, inventory, offer

from gpudeck.api.meta import Condition
from gpudeck.api.v1alpha1.physicalgpu import MOST_HOLDERS, HolderPod, OfferedResource
from gpudeck.deviceplugin import standing, status
from gpudeck.kubelet.holding import Holder
from gpudeck.vendors import contract, records

MIXED = "flags: {migStrategy: mixed}"
SHARED = (
    "sharing: {timeSlicing: {renameByDefault: true, "
    "resources: [{name: gpu, replicas: 4, memoryLimit: equal}]}}"
)
FIRST = "0000:01:00.0"


def known(config: str, *found: records.CardState, **more: object) -> status.Known:
    standing_ = standing.Standing(offer=offer(config, *found))
    made = status.Known(inventory=inventory(*found), standing=standing_, config="mine")
    return msgspec.structs.replace(made, **more)


def published(found: status.Known, address: str = FIRST) -> Condition:
    (condition,) = status.card_status(found, address, []).conditions or ()
    return condition


def offered(found: status.Known, address: str = FIRST) -> list[OfferedResource] | None:
    return status.card_status(found, address, []).extended_resources


def holder(resource: str, *devices: str) -> Holder:
    return Holder("t", "p", "main", f"nvidia.com/{resource}", devices)


def test_a_card_in_partitions_is_offered_by_their_names() -> None:
    found = known(MIXED, card(0, profiles=["1g.5gb", "1g.5gb", "2g.10gb"]), card(1))
    assert offered(found) == [
        OfferedResource(resource="nvidia.com/mig-1g.5gb", devices=2),
        OfferedResource(resource="nvidia.com/mig-2g.10gb", devices=1),
    ]
    assert published(found).message == (
        "Offered as 2 of nvidia.com/mig-1g.5gb and 1 of nvidia.com/mig-2g.10gb by the config mine."
    )


def test_what_is_given_to_nobody_is_counted_and_told() -> None:
    sick = known(SHARED, card(0, fault="It is broken."))
    assert offered(sick) == [
        OfferedResource(resource="nvidia.com/gpu.shared", devices=4, healthy=0)
    ]
    assert published(sick).message.endswith("Given to nobody, for the card is not healthy: 4.")
    key = ("nvidia.com/gpu.shared", "GPU-0::1")
    well = known(SHARED, card(0))
    held_back = msgspec.structs.replace(
        well,
        standing=msgspec.structs.replace(well.standing, withheld=(key,)),
        why=((key, "A pod holds it."),),
    )
    assert offered(held_back) == [
        OfferedResource(resource="nvidia.com/gpu.shared", devices=4, healthy=3)
    ]
    assert published(held_back).message.endswith("Given to nobody now: 1. A pod holds it.")


@pytest.mark.parametrize(
    ("config", "found", "reason"),
    [
        (MIXED, [card(0, mode=ENABLED)], "CardNotPartitioned"),
        (
            "flags: {migStrategy: single}",
            [card(0), card(1, profiles=["1g.5gb"])],
            "MigNotUniform",
        ),
        (MIXED, [card(1)], "CardNotSeen"),
    ],
)
def test_why_nothing_of_a_card_is_offered(
    config: str, found: list[records.CardState], reason: str
) -> None:
    condition = published(known(config, *found))
    assert (condition.status, condition.reason) == ("False", reason)
    assert condition.message


def test_a_card_without_a_driver_says_what_is_wrong_with_that() -> None:
    away = contract.DriverState(ready=False, reason="DriverNotLoaded", message="Load it.")
    unread = msgspec.structs.replace(card(0), reading=None, driver=away)
    condition = published(known("", unread))
    assert (condition.reason, condition.message) == ("DriverNotLoaded", "Load it.")


def test_holders_stand_at_their_cards() -> None:
    found = known(MIXED, card(0, profiles=["1g.5gb", "2g.10gb"]), card(1))
    by_address = status.holders(
        found, [holder("mig-2g.10gb", "MIG-0-1"), holder("gpu", "GPU-1"), holder("gpu", "GPU-7")]
    )
    assert by_address == {
        FIRST: [
            HolderPod(
                namespace="t", pod="p", container="main", resource="nvidia.com/mig-2g.10gb",
                device="MIG-0-1", profile="2g.10gb",
            )
        ],
        "0000:02:00.0": [
            HolderPod(
                namespace="t", pod="p", container="main", resource="nvidia.com/gpu",
                device="GPU-1",
            )
        ],
    }  # fmt: skip


def test_a_replica_says_its_part_as_long_as_the_config_does() -> None:
    shared = holder("gpu.shared", "GPU-0::2")
    (now,) = status.holders(known(SHARED, card(0)), [shared])[FIRST]
    assert (now.replicas, now.memory_mib) == (4, 10240)
    (later,) = status.holders(known("", card(0)), [shared])[FIRST]
    assert (later.replicas, later.memory_mib) == (None, None)


def test_a_replica_keeps_the_part_that_it_was_given_as() -> None:
    shared = holder("gpu.shared", "GPU-0::2")
    given = status.holders(known(SHARED, card(0)), [shared])
    later = status.holders(known("", card(0)), [shared])
    assert status.kept(later, FIRST, given[FIRST], [shared]) == given[FIRST]
    assert status.kept({}, FIRST, given[FIRST], []) == []


def test_what_pods_have_of_a_card_that_has_left_the_bus_is_still_told() -> None:
    held = [holder("gpu", "GPU-0")]
    before = status.holders(known("", card(0), card(1)), held)[FIRST]
    without = status.holders(known("", card(1)), held)
    assert without == {}
    assert status.kept(without, FIRST, before, held) == before
    moved = {"0000:02:00.0": before}
    assert status.kept(moved, FIRST, before, held) == []


def test_no_more_holders_are_told_than_an_object_takes() -> None:
    devices = [f"GPU-0::{number}" for number in range(MOST_HOLDERS + 5)]
    found = status.holders(known(SHARED, card(0)), [holder("gpu.shared", *devices)])
    assert len(found[FIRST]) == MOST_HOLDERS
