# SPDX-License-Identifier: Apache-2.0
"""What is to be done next about the mode of a Node. Pure; `looking` sees, `reconciler` acts.

An administrator's wish is the label gpu.deckhouse.io/mode; without it the cluster's default
counts. What is in force is the label gpu.deckhouse.io/active-mode, which the DaemonSets of a
mode select. Between the two stand, in this order: a taint that keeps new pods away; pods that
hold cards go; the label goes, and with it the workloads of the old mode; what they offered
goes; the new label comes, and its offer; the taint goes. Each decision follows from what is
seen alone, so a controller that is killed at any of them goes on at the next look, and a
change of mind turns back from wherever it is.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import msgspec

from gpudeck.api import labels
from gpudeck.controller.modes.holders import Holder
from gpudeck.kube import evicting

SERVED = ("nvidia",)
"""Makers whose cards the workloads of the modes hand out, as their DaemonSets select nodes."""
SHOWN = 3
"""Things of one kind that a sentence names."""
_NAMES = {
    labels.MODE_DRA: "Dynamic Resource Allocation",
    labels.MODE_DEVICE_PLUGIN: "the device plugin",
}


class Phase(enum.StrEnum):
    """How far a Node is; the reason of its condition and of the Events."""

    NO_CARDS = "NoCards"
    """None that anybody hands out."""
    ACTIVE = "ModeActive"
    NOTHING_OFFERED = "NothingOffered"
    UNKNOWN = "ModeUnknown"
    WAITING_FOR_TURN = "WaitingForTurn"
    WAITING_FOR_NODE = "WaitingForNode"
    STARTING = "ModeChangeStarting"
    DRAINING = "DrainingPods"
    WAITING_FOR_CLAIMS = "WaitingForClaims"
    ENDING = "EndingMode"
    WAITING_FOR_WORKLOADS = "WaitingForWorkloads"
    WAITING_FOR_OFFER_TO_GO = "WaitingForOfferToGo"
    BEGINNING = "BeginningMode"
    WAITING_FOR_OFFER = "WaitingForOffer"

    @property
    def is_settled(self) -> bool:
        """Whether nothing is to be waited for."""
        return self in _SETTLED


_SETTLED = frozenset(
    {
        Phase.NO_CARDS,
        Phase.ACTIVE,
        Phase.NOTHING_OFFERED,
        Phase.UNKNOWN,
        Phase.WAITING_FOR_TURN,
        Phase.WAITING_FOR_NODE,
    }
)


class Workload(msgspec.Struct, frozen=True):
    """The pods of a mode on the node."""

    pods: tuple[str, ...] = ()
    is_ready: bool = False


class View(msgspec.Struct, frozen=True):
    """What is seen of a node at one moment."""

    labels: Mapping[str, str]
    taint: str | None = None
    """The mode that the taint says, None without the taint."""
    holders: tuple[Holder, ...] = ()
    claims: tuple[str, ...] = ()
    """Claims that hold devices of the node, as "namespace/name"."""
    workloads: Mapping[str, Workload] = {}
    """By mode."""
    offers: Mapping[str, tuple[str, ...]] = {}
    """What is there of an offer, by mode: ResourceSlices, extended resources."""
    devices: Mapping[str, int | None] = {}
    """How many devices are offered, by mode; None while that is not said to its end."""
    nothing: str = ""
    """Why no card is offered, as a sentence; empty where one is, or nobody says."""


class Step(msgspec.Struct, frozen=True):
    """What the Node must look like next, whom to evict, and a sentence for people."""

    phase: Phase
    active: str | None = None
    taint: str | None = None
    evict: tuple[evicting.Pod, ...] = ()
    message: str = ""


def wanted(known: Mapping[str, str], default: str) -> str:
    """Return the mode that the Node is to have; a wish that says nothing known changes nothing."""
    chosen = known.get(labels.MODE, default)
    if chosen in labels.MODES:
        return chosen
    active = known.get(labels.ACTIVE_MODE)
    return active if active in labels.MODES else default


def settled(
    known: Mapping[str, str],
    taint: str | None,
    default: str,
    *,
    may_start: bool = True,
    is_ready: bool = True,
    nothing: str = "",
) -> Step | None:
    """Return the step of a Node where the labels say all; None where more is to be seen.

    `may_start` is False while other nodes have to be done first, `is_ready` while the kubelet
    ends and begins no pod; `nothing` is as in a View.
    """
    if known.get(labels.VENDOR) not in SERVED:
        return Step(Phase.NO_CARDS)
    target = wanted(known, default)
    active = known.get(labels.ACTIVE_MODE)
    if taint is None and active == target:
        return _settled(known, target, nothing)
    if taint is None and active == _other(target):
        why = f"Cards are to change from {active} to {target}, after"
        if not is_ready:
            why = f"Cards are to change from {active} to {target} once the node is Ready."
            return Step(Phase.WAITING_FOR_NODE, active, message=why)
        if not may_start:
            why = f"{why} those of other nodes."
            return Step(Phase.WAITING_FOR_TURN, active, message=why)
        if _is_partitioned(known):
            why = f"{why} their partitions, which are being changed (label {labels.MIG_STATE})."
            return Step(Phase.WAITING_FOR_TURN, active, message=why)
    return None


def _is_partitioned(known: Mapping[str, str]) -> bool:
    """Whether mig-manager may be resetting cards; at its end the label goes, which wakes us."""
    return known.get(f"{labels.DEPLOY}device-plugin") == labels.PAUSED_FOR_MIG


def _settled(known: Mapping[str, str], target: str, nothing: str) -> Step:
    chosen = known.get(labels.MODE, target)
    if chosen not in labels.MODES:
        allowed = " or ".join(labels.MODES)
        why = f"label {labels.MODE}: {chosen!r} is not valid; allowed: {allowed}"
        return Step(Phase.UNKNOWN, target, message=f"{why}. The mode {target} stays in force.")
    way = f"Cards are handed out by {_NAMES[target]}"
    if nothing:
        return Step(Phase.NOTHING_OFFERED, target, message=f"{way}, but none is offered. {nothing}")
    return Step(Phase.ACTIVE, target, message=f"{way}.")


def decide(view: View, default: str, *, is_late: bool = False) -> Step:
    """Return what is to be done.

    `is_late` is True when the change has taken its time: cards that are not offered then keep
    nobody else off the node.
    """
    known = settled(view.labels, view.taint, default, nothing=view.nothing)
    if known is not None:
        return known
    target = wanted(view.labels, default)
    other = _other(target)
    active = view.labels.get(labels.ACTIVE_MODE)
    if active == target:
        return _begin(view, target, is_late=is_late)
    if active == other:
        return _leave(view, target)
    return _between(view, target)


def _begin(view: View, target: str, *, is_late: bool) -> Step:
    """The new mode is in force, or a change was turned back: until it offers cards."""
    if view.taint != target:
        return Step(Phase.BEGINNING, target, target, message=f"The mode {target} begins.")
    load = view.workloads.get(target, Workload())
    devices = view.devices.get(target)
    if load.is_ready and devices is not None:
        # A node whose cards are all sick, say, has come as far as it can.
        nothing = "" if devices else view.nothing or f"{_listed(load.pods)} offers no device."
        return _settled(view.labels, target, nothing)
    if load.is_ready:
        missing = f"{_listed(load.pods)} is ready, but offers no card yet"
    elif load.pods:
        missing = f"{_listed(load.pods)} is not ready yet"
    else:
        missing = _absent(view.labels, target)
    why = f"The mode {target} has begun: {missing}."
    if load.is_ready and is_late:
        why += " New pods are let onto the node all the same."
        return Step(Phase.ACTIVE, target, message=why)
    return Step(Phase.WAITING_FOR_OFFER, target, target, message=why)


def _absent(known: Mapping[str, str], target: str) -> str:
    """Say why no pod of a mode is on the node."""
    label = f"{labels.DEPLOY}device-plugin"
    value = known.get(label) if target == labels.MODE_DEVICE_PLUGIN else None
    if value in ("false", labels.PAUSED_FOR_MIG):
        return f"the label {label}={value} keeps its pod off the node"
    return "no pod of it is on the node yet"


def _leave(view: View, target: str) -> Step:
    """The old mode is in force: until nobody holds a card by it."""
    old = _other(target)
    change = f"Cards change from {old} to {target}"
    if view.taint != target:
        return Step(Phase.STARTING, old, target, message=f"{change}: new pods are kept away.")
    held = [each for each in view.holders if each.mode == old]
    if held:
        evict = tuple(each.pod for each in held if not each.is_leaving and not each.is_static)
        why = f"{change}: pods that hold cards are to go: {_holders(held)}."
        return Step(Phase.DRAINING, old, target, evict, why)
    if view.claims and old == labels.MODE_DRA:
        why = f"{change}: claims without a pod hold cards: {_listed(view.claims)}."
        return Step(Phase.WAITING_FOR_CLAIMS, old, target, message=why)
    if _is_partitioned(view.labels):
        why = f"{change}: its partitions are being changed (label {labels.MIG_STATE})."
        return Step(Phase.DRAINING, old, target, message=why)
    return Step(Phase.ENDING, None, target, message=f"{change}: nothing holds a card any more.")


def _between(view: View, target: str) -> Step:
    """No mode is in force: until nothing of the old one is left."""
    old = _other(target)
    load = view.workloads.get(old, Workload())
    offers = view.offers.get(old, ())
    held = [each for each in view.holders if each.mode == old]
    # A node that has just come may have cards by somebody else's plugin: its pods are let alone.
    is_ours = view.taint is not None or bool(load.pods) or old == labels.MODE_DRA
    taint = target if view.taint is not None else None
    change = f"Cards change from {old} to {target}"
    if held and not is_ours:
        by = "a plugin that this installation did not run"
        why = f"{change}: pods have cards by {by}, and are to end: {_holders(held)}."
        return Step(Phase.WAITING_FOR_OFFER_TO_GO, None, taint, message=why)
    if held or (old == labels.MODE_DRA and view.claims):
        # Only the old mode's own workloads can give back what is held by it.
        why = f"{change}: cards are still held by {old}, which is let run on until they are not."
        return Step(Phase.STARTING, old, target, message=why)
    if load.pods:
        why = f"{change}: {_listed(load.pods)} is still on the node."
        return Step(Phase.WAITING_FOR_WORKLOADS, None, taint, message=why)
    if offers:
        why = f"{change}: the node still offers {_listed(offers)}."
        return Step(Phase.WAITING_FOR_OFFER_TO_GO, None, taint, message=why)
    if view.taint is None:
        return _settled(view.labels, target, view.nothing)
    return Step(Phase.BEGINNING, target, target, message=f"The mode {target} begins.")


def _other(mode: str) -> str:
    return next(each for each in labels.MODES if each != mode)


def _holders(holders: Iterable[Holder]) -> str:
    return _listed([f"{each.pod}{_about(each)}" for each in holders])


def _about(holder: Holder) -> str:
    if holder.is_static:
        return " (a static pod, which only its file on the node ends)"
    if holder.daemon_set:
        return f" (of DaemonSet {holder.daemon_set})"
    return ""


def _listed(found: Iterable[str]) -> str:
    """Return the first few in words."""
    names = sorted(found)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
