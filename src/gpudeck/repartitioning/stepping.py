# SPDX-License-Identifier: Apache-2.0
"""The next step of a change of a node's partitions. Pure.

A step is what the Node is to say, and what is to be done once it says so. It is worked out
anew each time from the Node, the cards, the pods and the time, and nothing that it needs
is kept but on the Node: so it does not matter when the process was ended. Pods and
workloads are disturbed only for a change that the cards can take; every way out of a
change gives the node back as it was found.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import msgspec

from gpudeck import errors
from gpudeck.api import labels
from gpudeck.kubelet import listing
from gpudeck.mig import nodes, progress
from gpudeck.mig.progress import Phase, Record
from gpudeck.repartitioning.looking import Failure, Look

DEVICE_PLUGIN = "device-plugin"
AGAIN_SECONDS = 60.0
"""Between two looks at cards that are not as wanted and cannot be made so."""
SOON_SECONDS = 1.0
LATER_SECONDS = 10.0
OFFER_SECONDS = 30.0
"""After which a node is given back whatever it still offers; a kubelet says what its node offers
every 10 s by default."""
NEED_REBOOT = frozenset({"ModeStillPending", "ResetUnsupported", "ResetFailed", "ResetHung"})
"""Reasons of the drivers' errors that only a reboot of the host ends."""
IN_USE = frozenset({"CardInUse", "PartitionInUse"})
"""Reasons of the drivers' errors that end with whoever uses a card."""
ORDINARY = frozenset(
    {
        "Applied",
        "Draining",
        "Pausing",
        "Stopping",
        "Changing",
        "Emptying",
        "Rebooting",
        "RebootNotApproved",
        "StandingBy",
    }
)
"""Reasons of conditions that tell of nothing wrong."""


class Act(enum.StrEnum):
    """What is to be done once the Node says what it is to say."""

    NOTHING = "nothing"
    LOOK = "look"
    """Read the cards."""
    STOP = "stop"
    """Stop services of the host."""
    APPLY = "apply"
    """Change the cards."""
    REBOOT = "reboot"


class Limits(msgspec.Struct, frozen=True):
    """Seconds, and whether the host may be rebooted."""

    drain: float = 600.0
    pause: float = 300.0
    change: float = 600.0
    reboot: float = 900.0
    may_reboot: bool = False
    needs_leave: bool = False


class Said(msgspec.Struct, frozen=True):
    """The condition of the Node. `status` is True, False or Unknown."""

    status: str
    reason: str
    message: str


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """All that a step depends on."""

    now: int
    boot: str
    seen: nodes.Seen
    wanted: str
    """Name of the config; empty: nobody chose one."""
    look: Look | None = None
    age: float = 0.0
    """Seconds since the look."""
    pods: tuple[listing.Pod, ...] | None = None
    """None: the kubelet does not tell."""
    clients: tuple[str, ...] | None = ()
    """Services of the host that run and have cards open. None: the host does not tell."""
    stopped: tuple[str, ...] = ()
    """Services of the host that were stopped for a change."""
    failures: tuple[Failure, ...] = ()
    """What came of the last attempt of this phase."""
    failed_for: float = 0.0
    """Seconds since then."""
    rebooting: bool = False
    """The host was told to reboot by this very process."""
    namespace: str = ""
    """Of the workloads that are paused."""
    limits: Limits = Limits()


class Step(msgspec.Struct, frozen=True, kw_only=True):
    wish: nodes.Wish
    said: Said
    start: tuple[str, ...] = ()
    """Services of the host that are to run before the Node says so."""
    act: Act = Act.NOTHING
    pause: float | None = None
    """Seconds until the next step, if nothing happens before."""
    awaits_pods: bool = False
    """What is waited for is that pods of the node come or go."""


def step(at: Situation) -> Step:
    """Return the next step."""
    at = _in_time(at)
    found = _once_it_is_told(at, _next(at))
    after = found.wish.record
    # An approval may take days, in which the host is to be looked after as ever.
    if after is None or not after.is_under_way or after.phase is Phase.APPROVING:
        found = msgspec.structs.replace(found, start=at.stopped)
    return found


def _in_time(at: Situation) -> Situation:
    """A phase that is yet to come, as where the clock was set back, begins now: it is to end."""
    record = at.seen.record
    if record is None or record.since <= at.now:
        return at
    seen = msgspec.structs.replace(at.seen, record=msgspec.structs.replace(record, since=at.now))
    return msgspec.structs.replace(at, seen=seen)


def _once_it_is_told(at: Situation, found: Step) -> Step:
    """Keep a node that is to be given back until it no longer offers what its cards were before.

    Pods would be sent to it for that, and end with an error: the kubelet has nothing for them.
    """
    record, after = at.seen.record, found.wish.record
    if record is None or after is None or after.is_under_way or not at.seen.offers:
        return found
    is_late = at.now - record.since > OFFER_SECONDS
    if record.phase is not Phase.CHANGING or nodes.PLUGIN not in record.paused or is_late:
        return found
    message = "The cards are done; the Node still says what they offered before."
    return _wait(record, "Changing", message, SOON_SECONDS)


def _next(at: Situation) -> Step:
    if at.seen.mode != DEVICE_PLUGIN or at.seen.changes_mode:
        return Step(wish=nodes.Wish(), said=_standing_by(at.seen))
    if not at.wanted:
        said = Said("Unknown", "NotChosen", "No config is chosen: the cards stay as they are.")
        return Step(wish=nodes.Wish(), said=said)
    if at.look is None or at.look.name != at.wanted:
        return _look(at, _as_it_is(at.seen))
    record = at.seen.record
    if record is not None and record.reason and not at.seen.state:
        # Somebody wants it tried again.
        return _look(at, nodes.Wish(state=progress.State.PENDING))
    return _of_look(at, at.look)


def _of_look(at: Situation, look: Look) -> Step:
    if look.error is not None:
        return _refused(at, look, look.error)
    if look.is_done:
        message = " ".join((f"The cards are partitioned as {at.wanted} says.", *look.notes))
        return Step(wish=_done(at), said=Said("True", "Applied", message))
    return _open(at, look)


def _look(at: Situation, wish: nodes.Wish) -> Step:
    said = Said("Unknown", "Looking", f"The cards are read for the config {at.wanted}.")
    return Step(wish=wish, said=said, act=Act.LOOK)


def _standing_by(seen: nodes.Seen) -> Said:
    if seen.changes_mode:
        return Said("Unknown", "ModeOpen", "The mode of the node is being changed.")
    if seen.mode:
        message = (
            f"The node is in {seen.mode} mode, where partitions follow the claims of pods; "
            "the config has no effect."
        )
        return Said("Unknown", "StandingBy", message)
    return Said("Unknown", "ModeOpen", "The controller has not said in which mode the node is.")


def _as_it_is(seen: nodes.Seen) -> nodes.Wish:
    if seen.record is None:
        return nodes.Wish(state=seen.state)
    return nodes.wish(seen.record)


def _refused(at: Situation, look: Look, error: errors.GpudeckError) -> Step:
    """The config is no good, or the cards cannot be read."""
    record = at.seen.record
    if not isinstance(error, errors.RetryableError):
        return _fail(at, look, error.reason, error.message)
    if record is not None and record.is_under_way and at.now - record.since > at.limits.change:
        return _fail(at, look, error.reason, error.message)
    wish = nodes.Wish(state=progress.State.PENDING)
    if record is not None and record.is_under_way:
        wish = nodes.wish(record)
    elif record is not None and record.config == look.name:
        # What it was before is kept; whether it is so now, nobody knows.
        wish = nodes.Wish(record=record, state=progress.State.PENDING)
    # A driver that comes leaves traces, which bring another look at once.
    pause = LATER_SECONDS if record is not None and record.is_under_way else AGAIN_SECONDS
    act = Act.LOOK if at.age >= pause else Act.NOTHING
    said = Said("False", error.reason, error.message)
    return Step(wish=wish, said=said, act=act, pause=pause)


def _open(at: Situation, look: Look) -> Step:
    """Cards are not as wanted."""
    record = at.seen.record
    if record is None or not record.is_under_way or not _is_same(record, look):
        return _begin(at, look, record)
    match record.phase:
        case Phase.DRAINING:
            return _drain(at, look, record)
        case Phase.PAUSING:
            return _pause(at, look, record)
        case Phase.CHANGING:
            return _change(at, look, record)
        case _:
            return _reboot(at, look, record)


def _is_same(record: Record, look: Look) -> bool:
    return (record.config, record.digest) == (look.name, look.digest)


def _begin(at: Situation, look: Look, record: Record | None) -> Step:
    if record is not None and not record.is_under_way:
        tried = (record.tried, record.boot) == (look.fingerprint, at.boot)
        if record.reason and _is_same(record, look) and tried:
            return _fail(at, look, record.reason, record.message)
    if not look.can_change:
        return _fail(at, look, look.failures[0].reason, _sentences(look.failures))
    # What is paused for a change that is no longer wanted stays so for this one.
    return _go_on(at, Phase.DRAINING, rebooted=False, asked=False)


def _drain(at: Situation, look: Look, record: Record) -> Step:
    late = at.now - record.since > at.limits.drain
    if at.pods is None:
        return _blind(at, look, record, is_late=late)
    holders = look.holders(at.pods)
    if not holders:
        paused = {**nodes.pauses(at.seen.deploy), **record.paused}
        return _go_on(at, Phase.PAUSING, paused=paused)
    names = _listed(map(str, holders))
    kept = f" {at.seen.blocked}" if at.seen.blocked else ""
    if late:
        message = (
            f"Pods that hold what is to change have not ended within {at.limits.drain:g} s: "
            f"{names}.{kept} End them, then remove the label {labels.MIG_STATE}."
        )
        return _fail(at, look, "DrainTimeLimit", message)
    message = f"Pods that hold what is to change are asked to end: {names}.{kept}"
    why = f"its cards are to be partitioned as {look.name}"
    wish = nodes.wish(record, drain=holders, why=why)
    return _await_pods(at, wish, Said("False", "Draining", message), at.limits.drain)


def _blind(at: Situation, look: Look, record: Record, *, is_late: bool) -> Step:
    """Nobody knows what pods hold: nothing is changed."""
    message = "The kubelet does not tell which pods there are on the node and what they hold."
    if is_late:
        return _fail(at, look, "PodsUnknown", message)
    return _await_pods(at, nodes.wish(record), Said("False", "PodsUnknown", message), SOON_SECONDS)


def _await_pods(at: Situation, wish: nodes.Wish, said: Said, limit: float) -> Step:
    """Wait for pods to go, or until they have not done so for too long."""
    since = wish.record.since if wish.record is not None else at.now
    left = max(limit - (at.now - since), 0.0) + SOON_SECONDS
    return Step(wish=wish, said=said, pause=min(left, LATER_SECONDS), awaits_pods=True)


def _pause(at: Situation, look: Look, record: Record) -> Step:
    late = at.now - record.since > at.limits.pause
    if at.pods is None:
        return _blind(at, look, record, is_late=late)
    containers = nodes.containers(record.paused)
    running = [
        f"{each.namespace}/{each.name}"
        for each in at.pods
        if each.namespace == at.namespace and not containers.isdisjoint(each.containers)
    ]
    if running:
        names = _listed(running)
        if late:
            message = f"Workloads of the cards have not ended within {at.limits.pause:g} s: {names}"
            return _fail(at, look, "PauseTimeLimit", f"{message}.")
        said = Said("False", "Pausing", f"Workloads of the cards end: {names}.")
        return _await_pods(at, nodes.wish(record), said, at.limits.pause)
    if look.holders(at.pods):  # They came before the device plugin ended.
        return _go_on(at, Phase.DRAINING)
    return _go_on(at, Phase.CHANGING)


def _change(at: Situation, look: Look, record: Record) -> Step:
    late = at.now - record.since > at.limits.change
    if at.pods is None:
        return _blind(at, look, record, is_late=late)
    if look.holders(at.pods):
        return _go_on(at, Phase.DRAINING)
    failed = _after_failure(at, look, record, is_late=late) if at.failures else None
    if failed is not None:
        return failed
    if at.clients != ():
        return _stop(at, look, record, is_late=late)
    said = Said("False", "Changing", f"The cards are being partitioned as {look.name}.")
    return Step(wish=nodes.wish(record), said=said, act=Act.APPLY)


def _after_failure(at: Situation, look: Look, record: Record, *, is_late: bool) -> Step | None:
    """None where it is to be tried again now."""
    message = _sentences(at.failures)
    if any(each.reason in NEED_REBOOT for each in at.failures):
        return _need_reboot(at, look, record, message)
    passes = all(each.is_passing for each in at.failures) or _clients_end(at, record)
    if is_late or not passes:
        return _fail(at, look, at.failures[0].reason, message)
    left = LATER_SECONDS - at.failed_for
    return _wait(record, at.failures[0].reason, message, left) if left > 0 else None


def _clients_end(at: Situation, record: Record) -> bool:
    """Whether who uses the cards may be somebody's own workload, which is to end for the change."""
    is_in_time = at.now - record.since <= at.limits.pause
    return (
        is_in_time and nodes.CLIENT in record.paused and {f.reason for f in at.failures} <= IN_USE
    )


def _stop(at: Situation, look: Look, record: Record, *, is_late: bool) -> Step:
    """Services of the host have cards open."""
    if at.clients is None:
        message = "The host does not tell which of its services run."
        if is_late:
            return _fail(at, look, "ClientsUnknown", message)
        return _wait(record, "ClientsUnknown", message, SOON_SECONDS)
    message = f"Services of the host that have cards open are stopped: {_listed(at.clients)}."
    if is_late:
        return _fail(at, look, "ClientsRun", f"They do not stay so. {message}")
    said = Said("False", "Stopping", message)
    return Step(wish=nodes.wish(record), said=said, act=Act.STOP)


def _need_reboot(at: Situation, look: Look, record: Record, message: str) -> Step:
    if record.rebooted:
        return _fail(at, look, "RebootDidNotHelp", f"The node was rebooted. {message}")
    if not at.limits.may_reboot:
        message += " Or let mig-manager reboot it (chart value migManager.reboot.enabled)."
        return _fail(at, look, "RebootRequired", message)
    if not at.limits.needs_leave:
        return _go_on(at, Phase.EMPTYING, message=message)
    return _go_on(at, Phase.APPROVING, asked=True, message=message)


def _reboot(at: Situation, look: Look, record: Record) -> Step:
    if record.boot != at.boot:
        return _go_on(at, Phase.DRAINING, rebooted=True, asked=False)
    if not at.limits.may_reboot:  # Any more; or the record is not as we wrote it.
        return _go_on(at, Phase.DRAINING, asked=False)
    match record.phase:
        case Phase.APPROVING:
            return _approve(at, record)
        case Phase.EMPTYING:
            return _empty(at, look, record)
        case _:
            return _await_reboot(at, look, record)


def _await_reboot(at: Situation, look: Look, record: Record) -> Step:
    if at.failures:
        return _fail(at, look, at.failures[0].reason, _sentences(at.failures))
    if at.now - record.since > at.limits.reboot:
        message = f"The node was told to reboot and has not for {at.limits.reboot:g} s."
        return _fail(at, look, "RebootDidNotHappen", message)
    said = Said("False", "Rebooting", "The node is being rebooted for its cards.")
    act = Act.NOTHING if at.rebooting else Act.REBOOT
    return Step(wish=nodes.wish(record), said=said, act=act, pause=LATER_SECONDS)


def _approve(at: Situation, record: Record) -> Step:
    if at.seen.may_reboot:
        return _go_on(at, Phase.EMPTYING, message=record.message)
    message = (
        f"{record.message} The node is to be rebooted, and waits for the approval of that: "
        f"the annotation {labels.DISRUPTION_APPROVED} of the Node."
    )
    return _wait(record, "RebootNotApproved", message.strip(), None)


def _empty(at: Situation, look: Look, record: Record) -> Step:
    """The controller evicts all that a reboot would end, as it knows who comes back at once."""
    request = str(record.since)
    if at.seen.drained == request:
        return _go_on(at, Phase.REBOOTING, message=record.message)
    kept = f" {at.seen.blocked}" if at.seen.blocked else ""
    if at.now - record.since > at.limits.drain:
        message = (
            f"Pods of the node, which is to be rebooted, have not ended within "
            f"{at.limits.drain:g} s.{kept} End them, then remove the label {labels.MIG_STATE}."
        )
        return _fail(at, look, "DrainTimeLimit", message)
    why = "the node is to be rebooted for its cards"
    wish = nodes.wish(record, empty=request, why=why)
    message = f"All pods of the node are asked to end before its reboot.{kept}"
    return Step(wish=wish, said=Said("False", "Emptying", message), pause=LATER_SECONDS)


def _record(at: Situation, phase: Phase, **more: Any) -> Record:
    """The record of a phase that begins now."""
    old = at.seen.record
    fields: dict[str, Any] = {
        "version": progress.VERSION,
        "config": at.wanted,
        "digest": at.look.digest if at.look is not None else "",
        "phase": phase,
        "since": at.now,
        "boot": at.boot,
    }
    if phase is not Phase.DONE and old is not None and old.is_under_way:
        fields |= {name: getattr(old, name) for name in ("paused", "rebooted", "asked")}
    return Record(**{**fields, **more})


def _done(at: Situation, **more: Any) -> nodes.Wish:
    """The outcome; one that is found again is as old as it was."""
    record, old = _record(at, Phase.DONE, **more), at.seen.record
    if old is not None and msgspec.structs.replace(record, since=old.since) == old:
        record = old
    return nodes.wish(record)


def _go_on(at: Situation, phase: Phase, **more: Any) -> Step:
    record = _record(at, phase, **more)
    said = Said("False", "GoingOn", f"The cards are to be partitioned as {at.wanted}.")
    return Step(wish=nodes.wish(record), said=said, pause=0.0)


def _wait(record: Record, reason: str, message: str, pause: float | None) -> Step:
    return Step(wish=nodes.wish(record), said=Said("False", reason, message), pause=pause)


def _fail(at: Situation, look: Look, reason: str, message: str) -> Step:
    """Give the node back; the partitions stay as they are. Other cards may bring another step."""
    wish = _done(at, reason=reason, message=message, tried=look.fingerprint)
    act = Act.LOOK if at.age >= AGAIN_SECONDS else Act.NOTHING
    return Step(wish=wish, said=Said("False", reason, message), act=act, pause=AGAIN_SECONDS)


def _sentences(failures: Iterable[Failure]) -> str:
    return " ".join(dict.fromkeys(f"{each.message.rstrip('.')}." for each in failures))


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return ", ".join(found[:5]) + more
