# SPDX-License-Identifier: Apache-2.0
"""Where the partitions that a card is to have can lie, so that most of those there can stay.

Pure. Places and needs are the driver's, no table is ours. The search is exact: a card
holds a dozen partitions at most, so each choice of what stays is tried, the one that
keeps most first. What is new is placed where it spoils least for larger partitions, as
the driver itself would place it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpudeck.vendors import contract

_SLICES = "slices"
_ENGINES = ("copy_engines", "decoders", "encoders", "jpeg_engines", "ofa_engines")
"""Of a profile, as `contract.PartitionProfile` names them."""


class Instance(msgspec.Struct, frozen=True, order=True):
    """A partition of a card, there or wanted, by what decides whether others fit beside it."""

    start: int
    size: int
    profile_id: int
    profile: str

    @property
    def placement(self) -> contract.Placement:
        """Where it lies."""
        return contract.Placement(start=self.start, size=self.size)


class Card(msgspec.Struct, frozen=True):
    """How a card can be cut up, worked out once from what its driver tells."""

    profiles: Mapping[int, contract.PartitionProfile]
    """By id."""
    totals: Mapping[str, int]
    """Compute slices and engines that the card has."""
    spoiled: Mapping[contract.Placement, int]
    """For each place, how many places of all profiles it takes away."""


def card(reading: contract.CardReading) -> Card:
    """Return how a card can be cut up."""
    totals = {_SLICES: reading.total_slices}
    for profile in reading.profiles:
        for engine in _ENGINES:
            # No call tells how many engines a card has, but the driver promises so many
            # partitions of each profile with theirs.
            promised = getattr(profile, engine) * profile.max_instances
            totals[engine] = max(totals.get(engine, 0), promised)
    places = [each for profile in reading.profiles for each in profile.placements]
    return Card(
        profiles={each.profile_id: each for each in reading.profiles},
        totals=totals,
        spoiled={
            one: sum(bool(_bits(one) & _bits(other)) for other in places) for one in set(places)
        },
    )


def place(
    how: Card,
    wanted: Mapping[int, int],
    present: Sequence[Instance] = (),
    *,
    held: frozenset[Instance] = frozenset(),
) -> tuple[Instance, ...] | None:
    """Return where `wanted` (counts by profile id) lie; None where they do not fit.

    Of those `present` as many stay where they are as can, of those `held` by somebody
    first. `present` do not overlap, and are of profiles that the card has.
    """
    if not _has_enough(how, wanted):
        return None
    useful = [each for each in present if wanted.get(each.profile_id, 0)]
    for kept in _choices(useful, wanted, held):
        missing = Counter(wanted)
        missing.subtract(each.profile_id for each in kept)
        placed = _fill(how, missing, sum(_bits(each.placement) for each in kept))
        if placed is not None:
            return tuple(sorted((*kept, *placed)))
    return None


def _has_enough(how: Card, wanted: Mapping[int, int]) -> bool:
    """Whether compute slices and engines suffice, wherever the partitions lie."""
    needed: Counter[str] = Counter()
    for profile_id, count in wanted.items():
        profile = how.profiles[profile_id]
        if count > profile.max_instances:
            return False
        for name in (_SLICES, *_ENGINES):
            needed[name] += getattr(profile, name) * count
    return all(amount <= how.totals[name] for name, amount in needed.items())


def _bits(place: contract.Placement) -> int:
    """Memory slices as a bit mask."""
    return ((1 << place.size) - 1) << place.start


def _choices(
    present: Sequence[Instance], wanted: Mapping[int, int], held: frozenset[Instance]
) -> Iterator[tuple[Instance, ...]]:
    """What may stay: no more of a profile than wanted, most of those held first, then most."""
    found = []
    for count in range(len(present), -1, -1):
        for kept in itertools.combinations(present, count):
            counts = Counter(each.profile_id for each in kept)
            if all(number <= wanted[profile_id] for profile_id, number in counts.items()):
                found.append(kept)
    # The sort is stable: those that keep most stay in front.
    yield from sorted(found, key=lambda kept: -len(held.intersection(kept)))


def _fill(how: Card, missing: Mapping[int, int], taken: int) -> list[Instance] | None:
    """Place what is missing beside what is taken; large ones first, for they have few places."""
    order = sorted(
        (how.profiles[each] for each, count in missing.items() for _ in range(count)),
        key=lambda each: (-max((one.size for one in each.placements), default=0), each.profile_id),
    )
    hopeless: set[tuple[int, int]] = set()

    def fill(index: int, taken: int) -> list[Instance] | None:
        if index == len(order):
            return []
        if (index, taken) in hopeless:
            return None
        profile = order[index]
        free = [each for each in profile.placements if not _bits(each) & taken]
        for each in sorted(free, key=lambda one: (how.spoiled[one], -one.start)):
            rest = fill(index + 1, taken | _bits(each))
            if rest is not None:
                made = Instance(each.start, each.size, profile.profile_id, profile.name)
                return [made, *rest]
        hopeless.add((index, taken))
        return None

    return fill(0, taken)
