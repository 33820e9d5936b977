# SPDX-License-Identifier: Apache-2.0
"""Give every card of the cluster exactly one reason towards one pod.

Pure. What can never change for a card (it is gone, it is another model) is looked
for first, what changes by itself (somebody else holds it) last, so the reason is
what an administrator or the pod's author would have to change.
"""

from __future__ import annotations

import dataclasses

from gpudeck.api import conditions, labels
from gpudeck.api.core import Pod
from gpudeck.api.meta import Condition
from gpudeck.explaining import cards, matching, placing
from gpudeck.explaining.asking import Ask, Asked
from gpudeck.explaining.cards import Card
from gpudeck.explaining.reasons import Reason
from gpudeck.explaining.world import Placement, World


@dataclasses.dataclass
class Verdict:
    """The reason of one card, with who or what it is."""

    card: Card
    reason: Reason
    detail: str = ""
    unknown: list[str] = dataclasses.field(default_factory=list)
    """CEL terms of the class that were not understood."""


class Judge:
    """Judges cards for one pod."""

    def __init__(self, pod: Pod, placement: Placement, asked: Asked, world: World) -> None:
        self._pod, self._placement = pod, placement
        self._asked, self._world = asked, world
        self._obstacles: dict[str, placing.Obstacle | None] = {}

    def judge(self, card: Card) -> Verdict:
        """Return the one reason of a card."""
        mine = self._held_by_pod(card)
        if mine:
            return Verdict(card, Reason.HELD_BY_THIS_POD, mine)
        if not self._asked.asks and not self._asked.problems:
            return Verdict(card, Reason.NOT_ASKED)
        discovered = _condition(card, conditions.DISCOVERED)
        if discovered is not None and discovered.status == conditions.FALSE:
            return Verdict(card, Reason.LOST, _why(discovered))
        match = self._match(card)
        if match.missed:
            return Verdict(card, Reason.DOES_NOT_MATCH_CLASS, match.missed)
        reason, detail = (
            self._node(card.node)
            or _state(card)
            or _held(card, match.parts)
            or _offered(card, self._world)
        ) or (Reason.MATCHES, "")
        return Verdict(card, reason, detail, match.unknown)

    def _held_by_pod(self, card: Card) -> str:
        meta = self._pod.metadata
        for holder in card.holders:
            claim = f"{holder.namespace}/{holder.claim}"
            if holder.claim and claim in self._asked.claims:
                return f"by claim {claim}"
            if (holder.namespace, meta.name) in {(meta.namespace, pod) for pod in holder.pods}:
                note = "" if holder.is_exact else " (which card of the node the API does not tell)"
                return f"by the device plugin{note}"
        return ""

    def _match(self, card: Card) -> matching.Match:
        """Compare with everything asked for; facts that no adapter has told yet miss nothing."""
        first: matching.Match | None = None
        for ask in self._open_asks():
            found = matching.card_for(ask, card, self._world)
            if not found.missed:
                return found
            if card.gpu is not None and _is_unknown(card):
                return matching.Match()
            first = first or found
        return first or matching.Match(missed="what the pod names does not exist")

    def _open_asks(self) -> list[Ask]:
        """Return the asks that are not met yet; all, if all are."""
        held = {
            key
            for key in self._asked.claims
            if (claim := self._world.claims.get(key)) and claim.status and claim.status.allocation
        }
        return [ask for ask in self._asked.asks if ask.claim not in held] or self._asked.asks

    def _node(self, name: str) -> placing.Obstacle | None:
        if name not in self._obstacles:
            self._obstacles[name] = placing.obstacle(name, self._pod, self._placement, self._world)
        return self._obstacles[name]


def _condition(card: Card, kind: str) -> Condition | None:
    status = card.gpu.status if card.gpu else None
    return conditions.find(status.conditions if status else None, kind)


def _why(condition: Condition) -> str:
    return f"{condition.reason}: {condition.message}" if condition.message else condition.reason


def _is_unknown(card: Card) -> bool:
    """Whether nobody has yet told what the card is, or its driver is not there to ask."""
    status = card.gpu.status if card.gpu else None
    return status is None or status.capabilities is None


def _state(card: Card) -> placing.Obstacle | None:
    """Return what is wrong with the card itself."""
    if card.gpu is not None:
        driver = _condition(card, conditions.DRIVER_READY)
        if driver is None:
            return Reason.DRIVER_NOT_READY, "no adapter has told of its driver yet"
        if driver.status != conditions.TRUE:
            return Reason.DRIVER_NOT_READY, _why(driver)
        healthy = _condition(card, conditions.HARDWARE_HEALTHY)
        if healthy is not None and healthy.status == conditions.FALSE:
            return Reason.NOT_HEALTHY, _why(healthy)
    for taint in (card.device.taints if card.device else None) or ():
        if taint.effect in ("NoSchedule", "NoExecute"):
            return Reason.NOT_HEALTHY, f"its device has the taint {taint.key}:{taint.effect}"
    if not card.is_offered:
        return Reason.NOT_HEALTHY, "its device plugin does not count it as allocatable"
    return None


def _held(card: Card, parts: list[str]) -> placing.Obstacle | None:
    """Return who holds the card; where parts of it would do, one that is free is enough."""
    if parts and not card.held_devices.issuperset(parts):
        return None
    for holder in card.holders:
        reason = Reason.HELD_BY_POD if holder.pods else Reason.HELD_BY_CLAIM
        note = "" if holder.is_exact else " (which card of the node the API does not tell)"
        return reason, holder.text + note
    return None


def _offered(card: Card, world: World) -> placing.Obstacle | None:
    if card.is_plugin_node or card.device is not None or card.parts:
        return None
    published = _condition(card, conditions.PUBLISHED)
    if published is None:
        return Reason.NOT_PUBLISHED, "no DRA plugin has published it yet"
    if published.status != conditions.TRUE:
        return Reason.NOT_PUBLISHED, _why(published)
    if cards.is_in_no_slice(card, world):
        return Reason.NOT_PUBLISHED, _in_no_slice(card.node, world)
    return None


def _in_no_slice(node: str, world: World) -> str:
    """Say that a card is in no slice; where the node has none at all, ask for the adapter."""
    said = f"no ResourceSlice of node {node} offers it"
    for each in world.slices:
        if each.spec.driver == labels.DRIVER and each.spec.node_name == node:
            return said
    return f"{said}; is the nvidia-adapter pod on that node running?"
