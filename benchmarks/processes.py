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
    """What a process takes; memory in MB of the kernel's kB / 1000.

    Of a page that several have, PSS and anonymous memory count this one's share.
    """

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
        anonymous=rollup["Pss_Anon"],
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


def together(pids: Iterable[int]) -> float:
    """MB that processes take were there no others: what several of them map counts once.

    Of a file the process counts that has most of it in memory; the others are taken to have the
    same pages.
    """
    files: dict[str, float] = {}
    total = 0.0
    for pid in pids:
        total += size(pid).anonymous
        for path, megabytes in _mapped(pid).items():
            files[path] = max(files.get(path, 0.0), megabytes)
    return total + sum(files.values())


def _mapped(pid: int) -> dict[str, float]:
    """What of which file is in a process' memory unchanged."""
    found: dict[str, float] = {}
    path = ""
    for line in (_PROC / str(pid) / "smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            path = words[5] if len(words) > 5 and words[5].startswith("/") else ""
        elif path and words[0] in ("Rss:", "Anonymous:"):
            sign = 1 if words[0] == "Rss:" else -1
            found[path] = found.get(path, 0.0) + sign * int(words[1]) / 1000
    return found


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
