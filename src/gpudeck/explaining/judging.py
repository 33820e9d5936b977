# SPDX-License-Identifier: Apache-2.0
"""Give every card of the cluster exactly one reason towards one pod.

Pure. What can never change for a card (it is gone, it is another model) is looked
for first, what changes by itself (somebody else holds it) last, so the reason is
what an administrator or the pod's author would have to change.
"""

from __future__ import annotations

import dataclasses

from gpudeck import errors
from gpudeck.api import attributes, conditions, labels, names, quantities
from gpudeck.api.core import Pod
from gpudeck.api.meta import Condition
from gpudeck.api.resource import DeviceTaint
from gpudeck.explaining import cards, leaving, matching, placing, plugins
from gpudeck.explaining.asking import Ask, Asked
from gpudeck.explaining.cards import Card
from gpudeck.explaining.matching import Match
from gpudeck.explaining.reasons import Obstacle, Reason
from gpudeck.explaining.world import Placement, World

_BLOCKING = ("NoSchedule", "NoExecute")


@dataclasses.dataclass
class Verdict:
    """The reason of one card, with who or what it is."""

    card: Card
    reason: Reason
    detail: str = ""
    unknown: list[str] = dataclasses.field(default_factory=list)
    """CEL terms of the class that were not understood."""
    free: int = 1
    """Where it matches: how many devices that would do the pod could get of it."""
    part: str = ""
    """Where the pod holds it: what of it; "" for all of it."""


class Judge:
    """Judges cards for one pod."""

    def __init__(self, pod: Pod, placement: Placement, asked: Asked, world: World) -> None:
        self._pod, self._placement = pod, placement
        self._asked, self._world = asked, world
        self._obstacles: dict[str, Obstacle | None] = {}

    def judge(self, card: Card) -> Verdict:
        """Return the one reason of a card."""
        mine = self._held_by_pod(card)
        if mine:
            parts = [part for part, _ in mine]
            part = " and ".join(parts) if all(parts) else ""
            how = ", ".join(f"{part} of it {how}" if part else how for part, how in mine)
            return Verdict(card, Reason.HELD_BY_THIS_POD, how, part=part)
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
            or _state(card, match)
            or match.obstacle
            or self._cordoned(card, match)
            or _held(card, match)
            or _offered(card, match, self._world)
        ) or (Reason.MATCHES, _left(card, match))
        count = plugins.free(card, match.resource) if match.resource else 1
        return Verdict(card, reason, detail, match.unknown, free=count)

    def _held_by_pod(self, card: Card) -> list[tuple[str, str]]:
        """What of the card the pod has ("" for all of it), and by what."""
        meta, found = self._pod.metadata, []
        for holder in card.holders:
            claim = f"{holder.namespace}/{holder.claim}"
            if holder.claim and claim in self._asked.claims:
                found.append((holder.part, f"by claim {claim}"))
            elif (holder.namespace, meta.name) in {(meta.namespace, pod) for pod in holder.pods}:
                note = "" if holder.is_exact else " (which card of the node the API does not tell)"
                found.append((holder.part, f"by the device plugin{note}"))
        return found

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

    def _cordoned(self, card: Card, match: Match) -> Obstacle | None:
        """Return the DeviceTaintRule that keeps new claims off all that would do."""
        found = cordoning(self._world, card, {device.name for device in match.devices})
        if found is None:
            return None
        name, taint = found
        return Reason.CORDONED, f"DeviceTaintRule {name} gives it {taint.key}:{taint.effect}"

    def _node(self, name: str) -> Obstacle | None:
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


def _state(card: Card, match: Match) -> Obstacle | None:
    """Return what is wrong with the card itself."""
    if card.gpu is not None:
        driver = _condition(card, conditions.DRIVER_READY)
        if driver is None:
            return Reason.DRIVER_NOT_READY, "no adapter has told of its driver yet"
        if driver.status != conditions.TRUE:
            return Reason.DRIVER_NOT_READY, _why(driver)
        healthy = _condition(card, conditions.HARDWARE_HEALTHY)
        # Of a card that is partitioned, those that the fault does not concern are still given.
        is_given = bool(match.resource and card.offers.get(match.resource))
        if healthy is not None and healthy.status == conditions.FALSE and not is_given:
            return Reason.NOT_HEALTHY, _why(healthy)
    if not card.is_offered:
        return Reason.NOT_HEALTHY, "its device plugin does not count it as allocatable"
    return _tainted(card)


def _tainted(card: Card) -> Obstacle | None:
    """Return the taint of its devices that keeps new claims off it."""
    if any(each.key == attributes.MODE_TAINT for one in card.devices for each in one.taints or ()):
        applied = _condition(card, conditions.PARTITIONING_APPLIED)
        return Reason.PARTITIONING_CHANGES, _why(applied) if applied is not None else ""
    for taint in (card.device.taints if card.device else None) or ():
        if taint.effect in _BLOCKING:
            return Reason.NOT_HEALTHY, f"its device has the taint {taint.key}:{taint.effect}"
    return None


def _held(card: Card, match: Match) -> Obstacle | None:
    """Return who holds the card, or what of it the pod needs; one free device is enough."""
    if match.resource:
        return plugins.obstacle(card, match.resource)
    if match.devices:
        if leaving.free(card, match.devices, match.amounts):
            return None
        if too_little := _too_little(card, match):
            return Reason.NOT_ENOUGH_LEFT, too_little
    for holder in card.holders:
        reason = Reason.HELD_BY_POD if holder.pods else Reason.HELD_BY_CLAIM
        note = "" if holder.is_exact else " (which card of the node the API does not tell)"
        others = [each.label for each in card.holders if each is not holder]
        return reason, holder.text + note if note else errors.listed([holder.label, *others])
    return None


def _left(card: Card, match: Match) -> str:
    """Say of a card that would do who has the rest of it."""
    if match.resource:
        return plugins.left(card, match.resource)
    if not card.holders:
        return ""
    return f"a part of it is free; held: {errors.listed((each.label for each in card.holders), 3)}"


def _too_little(card: Card, match: Match) -> str:
    """Say how much of a shared card is left, where that is what is missing."""
    shared = [each for each in match.devices if each.allow_multiple_allocations]
    for device in shared:
        is_in_use = device.name in card.held_devices
        lacks = leaving.lacking(card, device, match.amounts)
        if lacks and (is_in_use or not card.held_devices):
            return " and ".join(
                f"{_amount(name, left)} of {name} is left, {_amount(name, need)} is needed"
                for name, (left, need) in sorted(lacks.items())
            )
    return ""


def _amount(name: str, value: int) -> str:
    if name != attributes.MEMORY:
        return str(value)
    return quantities.short(value)


def _offered(card: Card, match: Match, world: World) -> Obstacle | None:
    if card.is_plugin_node or match.devices:
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


def cordoning(world: World, card: Card, devices: set[str]) -> tuple[str, DeviceTaint] | None:
    """Return a rule, if rules keep new claims off all these devices of a card; one names one."""
    pool = names.pool_name(card.node)
    left, first = set(devices), None
    for name, rule in sorted(world.taint_rules.items()):
        chosen, taint = rule.spec.device_selector, rule.spec.taint
        if chosen is None or taint.effect not in _BLOCKING:
            continue
        if (chosen.driver or card.driver) != card.driver or (chosen.pool or pool) != pool:
            continue
        hit = left & {chosen.device} if chosen.device else left
        if hit and first is None:
            first = (name, taint)
        left = left - hit
    return None if left else first
