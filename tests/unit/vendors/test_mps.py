# SPDX-License-Identifier: Apache-2.0
"""The files between the adapter and mps-control, and what to start and end."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.host import locks
from gpudeck.host import root as host
from gpudeck.vendors.nvidia.mps import daemons, places

ADDRESS = "0000:1b:00.0"


@pytest.fixture
def card(tmp_path: Path) -> places.Card:
    return places.Card(host.Root(tmp_path), ADDRESS)


def test_a_daemon_is_wanted_as_long_as_one_share_is(card: places.Card) -> None:
    assert (card.uuid(), card.shares()) == (None, ())
    assert card.add_share("b", "GPU-1")
    assert card.add_share("a", "GPU-1")
    assert (card.uuid(), card.shares()) == ("GPU-1", ("a", "b"))
    for share in ("a", "b", "b"):
        card.remove_share(share)
    assert (card.uuid(), card.shares()) == (None, ())


@pytest.mark.parametrize("share", ["", "../shares", "a/b", ".hidden"])
def test_a_share_whose_id_is_no_file_name_is_refused(card: places.Card, share: str) -> None:
    with pytest.raises(errors.InvalidError, match="allowed: letters"):
        card.add_share(share, "GPU-1")
    card.remove_share(share)
    assert card.shares() == ()


def test_the_state_of_a_daemon_is_told_and_a_broken_one_is_not_ready(
    card: places.Card, tmp_path: Path
) -> None:
    assert card.state() is None
    card.write_state(places.State(ready=True))
    assert card.state() == places.State(ready=True)
    (tmp_path / "run/gpudeck/mps/0000-1b-00-0/state.json").write_text("{")
    broken = card.state()
    assert broken is not None
    assert not broken.ready
    card.write_state(None)
    card.write_state(None)
    assert card.state() is None


async def test_mps_control_runs_while_it_holds_the_lock(tmp_path: Path) -> None:
    root = host.Root(tmp_path)
    assert not places.is_served(root)
    async with locks.held(places.lock(root)):
        assert places.is_served(root)
        assert [card.address for card in places.cards(root)] == []
    assert not places.is_served(root)


def test_another_card_in_a_place_ends_one_daemon_and_starts_another() -> None:
    kept = {"a": "1", "b": "2", "c": "3"}
    wanted = {"a": "1", "b": "4", "d": "5"}
    assert daemons.changes(kept, wanted) == ({"b": "4", "d": "5"}, {"b": "2", "c": "3"})
