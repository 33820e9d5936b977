# SPDX-License-Identifier: Apache-2.0
"""Which troubles of a card count against it, as an administrator decides. Pure.

`supervisor` asks before `health` hears of anything, so verdicts are the same for every maker and
in both modes. Words and precedence are those of NVIDIA's device plugin 0.20 (its variables
DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS), but for two: a word that it passes over is
refused, and a number that is enabled counts also beside the word `all` of what is disabled.
A card that cannot be read is never healthy: nobody could use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gpudeck import errors
from gpudeck.settings import CardSettings
from gpudeck.vendors import contract, health

ALL, XIDS = "all", "xids"
_NUMBER = re.compile(r"[1-9][0-9]{0,4}")
_ALLOWED = f"{ALL}, {XIDS}, or numbers of Xids such as 48, separated by commas"


class Words(contract.Value, frozen=True):
    """One of the two lists."""

    numbers: frozenset[int] = frozenset()
    is_every_number: bool = False
    is_all: bool = False

    def name(self, xid: int | None) -> bool:
        """Whether an event of this number is meant."""
        return xid is not None and (self.is_every_number or xid in self.numbers)


class Heeded(contract.Value, frozen=True):
    """What counts. What is enabled comes before what is disabled, and both before the usual."""

    disabled: Words = Words()
    enabled: Words = Words()

    def event(self, event: contract.CardEvent) -> contract.CardEvent:
        """The event, with a fault if it counts."""
        if self.enabled.name(event.xid):
            return _replaced(event, event.fault or _wanted(event.xid))
        # What was kept by an earlier process may have counted because it was enabled then.
        counts = not self.disabled.name(event.xid) and event.fault != _wanted(event.xid)
        return event if counts else _replaced(event, None)

    def reading(self, reading: contract.CardReading) -> contract.CardReading:
        """The reading, with those faults that count."""
        if self.disabled.is_all and not self.enabled.is_all:
            return msgspec.structs.replace(reading, faults=())
        return reading

    def raised(self, raised: health.Raised) -> health.Raised | None:
        """What was raised when perhaps something else counted; None if none of it does now."""
        judged = map(self.event, raised.events)
        events = tuple(each for each in judged if each.fault is not None)
        return msgspec.structs.replace(raised, events=events) if events else None


def of(settings: CardSettings) -> Heeded:
    """What a process heeds. Raises InvalidError, by the flag, for a word that means nothing."""
    return Heeded(
        disabled=_read(settings.disable_health_checks, "--disable-health-checks"),
        enabled=_read(settings.enable_health_checks, "--enable-health-checks"),
    )


def _read(words: Iterable[str], field: str) -> Words:
    found = {each.lower() for each in words}
    numbers = found - {ALL, XIDS}
    for each in sorted(numbers):
        if not _NUMBER.fullmatch(each):
            raise errors.not_valid(field, each, _ALLOWED)
    return Words(
        numbers=frozenset(map(int, numbers)),
        is_every_number=not found.isdisjoint({ALL, XIDS}),
        is_all=ALL in found,
    )


def _wanted(xid: int | None) -> contract.Fault:
    """The fault of a number that is usually none of the card's."""
    return contract.Fault(
        reason="HardwareXid",
        message=f"The driver raised Xid {xid}, which is set to count as the card's fault.",
    )


def _replaced(event: contract.CardEvent, fault: contract.Fault | None) -> contract.CardEvent:
    return msgspec.structs.replace(event, fault=fault)
