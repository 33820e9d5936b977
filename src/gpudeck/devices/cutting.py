# SPDX-License-Identifier: Apache-2.0
"""Which partitions a card can hold at the same time.

Pure. A card has memory slices, compute slices and engines; each partition needs some of
them, and where it lies decides which memory slices. All figures are the driver's. The DRA
plugin publishes them as counters, from which the scheduler decides; the controller counts
with them how many partitions could still be had. Neither keeps a table of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable

import msgspec

SLICES = "slices"
"""Counter of compute slices."""
COPY, DECODERS, ENCODERS = "copy-engines", "decoders", "encoders"
JPEG, OFA = "jpeg-engines", "ofa-engines"
_MEMORY = "memory-slice-"


class Place(msgspec.Struct, frozen=True, order=True):
    """Where on an empty card a partition may lie, in memory slices."""

    start: int
    size: int

    @property
    def bits(self) -> int:
        """The memory slices as a bit mask."""
        return ((1 << self.size) - 1) << self.start


class Profile(msgspec.Struct, frozen=True):
    """A kind of partition."""

    profile_id: int
    name: str
    memory_mib: int
    slices: int
    engines: tuple[tuple[str, int], ...] = ()
    """Counts above zero, by the names of the counters."""
    places: tuple[Place, ...] = ()


class Model(msgspec.Struct, frozen=True, cache_hash=True):
    """How cards of one model can be cut up; equal models are one."""

    total_slices: int
    profiles: tuple[Profile, ...]


class Room(msgspec.Struct, frozen=True):
    """What is left of a card."""

    memory: int
    """Free memory slices as a bit mask."""
    rest: tuple[int, ...]
    """Free compute slices, then free engines in the order of their names."""


def totals(model: Model) -> dict[str, int]:
    """Return all that a card has, by the name of the counter."""
    ends = [place.start + place.size for each in model.profiles for place in each.places]
    found = {f"{_MEMORY}{index}": 1 for index in range(max(ends, default=1))}
    return found | _rest(model)


def needs(profile: Profile, place: Place) -> dict[str, int]:
    """Return what a partition needs of a card, by the name of the counter."""
    found = {f"{_MEMORY}{place.start + index}": 1 for index in range(place.size)}
    return found | {SLICES: profile.slices} | dict(profile.engines)


def _rest(model: Model) -> dict[str, int]:
    """All but memory: of engines as many as the profile with the most of them needs."""
    engines: dict[str, int] = {}
    for profile in model.profiles:
        for name, count in profile.engines:
            engines[name] = max(engines.get(name, 0), count)
    return {SLICES: max(model.total_slices, 1)} | dict(sorted(engines.items()))


@functools.lru_cache(maxsize=4096)
def room(model: Model, taken: frozenset[tuple[int, int]]) -> Room:
    """Return what partitions leave of a card, each given by the profile's number and its start.

    One that the model does not know takes nothing.
    """
    known = {each.profile_id: each for each in model.profiles}
    ends = [place.start + place.size for each in model.profiles for place in each.places]
    memory, rest = (1 << max(ends, default=1)) - 1, _rest(model)
    for profile_id, start in taken:
        profile = known.get(profile_id)
        if profile is None:
            continue
        for place in profile.places:
            if place.start == start:
                memory &= ~place.bits
        for name, count in ((SLICES, profile.slices), *profile.engines):
            rest[name] = max(rest[name] - count, 0)
    return Room(memory, tuple(rest.values()))


@functools.lru_cache(maxsize=4096)
def most(model: Model, profile_ids: frozenset[int], left: Room) -> int:
    """Return how many more partitions of any of these profiles fit, placed as well as can be.

    A card has a few hundred states at most, so each is worked out once.
    """
    names = list(_rest(model))
    options = sorted(_options(model, profile_ids, left, names))
    return _most(options, left.rest)


_Option = tuple[int, int, tuple[int, ...]]
"""Start, end and what else it needs."""


def _options(
    model: Model, profile_ids: Collection[int], left: Room, names: Iterable[str]
) -> set[_Option]:
    found = set()
    for profile in model.profiles:
        if profile.profile_id not in profile_ids:
            continue
        counts = {SLICES: profile.slices} | dict(profile.engines)
        needed = tuple(counts.get(name, 0) for name in names)
        for place in profile.places:
            if place.bits & left.memory == place.bits:
                found.add((place.start, place.start + place.size, needed))
    return found


def _most(options: list[_Option], left: tuple[int, ...]) -> int:
    """The most of `options`, which are sorted, that fit side by side."""
    known: dict[tuple[int, int, tuple[int, ...]], int] = {}

    def count(index: int, free: int, rest: tuple[int, ...]) -> int:
        while index < len(options) and options[index][0] < free:
            index += 1
        if index == len(options):
            return 0
        key = (index, free, rest)
        if key not in known:
            _, end, needed = options[index]
            best = count(index + 1, free, rest)
            after = tuple(has - needs for has, needs in zip(rest, needed, strict=True))
            if min(after) >= 0:
                best = max(best, 1 + count(index + 1, end, after))
            known[key] = best
        return known[key]

    return count(0, 0, left)
