# SPDX-License-Identifier: Apache-2.0
"""Where the partitions that a card is to have can lie, so that most of those there can stay.

Pure. Places and needs are the driver's (`devices.cutting` counts with them), no table is
ours. The search is exact: a card holds a dozen partitions at most, so each choice of what
stays is tried, the one that keeps most first. What is new is placed where it spoils least
for larger partitions, as the driver itself would place it.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpudeck.devices import cutting
from gpudeck.vendors import contract

_ENGINES = {
    cutting.COPY: "copy_engines",
    cutting.DECODERS: "decoders",
    cutting.ENCODERS: "encoders",
    cutting.JPEG: "jpeg_engines",
    cutting.OFA: "ofa_engines",
}


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

    @property
    def bits(self) -> int:
        """Its memory slices as a bit mask."""
        return cutting.Place(self.start, self.size).bits


def model(card: contract.CardReading) -> cutting.Model:
    """How a card can be cut up, from what its driver tells."""
    return cutting.Model(card.total_slices, tuple(map(_profile, card.profiles)))


def _profile(found: contract.PartitionProfile) -> cutting.Profile:
    counts = {name: getattr(found, field) for name, field in _ENGINES.items()}
    return cutting.Profile(
        profile_id=found.profile_id,
        name=found.name,
        memory_mib=found.memory_mib,
        slices=found.slices,
        engines=tuple((name, count) for name, count in counts.items() if count),
        places=tuple(cutting.Place(each.start, each.size) for each in found.placements),
    )


def place(
    card: contract.CardReading,
    wanted: Mapping[int, int],
    present: Sequence[Instance] = (),
    *,
    held: frozenset[Instance] = frozenset(),
) -> tuple[Instance, ...] | None:
    """Return where `wanted` (counts by profile id) lie; None where they do not fit.

    Of those `present` as many stay where they are as can, of those `held` by somebody
    first. `present` do not overlap, and are of profiles that the card has.
    """
    if not _has_enough(card, wanted):
        return None
    useful = [each for each in present if wanted.get(each.profile_id, 0)]
    how = model(card)
    for kept in _choices(useful, wanted, held):
        missing = Counter(wanted)
        missing.subtract(each.profile_id for each in kept)
        taken = functools.reduce(lambda mask, each: mask | each.bits, kept, 0)
        placed = _fill(how, missing, taken)
        if placed is not None:
            return tuple(sorted((*kept, *placed)))
    return None


def _has_enough(card: contract.CardReading, wanted: Mapping[int, int]) -> bool:
    """Whether compute slices and engines suffice, wherever the partitions lie."""
    needed: Counter[str] = Counter()
    totals = Counter({cutting.SLICES: card.total_slices})
    for profile in card.profiles:
        count = wanted.get(profile.profile_id, 0)
        if count > profile.max_instances:
            return False
        needed[cutting.SLICES] += profile.slices * count
        for name, field in _ENGINES.items():
            each = getattr(profile, field)
            needed[name] += each * count
            # No call tells how many engines a card has, but the driver promises so many
            # partitions of each profile with theirs.
            totals[name] = max(totals[name], each * profile.max_instances)
    return all(amount <= totals[name] for name, amount in needed.items())


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


def _fill(card: cutting.Model, missing: Mapping[int, int], taken: int) -> list[Instance] | None:
    """Place what is missing beside what is taken; large ones first, for they have few places."""
    known = {each.profile_id: each for each in card.profiles}
    largest = sorted(
        missing, key=lambda each: (-max((p.size for p in known[each].places), default=0), each)
    )
    order = [profile_id for profile_id in largest for _ in range(missing[profile_id])]
    spoiled = _spoiled(card)
    hopeless: set[tuple[int, int]] = set()

    def fill(index: int, taken: int) -> list[Instance] | None:
        if index == len(order):
            return []
        if (index, taken) in hopeless:
            return None
        profile = known[order[index]]
        for each in sorted(profile.places, key=lambda one: (spoiled[one], -one.start)):
            if each.bits & taken:
                continue
            rest = fill(index + 1, taken | each.bits)
            if rest is not None:
                made = Instance(each.start, each.size, profile.profile_id, profile.name)
                return [made, *rest]
        hopeless.add((index, taken))
        return None

    return fill(0, taken)


@functools.lru_cache(maxsize=64)
def _spoiled(card: cutting.Model) -> dict[cutting.Place, int]:
    """For each place, how many places of the card's profiles it takes away."""
    places = [place for profile in card.profiles for place in profile.places]
    return {one: sum(bool(one.bits & other.bits) for other in places) for one in set(places)}
