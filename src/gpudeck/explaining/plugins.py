# SPDX-License-Identifier: Apache-2.0
"""Cards that gpudeck's device plugin hands out: what of one can be had, and why not more.

Pure. The device plugin says both in the PhysicalGPUs (`extendedResources` and
`occupancy.plugin`), so here nothing has to be guessed: `cards` has read it.
"""

from __future__ import annotations

from gpudeck import errors
from gpudeck.api import conditions
from gpudeck.explaining.cards import Card
from gpudeck.explaining.reasons import Obstacle, Reason


def free(card: Card, resource: str) -> int:
    """How many devices of a resource pods could still get of the card.

    A device that is held and has fallen ill counts twice, as for the scheduler: the kubelet takes
    it from what is allocatable, and its pod still counts against the rest (1.37).
    """
    return max(0, card.offers.get(resource, 0) - card.given.get(resource, 0))


def missed(card: Card, resource: str) -> str:
    """Say as what else the card is offered; "" if as this, or as nothing at all."""
    if not card.offers or resource in card.offers:
        return ""
    return f"its node's device plugin offers it as {_listed(card.offers)}"


def obstacle(card: Card, resource: str) -> Obstacle | None:
    """Say why nothing of the card by this name can be had now; None if something can."""
    if free(card, resource):
        return None
    if card.holders:
        return Reason.HELD_BY_POD, errors.listed(each.label for each in card.holders)
    if card.uncounted:
        why = f"no device plugin of its node serves it: the kubelet counts no {card.uncounted}"
        return Reason.NOT_PUBLISHED, why
    published = conditions.find(
        card.gpu.status.conditions if card.gpu and card.gpu.status else None, conditions.PUBLISHED
    )
    if published is None:
        return Reason.NOT_PUBLISHED, "no device plugin has offered it yet"
    return Reason.NOT_PUBLISHED, f"{published.reason}: {published.message}"


def left(card: Card, resource: str) -> str:
    """Say how much of a card is free that somebody has a part of; "" where nobody has."""
    if not card.given.get(resource):
        return ""
    holders = errors.listed((each.label for each in card.holders), 3)
    return f"{free(card, resource)} of {card.offers[resource]} {resource} are free; held: {holders}"


def _listed(offers: dict[str, int]) -> str:
    return " and ".join(sorted(offers))
