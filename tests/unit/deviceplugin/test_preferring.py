# SPDX-License-Identifier: Apache-2.0
"""Which devices a container should get, against a search through all sets."""

import itertools
import random

import pytest
from tests.unit.deviceplugin.nodes import card, offer

from gpudeck.deviceplugin import preferring, topology
from gpudeck.errors import InvalidError
from gpudeck.pluginconfig.model import AllocationPolicy
from gpudeck.vendors import contract


def brute_force(
    available: list[str], required: list[str], size: int, score: preferring.Score
) -> list[str]:
    """The best of every set there is."""

    def total(cards: list[str]) -> int:
        return sum(score(one, other) for one, other in itertools.combinations(cards, 2))

    best: tuple[tuple[int, int], list[str]] | None = None
    for chosen in map(list, itertools.combinations(available, size)):
        if not set(required) <= set(chosen):
            continue
        value = (total(chosen), total([each for each in available if each not in chosen]))
        if best is None or value > best[0] or (value == best[0] and chosen < best[1]):
            best = (value, chosen)
    assert best is not None
    return best[1]


def board(kind: str, count: int, seed: int) -> preferring.Score:
    """Connections of a made-up board."""
    chance = random.Random(seed)
    table = {
        frozenset(pair): chance.choice([10, 20, 40, 110, 210])
        for pair in itertools.combinations(range(count), 2)
    }

    def score(one: str, other: str) -> int:
        a, b = int(one), int(other)
        if kind == "random":
            return table[frozenset((a, b))]
        if kind == "switched":
            return 1820 if a // (count // 2 or 1) == b // (count // 2 or 1) else 1810
        near = 20 if a // 4 == b // 4 else 10
        return near + (100 if (a ^ b).bit_count() == 1 else 0)  # A cube.

    return score


@pytest.mark.parametrize("kind", ["random", "switched", "cube"])
@pytest.mark.parametrize("count", [1, 2, 4, 7, 8])
def test_the_set_is_the_best_of_all(kind: str, count: int) -> None:
    available = [f"{number:02d}" for number in range(count)]
    chance = random.Random(count)
    for seed, size in itertools.product(range(3), range(1, count + 1)):
        score = board(kind, count, seed)
        required = sorted(chance.sample(available, chance.randint(0, size)))
        expected = brute_force(available, required, size, score)
        assert preferring.best_connected(available, required, size, score) == expected


@pytest.mark.parametrize("kind", ["random", "switched", "cube"])
def test_sixteen_cards_are_still_searched_through(kind: str) -> None:
    available = [f"{number:02d}" for number in range(16)]
    score = board(kind, 16, 1)
    for size, required in ((2, []), (4, ["03"]), (12, ["00", "15"])):
        expected = brute_force(available, required, size, score)
        assert preferring.best_connected(available, required, size, score) == expected


def test_with_equal_cards_few_sets_are_looked_at() -> None:
    calls = 0
    plain = board("switched", 16, 0)

    def score(one: str, other: str) -> int:
        nonlocal calls
        calls += 1
        return plain(one, other)

    available = [f"{number:02d}" for number in range(16)]
    assert preferring.best_connected(available, [], 8, score) == available[:8]
    assert calls < 5_000


def test_two_linked_cards_come_before_two_of_one_root() -> None:
    found = offer(
        "",
        card(0, numa_node=0),
        card(1, numa_node=0, links=(contract.Link(peer="0000:04:00.0", count=4),)),
        card(2, numa_node=1),
        card(3, numa_node=1),
    )
    scores = topology.scores(each.unit for each in found.resources[0].devices)
    assert scores["GPU-1", "GPU-3"] == scores["GPU-3", "GPU-1"] == 10 + 400
    ids = [each.id for each in found.resources[0].devices]
    chosen = preferring.best_connected(ids, [], 2, lambda one, other: scores[one, other])
    assert chosen == ["GPU-1", "GPU-3"]


def test_cards_at_a_switch_have_the_links_of_the_one_with_fewer() -> None:
    linked = [
        card(number, links=(contract.Link(peer="", count=count),)).reading
        for number, count in enumerate((18, 12))
    ]
    assert linked[0] is not None
    assert linked[1] is not None
    assert topology.links(linked[0], linked[1]) == 12


UNITS = {f"{unit}::{number}": unit for unit in "abc" for number in range(3)}


@pytest.mark.parametrize(
    ("policy", "taken", "size", "expected"),
    [
        (AllocationPolicy.DISTRIBUTED, [], 3, ["a::0", "b::0", "c::0"]),
        (AllocationPolicy.DISTRIBUTED, ["a::0", "c::1"], 1, ["b::0"]),
        (AllocationPolicy.PACKED, [], 3, ["a::0", "a::1", "a::2"]),
        (AllocationPolicy.PACKED, ["c::0"], 2, ["c::1", "c::2"]),
        (AllocationPolicy.PACKED, ["c::0", "c::1", "c::2"], 1, ["a::0"]),
    ],
)
def test_replicas_come_from_the_emptiest_or_the_fullest_card(
    policy: AllocationPolicy, taken: list[str], size: int, expected: list[str]
) -> None:
    free = [each for each in UNITS if each not in taken]
    assert preferring.balanced(free, [], size, units=UNITS, policy=policy) == expected


def test_required_devices_are_kept() -> None:
    chosen = preferring.balanced(
        list(UNITS), ["a::1"], 2, units=UNITS, policy=AllocationPolicy.DISTRIBUTED
    )
    assert chosen == ["a::1", "b::0"]


@pytest.mark.parametrize(("required", "size"), [(["x"], 1), ([], 9), (["a"], 0)])
def test_what_cannot_be_is_refused(required: list[str], size: int) -> None:
    with pytest.raises(InvalidError):
        preferring.best_connected(["a", "b"], required, size, lambda one, other: 0)
