# SPDX-License-Identifier: Apache-2.0
"""The processes of a lab as the kernel counts them: which there are, since when, how large."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclasses.dataclass(frozen=True)
class Process:
    """A process of gpudeck; `start` is in seconds since boot, to a hundredth."""

    pid: int
    name: str
    node: str
    start: float


@dataclasses.dataclass(frozen=True)
class Size:
    """What a process takes; memory in MB of the kernel's kB / 1000."""

    pss: float
    rss: float
    anonymous: float
    threads: int
    cpu_seconds: float


def now() -> float:
    """Seconds since boot, on the clock of `Process.start`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def found(cgroup: str) -> list[Process]:
    """The processes of gpudeck in the pods of a lab, by the lab's cgroup."""
    processes = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (process := _process(entry, cgroup)) is not None:
            processes.append(process)
    return sorted(processes, key=lambda each: (each.name, each.node, each.pid))


def size(pid: int) -> Size:
    """Read smaps_rollup and stat of a process."""
    rollup = {
        line.split(":")[0]: int(line.split()[1]) / 1000
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()[1:]
    }
    fields = _stat(_PROC / str(pid))
    return Size(
        pss=rollup["Pss"],
        rss=rollup["Rss"],
        anonymous=rollup["Anonymous"],
        threads=int(fields[17]),
        cpu_seconds=cpu_seconds(pid),
    )


def summed(sizes: Iterable[Size]) -> Size:
    """What several processes take together."""
    known = list(sizes)
    return Size(
        pss=sum(each.pss for each in known),
        rss=sum(each.rss for each in known),
        anonymous=sum(each.anonymous for each in known),
        threads=sum(each.threads for each in known),
        cpu_seconds=sum(each.cpu_seconds for each in known),
    )


def cpu_seconds(pid: int) -> float:
    """All its threads' time on a CPU, to the nanosecond: stat counts in hundredths only."""
    tasks = (_PROC / str(pid) / "task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _process(entry: Path, cgroup: str) -> Process | None:
    try:
        groups = (entry / "cgroup").read_text()
        if f"/{cgroup}/" not in groups:
            return None
        words = (entry / "cmdline").read_bytes().decode().split("\0")
        comm = (entry / "comm").read_text().strip()
        start = int(_stat(entry)[19]) / _TICKS
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None  # It ended while it was looked at.
    name = _name(words, comm)
    node = groups.split(f"/{cgroup}/")[1].split("/")[0]
    return Process(int(entry.name), name, node, start) if name else None


def _name(words: list[str], comm: str) -> str:
    if comm == "gpudeck-library":
        return "adapter nvidia, its library process"
    program = next((index for index, word in enumerate(words) if word.endswith("/gpudeck")), None)
    if program is None:
        return ""
    return " ".join(word for word in words[program + 1 :] if word and not word.startswith("-"))


def _stat(entry: Path) -> list[str]:
    """The fields of stat from the state on: what stands before may hold blanks."""
    return (entry / "stat").read_text().rpartition(")")[2].split()
