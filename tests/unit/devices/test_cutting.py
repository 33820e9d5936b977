# SPDX-License-Identifier: Apache-2.0
"""How many partitions fit is what trying everything finds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from gpudeck.devices import cutting
from gpudeck.devices.cutting import DECODERS, OFA, Model, Place, Profile

ONE, ONE_MEDIA, TWO, FOUR = 14, 21, 5, 0
SMALL = Model(
    4,
    (
        Profile(ONE, "1g.6gb", 6144, 1, ((DECODERS, 1),), tuple(Place(at, 1) for at in range(4))),
        Profile(
            ONE_MEDIA, "1g.6gb+me", 6144, 1, ((DECODERS, 1), (OFA, 1)),
            tuple(Place(at, 1) for at in range(4)),
        ),
        Profile(TWO, "2g.12gb", 12288, 2, ((DECODERS, 2),), (Place(0, 2), Place(2, 2))),
        Profile(FOUR, "4g.24gb", 24576, 4, ((DECODERS, 4), (OFA, 1)), (Place(0, 4),)),
    ),
)  # fmt: skip
"""A card of four slices, of which one partition alone can have the optical flow engine."""
WIDE = Model(
    7,
    (
        Profile(19, "1g.10gb", 9984, 1, places=tuple(Place(at, 1) for at in range(7))),
        Profile(15, "1g.20gb", 20096, 1, places=tuple(Place(at, 2) for at in (0, 2, 4, 6))),
        Profile(9, "3g.40gb", 40448, 3, places=(Place(0, 4), Place(4, 4))),
        Profile(5, "4g.40gb", 40448, 4, places=(Place(0, 4),)),
    ),
)
"""Seven compute slices over eight memory slices."""
Chosen = tuple[tuple[int, int], ...]


def sets(model: Model, profile_ids: frozenset[int]) -> Iterator[Chosen]:
    """Every set of partitions of the profiles that the counters of a card admit."""
    options = [
        (each, place)
        for each in model.profiles
        if each.profile_id in profile_ids
        for place in each.places
    ]
    most = cutting.totals(model)
    for size in range(len(options) + 1):
        found = False
        for chosen in itertools.combinations(options, size):
            used: dict[str, int] = {}
            for profile, place in chosen:
                for name, count in cutting.needs(profile, place).items():
                    used[name] = used.get(name, 0) + count
            if all(count <= most[name] for name, count in used.items()):
                found = True
                yield tuple((profile.profile_id, place.start) for profile, place in chosen)
        if not found:
            return


def every(model: Model) -> frozenset[int]:
    return frozenset(each.profile_id for each in model.profiles)


@pytest.mark.parametrize("model", [SMALL, WIDE], ids=["small", "wide"])
def test_the_most_that_fit_beside_what_is_held_is_what_trying_everything_finds(
    model: Model,
) -> None:
    valid = {frozenset(each) for each in sets(model, every(model))}
    for ids in map(frozenset, powerset(every(model))):
        wanted = [each for each in valid if {number for number, _ in each} <= ids]
        for held in valid:
            best = max(len(each) for each in wanted if not each & held and (each | held) in valid)
            assert cutting.most(model, ids, cutting.room(model, held)) == best


def powerset(ids: frozenset[int]) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(
        itertools.combinations(sorted(ids), size) for size in range(len(ids) + 1)
    )


def test_engines_limit_what_slices_would_admit() -> None:
    empty = cutting.room(SMALL, frozenset())
    assert cutting.most(SMALL, frozenset({ONE}), empty) == 4
    assert cutting.most(SMALL, frozenset({ONE_MEDIA}), empty) == 1
    taken = cutting.room(SMALL, frozenset({(ONE_MEDIA, 3)}))
    assert cutting.most(SMALL, frozenset({ONE_MEDIA}), taken) == 0
    assert cutting.most(SMALL, frozenset({ONE, TWO}), taken) == 3


def test_a_partition_of_an_unknown_profile_takes_nothing() -> None:
    assert cutting.room(SMALL, frozenset({(99, 0)})) == cutting.room(SMALL, frozenset())


def test_a_card_without_profiles_holds_nothing() -> None:
    bare = Model(0, ())
    assert cutting.most(bare, frozenset(), cutting.room(bare, frozenset())) == 0
