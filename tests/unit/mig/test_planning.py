# SPDX-License-Identifier: Apache-2.0
"""Plans: which cards change, what stays, in which order, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.mig import cards, seeds

from gpudeck import errors
from gpudeck.mig import choosing, configs, planning
from gpudeck.vendors import contract

Mode = contract.PartitioningMode
SEED = "2x2g.10gb-3x1g.5gb"
FULL = (("2g.10gb", 0), ("2g.10gb", 2), ("1g.5gb", 4), ("1g.5gb", 5), ("1g.5gb", 6))


def config(*entries: configs.Entry, name: str = "x") -> choosing.Named:
    return choosing.Named(name, entries)


def on(devices: tuple[int, ...] | None = None, **counts: int) -> configs.Entry:
    """MIG on; `g1_5` is 1g.5gb."""
    named = {f"{key[1]}g.{key[3:]}gb": count for key, count in counts.items()}
    return configs.Entry(enabled=True, devices=devices, counts=named)


OFF = configs.Entry(enabled=False)
SEEDED = choosing.Named(SEED, configs.read(seeds.PRINTED).find(SEED))


def words(plan: planning.CardPlan) -> list[str]:
    """The actions, in short."""
    return [_word(each) for each in plan.actions]


def _word(action: Any) -> str:
    match action:
        case contract.SetPartitioning():
            return ("on" if action.enabled else "off") + ("+reset" if action.may_reset else "")
        case contract.MakePartition():
            return f"make {action.profile_id}@{action.placement.start}"
        case contract.RemovePartition():
            return f"remove {action.profile_id}@{action.placement.start}"
    raise AssertionError(action)


def test_the_config_of_the_guide_on_four_cards_turns_mig_on_and_fills_them() -> None:
    plan = planning.plan(SEEDED, cards.node("a100-40gb-x4", 4, mode=Mode.DISABLED))
    assert [card.index for card in plan.cards] == [0, 1, 2, 3]
    for card in plan.cards:
        assert (card.changes_mode, card.resets) == (True, True)
        assert words(card)[0] == "on+reset"
        assert sorted(each.profile for each in card.made) == ["1g.5gb"] * 3 + ["2g.10gb"] * 2
    assert not plan.is_done


def test_seven_small_ones_on_four_cards_are_twenty_eight() -> None:
    more = (
        seeds.PRINTED
        + """\
     7x1g.5gb:
     - devices: all
       mig-enabled: true
       mig-devices:
         "1g.5gb": 7
""".replace(" ", "\u00a0")
    )
    seven = choosing.Named("7x1g.5gb", configs.read(more).find("7x1g.5gb"))
    plan = planning.plan(seven, cards.node("a100-40gb-x4", 4, *FULL))
    assert sum(len(card.kept) + len(card.made) for card in plan.cards) == 28
    assert [len(card.kept) for card in plan.cards] == [3] * 4


def test_cards_that_are_as_wanted_are_not_touched() -> None:
    node = cards.node("a100-40gb-x4", 2, *FULL)
    node[1] = cards.state(cards.reading("a100-40gb-x4", *FULL[1:], index=1))
    plan = planning.plan(SEEDED, node)
    assert [words(card) for card in plan.cards] == [[], ["make 14@0"]]
    assert planning.plan(SEEDED, node[:1]).is_done


def test_what_fits_stays_and_goes_before_what_is_new() -> None:
    there = (("1g.5gb", 0), ("1g.5gb", 2), ("3g.20gb", 4))
    node = [cards.state(cards.reading("a100-40gb-x4", *there))]
    (card,) = planning.plan(config(on(g1_5=2, g2_10=2)), node).cards
    # Two 2g.10gb need two of the places at 0, 2 and 4, so one of the small ones moves.
    assert len(card.kept) == 1
    assert {(each.profile, each.start) for each in card.kept} < set(there[:2])
    assert [word.split()[0] for word in words(card)] == ["remove"] * 2 + ["make"] * 3


def test_a_plan_says_what_nobody_may_use_meanwhile() -> None:
    there = (("1g.5gb", 0), ("1g.5gb", 1), ("3g.20gb", 4))
    node = [cards.state(cards.reading("a100-40gb-x4", *there))]
    (card,) = planning.plan(config(on(g1_5=2)), node).cards
    assert card.freed == ("MIG-3g.20gb-4",)
    (card,) = planning.plan(config(OFF), node).cards
    assert card.freed == ("GPU-0", "MIG-1g.5gb-0", "MIG-1g.5gb-1", "MIG-3g.20gb-4")
    (card,) = planning.plan(config(on(g1_5=7)), cards.node("a100-40gb-x4", 1)).cards
    assert card.freed == ()


def test_a_partition_that_is_held_stays_before_another() -> None:
    there = (("1g.5gb", 0), ("1g.5gb", 1), ("1g.5gb", 6))
    node = [cards.state(cards.reading("a100-40gb-x4", *there))]
    for start in (0, 1, 6):
        held = [f"MIG-1g.5gb-{start}"]
        (card,) = planning.plan(config(on(g1_5=1)), node, held=held).cards
        assert [each.start for each in card.kept] == [start]


def test_turning_mig_off_removes_partitions_first() -> None:
    node = [cards.state(cards.reading("a100-40gb-x4", ("7g.40gb", 0)))]
    (card,) = planning.plan(config(OFF), node).cards
    assert words(card) == ["remove 0@0", "off+reset"]
    assert card.resets


def test_a_card_whose_mode_changes_at_once_is_not_reset() -> None:
    node = [cards.state(cards.reading("h100-x8", mode=Mode.DISABLED, dynamic=True))]
    (card,) = planning.plan(config(on()), node).cards
    assert (words(card), card.changes_mode, card.resets) == (["on"], True, False)


def test_a_mode_that_would_change_at_the_next_reset_is_set_back() -> None:
    pending = cards.reading("a100-40gb-x4", ("7g.40gb", 0), pending=Mode.DISABLED)
    (card,) = planning.plan(config(on(g7_40=1)), [cards.state(pending)]).cards
    assert (words(card), card.changes_mode) == (["on"], False)


def test_mode_only_leaves_partitions_of_mig_mode_alone() -> None:
    node = [cards.state(cards.reading("a100-40gb-x4", ("7g.40gb", 0)))]
    assert planning.plan(config(on(g1_5=7)), node, mode_only=True).is_done
    (card,) = planning.plan(config(OFF), node, mode_only=True).cards
    assert words(card) == ["remove 0@0", "off+reset"]


def test_a_half_made_partition_is_finished_where_it_lies() -> None:
    reading = cards.reading("a100-40gb-x4", ("2g.10gb", 2))
    half = msgspec.structs.replace(reading.partitions[0], uuid="")
    node = [cards.state(msgspec.structs.replace(reading, partitions=(half,)))]
    (card,) = planning.plan(config(on(g2_10=1)), node).cards
    assert words(card) == ["make 14@2"]


def test_a_partition_that_was_cut_up_again_is_made_anew() -> None:
    reading = cards.reading("a100-40gb-x4", ("3g.20gb", 4))
    parts = tuple(
        msgspec.structs.replace(reading.partitions[0], profile="1c.3g.20gb", uuid=f"MIG-{part}")
        for part in range(2)
    )
    node = [cards.state(msgspec.structs.replace(reading, partitions=parts))]
    (card,) = planning.plan(config(on(g3_20=1)), node).cards
    assert words(card)[0] == "remove 9@4"
    assert len(card.made) == 1


def test_a_driver_that_tells_profiles_only_in_mig_mode_is_asked_again_then() -> None:
    silent = msgspec.structs.replace(cards.reading(mode=Mode.DISABLED), profiles=())
    (card,) = planning.plan(config(on(g1_5=7)), [cards.state(silent)]).cards
    assert words(card) == ["on+reset"]


def test_a_profile_is_looked_up_on_the_card_that_it_is_for() -> None:
    """case-15: one name, other numbers on another model."""
    first = cards.state(cards.reading("a30-x2", mode=Mode.DISABLED))
    other = tuple(
        msgspec.structs.replace(each, profile_id=each.profile_id + 100)
        for each in cards.profiles("a30-x2")
    )
    second = cards.reading("a30-x2", mode=Mode.DISABLED, index=1)
    second = msgspec.structs.replace(second, profiles=other)
    plan = planning.plan(config(on((1,), g1_6=4)), [first, cards.state(second)])
    (card,) = plan.cards
    assert card.index == 1
    assert {each.profile_id for each in card.made} == {114}
    assert [each.start for each in card.made] == [0, 1, 2, 3]


def test_the_spelling_of_labels_is_read_too() -> None:
    entry = configs.Entry(enabled=True, counts={"1g.5gb.me": 1})
    (card,) = planning.plan(config(entry), [cards.state(cards.reading())]).cards
    assert [each.profile for each in card.made] == ["1g.5gb+me"]


@pytest.mark.parametrize(
    ("counts", "reason", "said"),
    [
        ({"2g.20gb": 1}, "PartitionUnsupported",
         'mig-configs["x"][0].mig-devices["2g.20gb"]: card 0 (0000:01:00.0, '
         "NVIDIA A100-SXM4-40GB) has no such profile; it has: 7g.40gb, 4g.20gb"),
        ({"1c.3g.20gb": 1}, "PartitionUnsupported", "allowed: 3g.20gb, the whole one"),
        ({"1g.5gb": 8}, "PartitionsDoNotFit", "8 x 1g.5gb do not fit on card 0"),
        ({"4g.20gb": 1, "3g.20gb": 1, "1g.5gb": 1}, "PartitionsDoNotFit",
         "1 x 4g.20gb + 1 x 3g.20gb + 1 x 1g.5gb do not fit"),
        ({"1g.5gb+me": 2}, "PartitionsDoNotFit", "2 x 1g.5gb+me do not fit"),
    ],
)  # fmt: skip
def test_what_a_card_cannot_be_is_refused_as_a_whole(
    counts: dict[str, int], reason: str, said: str
) -> None:
    entry = configs.Entry(enabled=True, counts=counts)
    with pytest.raises(errors.UnsupportedError) as caught:
        planning.plan(config(entry), cards.node("a100-40gb-x4", 2))
    assert caught.value.reason == reason
    assert said in str(caught.value)


def test_cards_without_mig_are_passed_over_unless_they_are_named() -> None:
    node = [cards.state(cards.no_mig()), cards.state(cards.reading(index=1))]
    plan = planning.plan(config(on(g1_5=7)), node)
    assert [card.index for card in plan.cards] == [1]
    assert planning.plan(config(msgspec.structs.replace(OFF, devices=(0, 1))), node).cards
    with pytest.raises(errors.UnsupportedError, match=r"card 0 \(0000:01:00.0, Tesla T4\) has no"):
        planning.plan(config(on((0,), g1_5=7)), node)


def test_a_node_without_mig_is_done_with_any_config() -> None:
    assert planning.plan(SEEDED, [cards.state(cards.no_mig())]) == planning.Plan(())


def test_a_config_that_is_for_none_of_the_cards_is_refused() -> None:
    a30 = configs.Entry(enabled=True, filters=(configs.Filter(0x20B710DE),))
    with pytest.raises(errors.UnsupportedError, match=r"A100-SXM4-40GB \(0x20B010DE\)"):
        planning.plan(config(a30), cards.node("a100-40gb-x4", 4))


def test_entries_are_for_the_cards_that_numbers_and_filter_accept() -> None:
    node = [
        cards.state(cards.reading("a30-x2"), pci_id=cards.IDS["a30-x2"]),
        *cards.node("a100-40gb-x4", 3)[1:],
    ]
    a100 = (configs.Filter(cards.IDS["a100-40gb-x4"]),)
    entries = (
        msgspec.structs.replace(on((0, 1, 7), g1_5=7), filters=a100),
        on((2,), g2_10=3),
    )
    plan = planning.plan(config(*entries), node)
    assert {card.index: len(card.made) for card in plan.cards} == {1: 7, 2: 3}
    assert plan.notes == (
        'mig-configs["x"][0].devices: the node has 3 cards, so there is no card 7.',
    )


def test_of_entries_that_want_one_card_differently_the_last_counts_and_is_noted() -> None:
    node = cards.node("a100-40gb-x4", 2)
    plan = planning.plan(config(on(g1_5=7), on((1,), g2_10=3)), node)
    assert [len(card.made) for card in plan.cards] == [7, 3]
    assert plan.notes == (
        'mig-configs["x"][1]: card 1 (0000:02:00.0) is partitioned by this entry, the last that '
        "is for it, and not by 0.",
    )
    assert planning.plan(config(on(g1_5=7), on((1,), g1_5=7)), node).notes == ()


def test_a_card_that_cannot_be_read_costs_that_card() -> None:
    node = cards.node("a100-40gb-x4", 2)
    node[0] = cards.state(None)
    plan = planning.plan(config(on(g1_5=7)), node)
    assert [len(card.made) for card in plan.cards] == [0, 7]
    assert plan.cards[0].problem is not None
    assert plan.cards[0].problem.reason == "CardNotReady"


@pytest.mark.parametrize("known", [None, cards.reading()])
def test_a_card_of_a_virtual_machine_is_passed_over_and_noted(
    known: contract.CardReading | None,
) -> None:
    """Also one that was read before it was given away."""
    node = cards.node("a100-40gb-x4", 2)
    node[0] = cards.state(known, served=False, driver="vfio-pci")
    plan = planning.plan(config(on(g1_5=7)), node)
    assert [card.index for card in plan.cards] == [1]
    assert plan.notes == ("Card 0 (0000:01:00.0) is passed over: it is bound to vfio-pci.",)
    for entries in (on((0, 1), g1_5=7),), (on(g1_5=7), on((0,), g1_5=7)):
        named = planning.plan(config(*entries), node)
        assert named.cards[0].problem is not None
