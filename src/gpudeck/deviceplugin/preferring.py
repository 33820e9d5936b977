# SPDX-License-Identifier: Apache-2.0
"""Which devices of those that are free a container should get.

Pure. Whole cards: the set whose pairs are best connected (`topology`), and among equals
the one that leaves the best connected rest, then the first in order. The answer is
exact. Cards that all others see alike are interchangeable, so the search counts how
many of each such kind are taken instead of which: on boards with switches, where it
would be largest, a few steps remain. Replicas and partitions: from the unit that has
given the fewest (distributed) or the most (packed).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpudeck.deviceplugin import offering
from gpudeck.errors import InvalidError
from gpudeck.pluginconfig import model

Score = Callable[[str, str], int]
"""How well two cards, by id, are connected; symmetric."""

EXACT_CARDS = 16
"""Beyond it a set is grown card by card: some 10,000 sets are the most that is looked at."""


def check(available: Sequence[str], required: Sequence[str], size: int) -> None:
    """Raise InvalidError unless `size` devices can be chosen so."""
    missing = [each for each in required if each not in set(available)]
    if missing:
        raise _refusal("must_include_deviceIDs", missing[0], "devices that are available")
    if not len(required) <= size <= len(available):
        allowed = f"{len(required)} to {len(available)}"
        raise _refusal("allocation_size", size, allowed)


def best_connected(
    available: Sequence[str], required: Sequence[str], size: int, score: Score
) -> list[str]:
    """The best set of whole cards, in the order of `available`."""
    check(available, required, size)
    if size == len(available):
        return list(available)
    if len(available) > EXACT_CARDS:
        return _grown(available, required, size, score)
    kinds = _kinds(available, score)
    best: tuple[tuple[int, int], list[str]] | None = None
    for chosen in _choices(kinds, set(required), size):
        taken = set(chosen)
        rest = [each for each in available if each not in taken]
        value = (_total(chosen, score), _total(rest, score))
        ordered = [each for each in available if each in taken]
        if best is None or value > best[0] or (value == best[0] and _first(ordered, best[1])):
            best = (value, ordered)
    return best[1] if best is not None else []


def _first(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    return list(ours) < list(theirs)


def _kinds(cards: Sequence[str], score: Score) -> list[list[str]]:
    """Groups of cards that every other card is connected to in the same way.

    Being so is transitive: whether two cards belong together can be asked of any of a group.
    """
    kinds: list[list[str]] = []
    for card in cards:
        for kind in kinds:
            other = kind[0]
            if all(
                score(card, each) == score(other, each)
                for each in cards
                if each not in (card, other)
            ):
                kind.append(card)
                break
        else:
            kinds.append([card])
    return kinds


def _choices(kinds: Sequence[Sequence[str]], required: set[str], size: int) -> Iterator[list[str]]:
    """Every set of `size` cards that differs from all others by more than an exchange of equals."""
    needed = [[card for card in kind if card in required] for kind in kinds]
    free = [[card for card in kind if card not in required] for kind in kinds]
    left = size - sum(len(each) for each in needed)
    fixed = [card for each in needed for card in each]
    for counts in _counts([len(each) for each in free], left):
        picked = itertools.chain.from_iterable(
            each[:count] for each, count in zip(free, counts, strict=True)
        )
        yield [*fixed, *picked]


def _counts(limits: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """Every way to make `total` of one number for each limit, larger ones first."""
    if not limits:
        if total == 0:
            yield ()
        return
    room = sum(limits[1:])
    for count in range(min(limits[0], total), max(0, total - room) - 1, -1):
        for rest in _counts(limits[1:], total - count):
            yield (count, *rest)


def _total(cards: Sequence[str], score: Score) -> int:
    return sum(score(one, other) for one, other in itertools.combinations(cards, 2))


def _grown(available: Sequence[str], required: Sequence[str], size: int, score: Score) -> list[str]:
    chosen = list(required)
    while len(chosen) < size:
        left = [each for each in available if each not in chosen]
        gains = [sum(score(each, other) for other in chosen) for each in left]
        chosen.append(left[gains.index(max(gains))])
    return [each for each in available if each in set(chosen)]


def balanced(
    available: Sequence[str],
    required: Sequence[str],
    size: int,
    *,
    units: Mapping[str, str],
    policy: model.AllocationPolicy,
) -> list[str]:
    """Devices of shared units, or partitions of cards.

    `units` names, for every device of the resource, what it is a part of: a unit gives what of
    it is not available. A second device comes from another unit if it can (distributed).
    """
    check(available, required, size)
    free: dict[str, list[str]] = {}
    for each in available:
        if each not in set(required):
            free.setdefault(units.get(each, each), []).append(each)
    of_unit = Counter(units.values())
    free_of_unit = Counter(units.get(each, each) for each in available)
    given = {unit: of_unit[unit] - free_of_unit[unit] for unit in free_of_unit}
    taken = Counter(units.get(each, each) for each in required)
    chosen = list(required)
    order = {unit: number for number, unit in enumerate(free_of_unit)}
    sign = 1 if policy is model.AllocationPolicy.DISTRIBUTED else -1
    while len(chosen) < size:
        candidates = [unit for unit, left in free.items() if left]
        unit = min(
            candidates,
            key=lambda each: (sign * (given[each] + taken[each]), sign * taken[each], order[each]),
        )
        chosen.append(free[unit].pop(0))
        taken[unit] += 1
    return chosen


def is_whole(resource: offering.Resource) -> bool:
    """Whether the devices of a resource are cards, each offered once."""
    return resource.strategy is None and all(
        each.unit.partition is None for each in resource.devices
    )


def _refusal(field: str, value: object, allowed: str) -> InvalidError:
    return InvalidError(
        f"{field}: {value!r} is not valid; allowed: {allowed}",
        reason="PreferenceInvalid",
        field=field,
        allowed=allowed,
    )
