# SPDX-License-Identifier: Apache-2.0
"""What cards are like now, as a config and as a checkpoint."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.mig import cards

from gpudeck import errors
from gpudeck.mig import checkpoints, configs, exporting
from gpudeck.vendors import contract

Mode = contract.PartitioningMode
THERE = (("1g.5gb", 0), ("1g.5gb", 1), ("3g.20gb", 4))
AS_CONFIG = configs.Entry(enabled=True, counts={"1g.5gb": 2, "3g.20gb": 1})


def test_cards_that_are_alike_are_one_entry() -> None:
    assert exporting.export(cards.node("a100-40gb-x4", 4, *THERE)).config == (AS_CONFIG,)


def test_cards_that_differ_are_told_by_number_and_those_without_mig_are_not() -> None:
    node = cards.node("a100-40gb-x4", 4, *THERE)
    node[0] = cards.state(cards.no_mig())
    node[2] = cards.state(cards.reading(mode=Mode.DISABLED, index=2))
    assert exporting.export(node).config == (
        msgspec.structs.replace(AS_CONFIG, devices=(1, 3)),
        configs.Entry(enabled=False, devices=(2,)),
    )


def test_a_card_that_cannot_be_read_is_left_out_and_noted() -> None:
    node = cards.node("a100-40gb-x4", 2, *THERE)
    node[1] = cards.state(None, index=1)
    found = exporting.export(node)
    assert found.config == (msgspec.structs.replace(AS_CONFIG, devices=(0,)),)
    assert found.notes == ("Card 1 (0000:02:00.0) cannot be read and is left out.",)


def test_a_checkpoint_brings_each_partition_back_to_its_place() -> None:
    kept = checkpoints.take(cards.node("a100-40gb-x4", 2, *THERE))
    read = checkpoints.decode(checkpoints.encode(kept), "f")
    assert read == kept
    node = cards.node("a100-40gb-x4", 2, ("1g.5gb", 1), ("1g.5gb", 2))
    first, second = checkpoints.plan(read, node).cards
    assert [(each.profile, each.start) for each in first.kept] == [("1g.5gb", 1)]
    assert [(each.profile, each.start) for each in first.removed] == [("1g.5gb", 2)]
    assert [(each.profile, each.start) for each in first.made] == [("1g.5gb", 0), ("3g.20gb", 4)]
    assert second.made == first.made
    assert checkpoints.plan(read, cards.node("a100-40gb-x4", 2, *THERE)).is_done


def test_a_card_is_known_again_by_its_uuid() -> None:
    kept = checkpoints.take(cards.node("a100-40gb-x4", 1, *THERE))
    moved = msgspec.structs.replace(cards.reading(mode=Mode.DISABLED, index=5), uuid="GPU-0")
    (card,) = checkpoints.plan(kept, [cards.state(moved)]).cards
    assert (card.address, len(card.made)) == ("0000:06:00.0", 3)
    (gone,) = checkpoints.plan(kept, [cards.state(cards.reading(index=5))]).cards
    assert gone.problem is not None
    assert "GPU-0, which was at 0000:01:00.0" in str(gone.problem)


def test_a_mode_that_was_off_is_turned_off_again() -> None:
    kept = checkpoints.take(cards.node("a100-40gb-x4", 1, mode=Mode.DISABLED))
    (card,) = checkpoints.plan(kept, cards.node("a100-40gb-x4", 1, *THERE)).cards
    assert (card.enabled, len(card.removed), card.resets) == (False, 3, True)


def test_what_could_not_be_made_again_is_not_written_down() -> None:
    reading = cards.reading("a100-40gb-x4", ("3g.20gb", 4))
    part = msgspec.structs.replace(reading.partitions[0], profile="1c.3g.20gb")
    split = msgspec.structs.replace(reading, partitions=(part,))
    with pytest.raises(errors.UnsupportedError) as caught:
        checkpoints.take([cards.state(split)])
    assert caught.value.reason == "PartitionSplit"
    with pytest.raises(errors.UnavailableError):
        checkpoints.take([cards.state(None)])


def test_a_place_that_the_card_does_not_offer_any_more_is_refused() -> None:
    kept = checkpoints.take(cards.node("a100-40gb-x4", 1, *THERE))
    other = msgspec.structs.replace(cards.reading("a30-x2"), uuid="GPU-0")
    with pytest.raises(errors.UnsupportedError, match=r"offers no 1g.5gb of 1 slices at 0"):
        checkpoints.plan(kept, [cards.state(other)])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "missing required field `version`"),
        (b"version: v1", "malformed"),
        (b'{"version": "v1", "cards": []}', "'v1' is not valid; allowed: gpudeck.mig/v1"),
        (b'{"version": "gpudeck.mig/v1", "cards": [], "x": 1}', "unknown field `x`"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(errors.InvalidError, match=said):
        checkpoints.decode(content, "f")
