# SPDX-License-Identifier: Apache-2.0
"""When labels are made anew, and when those that are out there are better kept. Pure.

A driver that is reloaded, or not read yet, is no reason to take labels away: workloads of the
node itself are placed by them (the mig-manager by `mig.capable`), and would be ended in the
middle of what made the driver go. Once it has been away for long they go. Nor is a start, while
cards are still to be read: those that were are not all that the node has.
"""

from __future__ import annotations

import math

import msgspec

from gpudeck.vendors import records


class Held(msgspec.Struct, frozen=True):
    """Whether to keep the labels, and for how long at most."""

    why: str = ""
    """Empty: write what the cards say now."""
    seconds: float = math.inf
    """After which the answer is another, if nothing happens before."""


class Absence(msgspec.Struct, frozen=True):
    """Since when it is not known what to say of cards that are there."""

    since: float | None = None

    def after(self, inventory: records.Inventory, now: float) -> Absence:
        """An inventory was published."""
        if not _is_silent(inventory):
            return Absence()
        return self if self.since is not None else Absence(since=now)

    def held(self, inventory: records.Inventory, now: float, hold_seconds: float) -> Held:
        """Say whether the labels are kept."""
        if self.since is None:
            return Held()
        left = self.since + hold_seconds - now
        if left <= 0:
            return Held()
        return Held(why=_why(inventory), seconds=left)


def is_partial(inventory: records.Inventory) -> bool:
    """Whether a card is still to be read for the first time; one that fails has been."""
    return any(card.driver.reason == records.NOT_READ_YET for card in inventory.cards)


def _is_silent(inventory: records.Inventory) -> bool:
    """Cards are given to the driver, and none of them, or not each, has been read."""
    served = [card for card in inventory.cards if card.site.served]
    return is_partial(inventory) or (bool(served) and all(card.reading is None for card in served))


def _why(inventory: records.Inventory) -> str:
    if not inventory.driver.ready:
        return inventory.driver.message
    unread = (card for card in inventory.cards if card.site.served and card.reading is None)
    return next(unread).driver.message
