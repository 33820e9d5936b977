# SPDX-License-Identifier: Apache-2.0
"""One measured figure, when it was taken, and the statistics of its runs."""

from __future__ import annotations

import datetime
import os
import statistics
from collections.abc import Sequence

import msgspec


class Figure(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was measured: one value a run, in `unit`; `key` names it for the peers' table."""

    key: str
    group: str
    what: str
    unit: str
    values: list[float]
    note: str = ""
    command: str = ""
    load: float = 0.0
    """The machine's load average over one minute, just before."""
    when: str = ""

    @property
    def median(self) -> float:
        """The middle of the runs."""
        return statistics.median(self.values)


def started() -> tuple[str, float]:
    """Return the day and the machine's load average, to be taken just before a measurement."""
    return datetime.datetime.now(datetime.UTC).date().isoformat(), os.getloadavg()[0]


def signed(found: list[Figure], command: str, before: tuple[str, float]) -> list[Figure]:
    """Return the figures with the command that takes them, and with what `started` said."""
    for each in found:
        each.command = command
        each.when, each.load = before
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * share // 1)
    return ordered[max(int(rank), 1) - 1]


def shown(value: float) -> str:
    """Three digits that say something: `14.9`, `0.52`, `181`."""
    if value == 0:
        return "0"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    if abs(value) < 0.1:
        digits = 4 if abs(value) < 0.01 else 3
    return f"{value:.{digits}f}"


def spread(values: Sequence[float]) -> str:
    """`median [least..most]`, or the value alone where there is one."""
    middle = shown(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} [{shown(min(values))}..{shown(max(values))}]"
