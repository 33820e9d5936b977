# SPDX-License-Identifier: Apache-2.0
"""What of a card a claim holds, in the words of the adapter's protocol."""

from __future__ import annotations

import pytest

from gpudeck import errors
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.dra import requesting
from gpudeck.dra.allocations import HeldDevice

NAME = "mig-0000-1b-00-0-3g40gb-9-4"


def card(*there: tuple[int, int, int], offers: bool = False) -> adapter_pb2.Card:
    """A card that has been read; `there` is profile, start and size of its partitions."""
    made = adapter_pb2.Card(pci_address="0000:1b:00.0", uuid="GPU-1")
    for profile_id, start, size in there:
        made.partitioning.partitions.add(
            profile="3g.40gb", profile_id=profile_id, start=start, size=size
        )
    if offers:
        places = [adapter_pb2.Placement(start=start, size=4) for start in (0, 4)]
        made.partition_support.profiles.add(name="3g.40gb", profile_id=9, placements=places)
    return made


@pytest.mark.parametrize(
    ("seen", "size"),
    [
        (card((9, 4, 4)), 4),
        (card(offers=True), 4),
        (card((14, 4, 2)), None),
        (card((9, 0, 4)), None),
        (None, None),
    ],
)
def test_a_partition_is_as_large_as_its_card_says(
    seen: adapter_pb2.Card | None, size: int | None
) -> None:
    assert requesting.placed(HeldDevice(name=NAME), seen).size == size


def test_a_known_size_and_other_devices_stay_as_they_are() -> None:
    known = HeldDevice(name=NAME, size=2)
    whole = HeldDevice(name="gpu-0000-1b-00-0")
    assert requesting.placed(known, card((9, 4, 4))) is known
    assert requesting.placed(whole, card((9, 4, 4))) is whole


def test_a_partition_whose_profile_the_driver_does_not_tell_is_known_by_its_place() -> None:
    seen = card()
    seen.partitioning.partitions.add(start=4, size=4)
    found = requesting.placed(HeldDevice(name=NAME), seen)
    assert (found.size, found.profile) == (4, None)


def test_what_is_removed_is_named_with_its_place() -> None:
    asked = requesting.removal(HeldDevice(name=NAME), card((9, 4, 4)))
    assert asked is not None
    assert (asked.pci_address, asked.partition.profile_id) == ("0000:1b:00.0", 9)
    assert (asked.partition.placement.start, asked.partition.placement.size) == (4, 4)


@pytest.mark.parametrize("name", [NAME, "tile-7"])
def test_nothing_is_removed_of_what_the_card_does_not_have(name: str) -> None:
    assert requesting.removal(HeldDevice(name=name), card()) is None


def test_a_card_that_was_not_read_yet_may_have_it() -> None:
    with pytest.raises(errors.UnavailableError, match="has not been read yet"):
        requesting.removal(HeldDevice(name=NAME), adapter_pb2.Card(pci_address="0000:1b:00.0"))
