# SPDX-License-Identifier: Apache-2.0
"""Labels stay while the driver of cards that are there is away, and not for ever."""

from __future__ import annotations

import msgspec
from tests.unit.gfd import cards

from gpudeck.gfd import holding
from gpudeck.vendors import contract, health, records

READY = cards.node(cards.host("t4-x4")).inventory
NOW = health.Moment(steady=0.0, unix=0)
AWAY = contract.DriverState(ready=False, reason="DriverNotLoaded", message="No module.")


def without_readings(driver: contract.DriverState, *, served: bool = True) -> records.Inventory:
    states = tuple(
        msgspec.structs.replace(
            each,
            reading=None,
            driver=driver,
            site=msgspec.structs.replace(each.site, served=served),
        )
        for each in READY.cards
    )
    return records.Inventory(cards=states, driver=driver)


def test_labels_are_written_while_cards_are_read() -> None:
    absence = holding.Absence().after(READY, 0.0)
    assert absence.held(READY, 0.0, 300) == holding.Held()


def test_labels_stay_while_the_driver_is_away_and_go_after_long() -> None:
    gone = without_readings(AWAY)
    absence = holding.Absence().after(READY, 0.0).after(gone, 10.0)
    assert absence.held(gone, 10.0, 300) == holding.Held(why="No module.", seconds=300)
    again = absence.after(gone, 100.0)
    assert again.held(gone, 110.0, 300).seconds == 200
    assert again.held(gone, 310.0, 300) == holding.Held()
    assert again.after(READY, 120.0) == holding.Absence()


def test_cards_that_do_not_answer_are_no_reason_to_take_labels_away() -> None:
    silent = without_readings(cards.DRIVER)
    assert holding.Absence().after(silent, 0.0).held(silent, 0.0, 300).seconds == 300


def test_cards_that_were_given_to_another_driver_lose_their_labels_at_once() -> None:
    away = without_readings(AWAY, served=False)
    assert holding.Absence().after(away, 0.0).held(away, 0.0, 300) == holding.Held()


def test_a_host_without_cards_has_nothing_to_keep() -> None:
    empty = records.Inventory(driver=AWAY)
    assert holding.Absence().after(empty, 0.0).held(empty, 0.0, 300) == holding.Held()


def test_labels_wait_until_every_card_was_read_once() -> None:
    """Else a node whose cards take long to start would be said to have fewer for a while."""
    unread = records.Record(site=READY.cards[0].site, memory=health.start(NOW))
    (first,) = records.inventory([unread], cards.DRIVER).cards
    some = records.Inventory(cards=(first, *READY.cards[1:]), driver=cards.DRIVER)
    absence = holding.Absence().after(some, 0.0)
    assert absence.held(some, 0.0, 300).why == f"{first.site.address} has not been read yet."
    assert absence.after(READY, 1.0) == holding.Absence()


def test_a_card_that_fails_keeps_no_label_from_the_others() -> None:
    fault = contract.Fault(reason="GpuLost", message="It is lost.")
    failed = records.Record(site=READY.cards[0].site, memory=health.start(NOW)).failed(fault, NOW)
    (first,) = records.inventory([failed], cards.DRIVER).cards
    some = records.Inventory(cards=(first, *READY.cards[1:]), driver=cards.DRIVER)
    assert holding.Absence().after(some, 0.0) == holding.Absence()
