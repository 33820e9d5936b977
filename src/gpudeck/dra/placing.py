# SPDX-License-Identifier: Apache-2.0
"""In which order the places of a card's partitions are offered.

Pure. The scheduler takes the first device that fits (Kubernetes 1.37 is first-fit), so
the order decides how a card is cut up. A place comes earlier the fewer places of larger
profiles it spoils, the largest profile counting first: a 1g.10gb of an H100 goes to slice
6, where it spoils no 4g.40gb and no 2g.20gb, before it goes anywhere else. Of places that
spoil the same, the smallest profiles take the last and all others the first, so that the
two grow towards each other: partitions that are freed then leave fewer gaps. On a card of
four slices no other order refuses fewer requests that another placement could have met;
on larger cards no order is best for every sequence, and this one is good at keeping the
largest profiles.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Place(msgspec.Struct, frozen=True, order=True):
    """A place of a profile on the card, in memory slices."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """The slice after its last one."""
        return self.start + self.size

    def overlaps(self, other: Place) -> bool:
        """Whether both need a slice."""
        return self.start < other.end and other.start < self.end


class Profile(msgspec.Struct, frozen=True):
    """A profile with all its places on an empty card."""

    profile_id: int
    memory_mib: int
    slices: int
    places: tuple[Place, ...]


def ordered(profile: Profile, profiles: Sequence[Profile]) -> list[Place]:
    """Return the places of `profile`, that first which spoils least of `profiles` of the card."""
    larger = sorted(
        (each for each in profiles if _size(each) > _size(profile)), key=_size, reverse=True
    )

    least = min(place.size for each in profiles for place in each.places)

    def cost(place: Place) -> tuple[list[int], int]:
        spoiled = [sum(place.overlaps(other) for other in each.places) for each in larger]
        return spoiled, -place.start if place.size == least else place.start

    return sorted(profile.places, key=cost)


def _size(profile: Profile) -> tuple[int, int, int]:
    """Larger profiles first by what users count: memory, then compute slices."""
    return profile.memory_mib, profile.slices, -profile.profile_id
