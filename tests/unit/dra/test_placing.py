# SPDX-License-Identifier: Apache-2.0
"""The order of places, over all that can happen to a small card.

What is proved of a card of four slices: a first-fit scheduler that only allocates never
loses anything, and of all orders there are none refuses fewer requests over all sequences
of allocating and freeing. Of larger cards, where no order is best for every sequence, a
long random sequence shows what the order is for.
"""

from __future__ import annotations

import collections
import functools
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

import pytest

from gpudeck.dra import placing
from gpudeck.lab import machine

State = tuple[tuple[int, placing.Place], ...]
"""The partitions of a card: profile and place, sorted."""
Order = Mapping[int, Sequence[placing.Place]]


class Card:
    """A model of card and what can be done to it."""

    def __init__(self, name: str) -> None:
        (model, *_) = machine.load(name).models.values()
        assert model.mig is not None
        self.slices = model.mig.compute_slices
        self.profiles = {
            each.id: placing.Profile(
                profile_id=each.id,
                memory_mib=each.memory_mib,
                slices=each.slices,
                places=tuple(placing.Place(start, each.size) for start in each.starts),
            )
            for each in model.mig.profiles
            if "+" not in each.name
        }
        known = list(self.profiles.values())
        self.ours: Order = {each.profile_id: placing.ordered(each, known) for each in known}
        self.largest_part = max(
            (each for each in known if each.slices < self.slices), key=lambda each: each.slices
        )
        self.is_placeable = functools.cache(self._is_placeable)

    def fits(self, state: State, profile: int, place: placing.Place) -> bool:
        used = sum(self.profiles[each].slices for each, _ in state)
        return used + self.profiles[profile].slices <= self.slices and not any(
            place.overlaps(other) for _, other in state
        )

    def take(self, order: Order, state: State, profile: int) -> State | None:
        """What a first-fit scheduler makes of a request."""
        for place in order[profile]:
            if self.fits(state, profile, place):
                return tuple(sorted((*state, (profile, place))))
        return None

    def _is_placeable(self, wanted: tuple[int, ...], state: State = ()) -> bool:
        """Whether these profiles fit on the card together in any way at all."""
        if not wanted:
            return True
        first, *others = wanted
        return any(
            self._is_placeable(tuple(others), (*state, (first, place)))
            for place in self.profiles[first].places
            if self.fits(state, first, place)
        )

    def could_have(self, state: State, profile: int) -> bool:
        """Whether a request would fit if what is there had been placed otherwise."""
        return self.is_placeable(tuple(sorted([*(each for each, _ in state), profile])))

    def orders(self) -> Iterator[Order]:
        """Every order of the places of every profile."""
        each = [itertools.permutations(profile.places) for profile in self.profiles.values()]
        for chosen in itertools.product(*each):
            yield dict(zip(self.profiles, chosen, strict=True))

    def refused(self, order: Order, steps: int, *, frees: bool) -> int:
        """Over all sequences of so many steps: requests refused that another placement meets."""
        found, lost = collections.Counter[State]({(): 1}), 0
        for _ in range(steps):
            after = collections.Counter[State]()
            for state, times in found.items():
                for profile in self.profiles:
                    taken = self.take(order, state, profile)
                    if taken is not None:
                        after[taken] += times
                    elif self.could_have(state, profile):
                        lost += times
                for index in range(len(state) if frees else 0):
                    after[state[:index] + state[index + 1 :]] += times
            found = after
        return lost


@pytest.fixture(scope="module")
def small() -> Card:
    return Card("a30-x2")


def test_on_a_small_card_nothing_is_lost_while_partitions_are_only_allocated(small: Card) -> None:
    steps = small.slices + 1  # No sequence without a free is longer.
    assert small.refused(small.ours, steps, frees=False) == 0


def test_on_a_small_card_no_order_refuses_less_over_all_sequences_with_frees(small: Card) -> None:
    for steps in range(1, 9):
        least = min(small.refused(order, steps, frees=True) for order in small.orders())
        assert small.refused(small.ours, steps, frees=True) == least


def test_on_a_small_card_whatever_fits_is_given_and_never_twice(small: Card) -> None:
    seen: set[State] = set()
    ahead: list[State] = [()]
    while ahead:
        state = ahead.pop()
        if state in seen:
            continue
        seen.add(state)
        for (_, one), (_, other) in itertools.combinations(state, 2):
            assert not one.overlaps(other)
        for profile, known in small.profiles.items():
            taken = small.take(small.ours, state, profile)
            fits = any(small.fits(state, profile, place) for place in known.places)
            assert (taken is not None) == fits
            ahead += [taken] if taken else []
        ahead += [state[:index] + state[index + 1 :] for index in range(len(state))]
    assert len(seen) > 20


@pytest.mark.parametrize("name", ["h100-x8", "a100-40gb-x4", "b200-x8"])
def test_small_partitions_leave_the_largest_room_as_long_as_it_can_be(name: str) -> None:
    """Partitions of the smallest profile: three of them leave the half card, four cannot."""
    card = Card(name)
    smallest = min(card.profiles.values(), key=lambda each: (each.memory_mib, each.slices))
    half = card.largest_part
    state: State = ()
    for _ in range(card.slices - half.slices):
        taken = card.take(card.ours, state, smallest.profile_id)
        assert taken
        state = taken
        assert card.take(card.ours, state, half.profile_id)


@pytest.mark.parametrize("name", ["h100-x8", "a100-40gb-x4"])
def test_in_a_long_random_life_less_is_refused_than_from_the_first_slice_on(name: str) -> None:
    card = Card(name)
    ascending: Order = {each: sorted(known.places) for each, known in card.profiles.items()}
    ours, theirs = (random_life(card, order) for order in (card.ours, ascending))
    assert sum(ours.values()) < sum(theirs.values()) / 2
    half = card.largest_part.profile_id
    assert ours[half] < theirs[half] / 4


def random_life(card: Card, order: Order) -> collections.Counter[int]:
    """Refusals by profile of requests that another placement would have met."""
    chance = random.Random(1)
    state: State = ()
    refused: collections.Counter[int] = collections.Counter()
    for _ in range(5000):
        if state and chance.random() < 0.5:
            index = chance.randrange(len(state))
            state = state[:index] + state[index + 1 :]
            continue
        profile = chance.choice(sorted(card.profiles))
        taken = card.take(order, state, profile)
        if taken is not None:
            state = taken
        elif card.could_have(state, profile):
            refused[profile] += 1
    return refused
