# SPDX-License-Identifier: Apache-2.0
"""Where partitions are placed is judged by trying every way to lay out a card."""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.unit.mig import cards

from gpudeck.devices import cutting
from gpudeck.mig import placing
from gpudeck.mig.placing import Instance

Layout = tuple[Instance, ...]


@functools.cache
def how(name: str) -> placing.Card:
    return placing.card(cards.reading(name))


@functools.cache
def model(name: str) -> cutting.Model:
    """The card for the judge, which counts as the DRA plugin has the scheduler count."""
    return cutting.Model(
        cards.reading(name).total_slices,
        tuple(
            cutting.Profile(
                profile_id=each.profile_id,
                name=each.name,
                memory_mib=each.memory_mib,
                slices=each.slices,
                engines=(
                    (cutting.COPY, each.copy_engines),
                    (cutting.DECODERS, each.decoders),
                    (cutting.JPEG, each.jpeg_engines),
                    (cutting.OFA, each.ofa_engines),
                ),
                places=tuple(cutting.Place(one.start, one.size) for one in each.placements),
            )
            for each in cards.profiles(name)
        ),
    )


@functools.cache
def layouts(name: str) -> tuple[Layout, ...]:
    """Every set of partitions that a card can hold, found by growing sets one by one."""
    card = model(name)
    totals = cutting.totals(card)
    every = [
        (Instance(each.start, each.size, profile.profile_id, profile.name), profile)
        for profile in card.profiles
        for each in profile.places
    ]

    def grow(start: int, taken: Layout, used: Counter[str]) -> Iterator[Layout]:
        yield tuple(sorted(taken))
        for index in range(start, len(every)):
            one, profile = every[index]
            place = cutting.Place(one.start, one.size)
            after = used + Counter(cutting.needs(profile, place))
            if all(count <= totals[counter] for counter, count in after.items()):
                yield from grow(index + 1, (*taken, one), after)

    return tuple(grow(0, (), Counter()))


@functools.cache
def by_counts(name: str) -> dict[tuple[tuple[int, int], ...], list[Layout]]:
    found: dict[tuple[tuple[int, int], ...], list[Layout]] = {}
    for layout in layouts(name):
        counts = Counter(each.profile_id for each in layout)
        found.setdefault(tuple(sorted(counts.items())), []).append(layout)
    return found


def check(name: str, wanted: dict[int, int], present: Layout, held: frozenset[Instance]) -> None:
    """Compare with the best of all layouts that have the wanted counts."""
    possible = by_counts(name).get(tuple(sorted(wanted.items())), [])
    placed = placing.place(how(name), wanted, present, held=held)
    if not possible:
        assert placed is None
        return
    assert placed in possible

    def worth(layout: Layout) -> tuple[int, int]:
        kept = set(layout) & set(present)
        return len(kept & held), len(kept)

    assert worth(placed) == max(map(worth, possible))


def all_wanted(name: str) -> Iterator[dict[int, int]]:
    """Counts up to one more than a card holds of a profile, of up to three profiles."""
    profiles = model(name).profiles
    most = {
        each.profile_id: max(dict(counts).get(each.profile_id, 0) for counts in by_counts(name))
        for each in profiles
    }
    for size in range(4):
        for chosen in itertools.combinations(sorted(most), size):
            ranges = [range(1, most[each] + 2) for each in chosen]
            for counts in itertools.product(*ranges):
                yield dict(zip(chosen, counts, strict=True))


def test_on_a_card_of_four_slices_every_change_keeps_all_that_can_be_kept() -> None:
    name = "a30-x2"
    for wanted in all_wanted(name):
        for present in layouts(name):
            check(name, wanted, present, frozenset())


def test_what_is_held_stays_before_what_is_not() -> None:
    name, chance = "a30-x2", random.Random(5)
    for wanted in by_counts(name):
        for present in layouts(name):
            held = frozenset(each for each in present if chance.random() < 0.5)
            check(name, dict(wanted), present, held)


@pytest.mark.parametrize("name", ["a100-40gb-x4", "h100-x8"])
def test_on_a_card_of_seven_slices_changes_taken_at_random_keep_all_that_can_be_kept(
    name: str,
) -> None:
    chance = random.Random(7)
    possible = [dict(each) for each in by_counts(name)]
    for wanted in [*possible * 12, *chance.sample(list(all_wanted(name)), 500)]:
        present = chance.choice(layouts(name))
        held = frozenset(each for each in present if chance.random() < 0.3)
        check(name, wanted, present, held)


def test_every_layout_of_a_card_of_seven_slices_is_reached_from_an_empty_card() -> None:
    for counts in by_counts("a100-40gb-x4"):
        check("a100-40gb-x4", dict(counts), (), frozenset())


def test_what_is_new_lies_where_it_spoils_least() -> None:
    card = cards.reading("a100-40gb-x4")
    ids = {each.name: each.profile_id for each in card.profiles}
    for profile, start in (("3g.20gb", 4), ("1g.5gb", 6)):
        placed = placing.place(placing.card(card), {ids[profile]: 1})
        assert placed is not None
        assert [each.start for each in placed] == [start]
