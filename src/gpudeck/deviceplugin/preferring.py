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
from collections.abc import Callable, Mapping, Sequence

from gpudeck import errors
from gpudeck.deviceplugin import offering
from gpudeck.errors import InvalidError
from gpudeck.pluginconfig import model

Score = Callable[[str, str], int]
"""How well two cards, by id, are connected; symmetric."""

_WEIGHTS = {model.AllocationPolicy.DISTRIBUTED: 1, model.AllocationPolicy.PACKED: -1}
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
    return _Search(available, required, size, score).best()


class _Search:
    """Looks at every set that differs from all others by more than an exchange of equals.

    Cards are numbers in the order of `available`. A set is worth its pairs' scores, then (to
    leave a well connected rest) little connection of its cards to all, then being early in order:
    of sets of one size the bits, first card highest, compare as the ordered lists do.
    """

    def __init__(
        self, available: Sequence[str], required: Sequence[str], size: int, score: Score
    ) -> None:
        self._cards = available
        count = len(available)
        self._scores = [
            [score(one, other) if one != other else 0 for other in available] for one in available
        ]
        self._degrees = [sum(row) for row in self._scores]
        self._bits = [1 << (count - 1 - number) for number in range(count)]
        fixed = set(required)
        self._fixed = [number for number in range(count) if available[number] in fixed]
        self._size = size
        self._kinds = [
            [number for number in kind if available[number] not in fixed]
            for kind in _kinds(self._scores)
        ]
        self._best = (-1, 0, 0)

    def best(self) -> list[str]:
        """The best set, in order."""
        pairs = sum(
            self._scores[one][other] for one, other in itertools.combinations(self._fixed, 2)
        )
        degrees = sum(self._degrees[each] for each in self._fixed)
        bits = sum(self._bits[each] for each in self._fixed)
        self._take(0, list(self._fixed), (pairs, -degrees, bits))
        return [
            card for card, bit in zip(self._cards, self._bits, strict=True) if self._best[2] & bit
        ]

    def _take(self, kind: int, chosen: list[int], value: tuple[int, int, int]) -> None:
        """Take none, one, two … of a kind, and go on with the next."""
        missing = self._size - len(chosen)
        if not missing:
            self._best = max(self._best, value)
            return
        if kind == len(self._kinds):
            return
        room = sum(len(each) for each in self._kinds[kind + 1 :])
        start = len(chosen)
        pairs, degrees, bits = value
        for count in range(min(missing, len(self._kinds[kind])) + 1):
            if count:
                card = self._kinds[kind][count - 1]
                row = self._scores[card]
                pairs += sum([row[each] for each in chosen])
                degrees -= self._degrees[card]
                bits += self._bits[card]
                chosen.append(card)
            if missing - count <= room:
                self._take(kind + 1, chosen, (pairs, degrees, bits))
        del chosen[start:]


def _kinds(scores: Sequence[Sequence[int]]) -> list[list[int]]:
    """Groups of cards that every other card is connected to in the same way.

    Being so is transitive: whether two cards belong together can be asked of any of a group.
    """
    kinds: list[list[int]] = []
    for card, row in enumerate(scores):
        for kind in kinds:
            other = kind[0]
            if all(
                row[each] == scores[other][each]
                for each in range(len(scores))
                if each not in (card, other)
            ):
                kind.append(card)
                break
        else:
            kinds.append([card])
    return kinds


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
    weight, burdens = _WEIGHTS[policy], _burdens(available, units, policy)
    order = {unit: number for number, unit in enumerate(burdens)}
    taken = Counter(units.get(each, each) for each in required)
    chosen = list(required)
    while len(chosen) < size:
        candidates = [unit for unit, left in free.items() if left]
        unit = min(
            candidates,
            key=lambda each: (
                burdens[each] + weight * taken[each],
                weight * taken[each],
                order[each],
            ),
        )
        chosen.append(free[unit].pop(0))
        taken[unit] += 1
    return chosen


def together(
    available: Sequence[str],
    required: Sequence[str],
    size: int,
    *,
    units: Mapping[str, str],
    policy: model.AllocationPolicy,
) -> list[str]:
    """As `balanced`, but all of one unit where one has enough: a container has one MPS daemon."""
    burdens = _burdens(available, units, policy)
    for unit in sorted(burdens, key=burdens.__getitem__):
        of_unit = [each for each in available if units.get(each, each) == unit]
        if len(of_unit) >= size and set(required) <= set(of_unit):
            available = of_unit
            break
    return balanced(available, required, size, units=units, policy=policy)


def _burdens(
    available: Sequence[str], units: Mapping[str, str], policy: model.AllocationPolicy
) -> dict[str, int]:
    """What each unit has given, so weighed that the least is to give next; in order."""
    whole, free = Counter(units.values()), Counter(units.get(each, each) for each in available)
    return {unit: _WEIGHTS[policy] * (whole[unit] - left) for unit, left in free.items()}


def is_whole(resource: offering.Resource) -> bool:
    """Whether the devices of a resource are cards, each offered once."""
    return resource.strategy is None and all(
        each.unit.partition is None for each in resource.devices
    )


def _refusal(field: str, value: object, allowed: str) -> InvalidError:
    return errors.not_valid(field, value, allowed, reason="PreferenceInvalid")
