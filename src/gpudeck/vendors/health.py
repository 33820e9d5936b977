# SPDX-License-Identifier: Apache-2.0
"""From what was read and raised about a card to one verdict, with a way back.

Pure: `supervisor` tells what happened, in order, and keeps the `Memory` that comes
back. Three kinds of trouble differ in how they end:

    a fault that a reading shows      ends after CLEAN_READINGS readings without it
    a reading that fails              the same
    a fault that the driver raised    stays (case-35) through harmless events and clean readings
    once, as an event                 until a recovery is seen: the card was reset (its lifetime
                                      starts anew, or it or its driver was gone and it answers
                                      again), the driver asked for a recovery and no longer does,
                                      or the driver, asked again and again, has wanted none for
                                      RECOVERY_SECONDS

Readings of a restarted process tell what still holds; of what the driver raised it is told by
`Raised`, which `remembering` keeps, and ends it by the same recovery.
The message of a verdict is that of its beginning: it does not follow figures.
"""

from __future__ import annotations

import enum

import msgspec

from gpudeck.vendors import contract

CLEAN_READINGS = 2
RECOVERY_SECONDS = 300.0
SILENCE_SECONDS = 30.0


class Verdict(enum.StrEnum):
    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


class Health(contract.Value, frozen=True):
    """The verdict as it is published."""

    verdict: Verdict
    reason: str
    message: str
    since: int
    """Unix seconds at which this verdict with this reason began."""
    xid: int | None = None
    """The number of the last event, harmless ones included."""
    confined_to: tuple[str, ...] = ()
    """Where only some partitions of a card that is unhealthy are: `CardEvent.instance` of each.
    The card itself and what is to be made on it are not fit for new work meanwhile."""

    def concerns(self, driver_id: str) -> bool:
        """Whether the verdict is about the partition that the driver numbers so (case-06)."""
        return not self.confined_to or any(
            driver_id == each or (each.endswith("/") and driver_id.startswith(each))
            for each in self.confined_to
        )


class Raised(contract.Value, frozen=True):
    """What the driver raised about a card and no recovery has ended, as a restart outlives it."""

    events: tuple[contract.CardEvent, ...]
    """Those that are the card's fault, each number of each partition once, in order."""
    since: int
    """Unix seconds at which the first was raised."""
    lifetime: int | None = None
    """Of the card when it was raised: a smaller one tells that it was reset meanwhile."""

    @property
    def fault(self) -> contract.Fault:
        """The first one: a verdict keeps the name of its beginning."""
        return next(each.fault for each in self.events if each.fault is not None)

    @property
    def instances(self) -> tuple[str, ...]:
        """The partitions that it is about; empty: the whole card."""
        found = {each.instance for each in self.events}
        return () if "" in found else tuple(sorted(found))


class Moment(contract.Value, frozen=True):
    """Now: `steady` seconds for intervals, `unix` seconds for people."""

    steady: float
    unix: int


class Memory(contract.Value, frozen=True):
    """All that is remembered of one card."""

    health: Health
    raised: Raised | None = None
    gone: bool = False
    """Since `raised` the card was lost or not in the driver: only a new start ends that."""
    recovery_wanted: bool = False
    """The driver has asked for a recovery since `raised`."""
    recovery_unasked_since: float | None = None
    """From when on every answer was that none is needed."""
    lifetime: int | None = None
    counts: tuple[tuple[str, int], ...] = ()
    """Faults of the last readings: reason, readings in a row."""
    clean: int = 0
    """Readings in a row without any fault."""
    answered_at: float | None = None


def start(now: Moment) -> Memory:
    """Nothing is known of the card yet."""
    waiting = Health(
        verdict=Verdict.UNKNOWN,
        reason="NotReadYet",
        message="The card has not been read yet.",
        since=now.unix,
    )
    return Memory(health=waiting, answered_at=now.steady)


def resume(raised: Raised, now: Moment) -> Memory:
    """Nothing has been read yet, and this was raised before the process started."""
    waiting = _replace(start(now), raised=raised, lifetime=raised.lifetime)
    then = Moment(steady=now.steady, unix=raised.since)
    return _unhealthy(waiting, raised.fault, then, raised.instances)


def after_reading(memory: Memory, reading: contract.CardReading, now: Moment) -> Memory:
    """The card was read."""
    memory = _look_for_recovery(memory, reading, now)
    before = dict(memory.counts)
    counts = tuple((fault.reason, before.get(fault.reason, 0) + 1) for fault in reading.faults)
    standing = [
        fault
        for fault, (_, count) in zip(reading.faults, counts, strict=True)
        if count >= fault.confirm
    ]
    clean = 0 if reading.faults else memory.clean + 1
    memory = _replace(memory, counts=counts, clean=clean, answered_at=now.steady)
    raised = memory.raised
    if raised is not None and not (standing and raised.instances):
        return _unhealthy(memory, raised.fault, now, raised.instances)
    if standing:
        return _unhealthy(memory, standing[0], now)
    if memory.health.verdict is Verdict.UNHEALTHY and clean < CLEAN_READINGS:
        return memory
    return _verdict(memory, Verdict.HEALTHY, "Healthy", "No fault is known.", now)


def after_failure(memory: Memory, fault: contract.Fault, now: Moment) -> Memory:
    """The card could not be read."""
    memory = _unread(memory, fault.reason, now)
    return _unhealthy(memory, memory.raised.fault if memory.raised else fault, now)


def _unread(memory: Memory, reason: str, now: Moment) -> Memory:
    gone = memory.gone or (memory.raised is not None and reason in contract.GONE)
    return _replace(
        memory, counts=(), clean=0, answered_at=now.steady, recovery_unasked_since=None, gone=gone
    )


def after_event(memory: Memory, event: contract.CardEvent, now: Moment) -> Memory:
    """The driver raised something; only a fault of the card changes the verdict."""
    if event.xid is not None:
        health = msgspec.structs.replace(memory.health, xid=event.xid)
        memory = _replace(memory, health=health)
    if event.fault is None:
        return memory
    raised = memory.raised or Raised(events=(), since=now.unix, lifetime=memory.lifetime)
    if (event.xid, event.instance) not in {(each.xid, each.instance) for each in raised.events}:
        raised = msgspec.structs.replace(raised, events=(*raised.events, event))
    memory = _replace(memory, raised=raised, gone=False, recovery_unasked_since=None, clean=0)
    return _unhealthy(memory, raised.fault, now, raised.instances)


def after_silence(memory: Memory, now: Moment) -> Memory:
    """Nobody could ask the card: after SILENCE_SECONDS a good verdict is no longer known."""
    silent = now.steady - (memory.answered_at or 0.0)
    if memory.health.verdict is Verdict.UNHEALTHY or silent < SILENCE_SECONDS:
        return memory
    text = f"The card could not be asked for {SILENCE_SECONDS:g} s."
    return _verdict(memory, Verdict.UNKNOWN, "NoAnswer", text, now)


def without_driver(memory: Memory, driver: contract.DriverState, now: Moment) -> Memory:
    """The driver is away, and with it what readings told; what was raised stays.

    A library that fails to open, as beside a dying card, has reset none.
    """
    memory = _unread(memory, driver.reason, now)
    return _verdict(memory, Verdict.UNKNOWN, driver.reason, driver.message, now)


def _look_for_recovery(memory: Memory, reading: contract.CardReading, now: Moment) -> Memory:
    unasked = None
    if reading.recovery is contract.Recovery.NONE:
        unasked = memory.recovery_unasked_since
        unasked = now.steady if unasked is None else unasked
    wanted = memory.recovery_wanted or reading.recovery is contract.Recovery.NEEDED
    was_reset = memory.gone or (
        memory.lifetime is not None
        and reading.lifetime is not None
        and reading.lifetime < memory.lifetime
    )
    settled = unasked is not None and now.steady - unasked >= RECOVERY_SECONDS
    answered = unasked is not None and wanted
    memory = _replace(
        memory,
        lifetime=memory.lifetime if reading.lifetime is None else reading.lifetime,
        recovery_unasked_since=unasked,
        recovery_wanted=wanted and unasked is None,
    )
    if memory.raised is not None and (was_reset or answered or settled):
        return _replace(memory, raised=None, gone=False, recovery_wanted=False, clean=0)
    return memory


def _unhealthy(
    memory: Memory, fault: contract.Fault, now: Moment, confined_to: tuple[str, ...] = ()
) -> Memory:
    memory = _verdict(memory, Verdict.UNHEALTHY, fault.reason, fault.message, now)
    if memory.health.confined_to == confined_to:
        return memory
    confined = msgspec.structs.replace(memory.health, confined_to=confined_to)
    return _replace(memory, health=confined)


def _verdict(memory: Memory, verdict: Verdict, reason: str, message: str, now: Moment) -> Memory:
    health = memory.health
    if health.verdict is verdict and health.reason == reason:
        return memory
    new = Health(verdict=verdict, reason=reason, message=message, since=now.unix, xid=health.xid)
    return _replace(memory, health=new)


def _replace(memory: Memory, **changes: object) -> Memory:
    return msgspec.structs.replace(memory, **changes)
