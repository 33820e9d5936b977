# SPDX-License-Identifier: Apache-2.0
"""Which processes of the host have a device node open, and what they are called, as /proc tells.

Called where a driver says that a card is in use and not by whom. It looks at every process, so
it is for moments of failure. Of another PID namespace it sees what the host does: the numbers
are the host's. This process is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gpudeck import errors
from gpudeck.host.root import Root

_PROC = "/proc"


def openers(root: Root, nodes: Collection[str]) -> tuple[int, ...]:
    """Process ids of who has one of these device nodes open, by their paths on the host."""
    look = root.look()
    own = look.link(f"{_PROC}/self")
    pids = (each for each in look.list(_PROC) if each.isdigit() and each != own)
    return tuple(
        sorted(int(pid) for pid in pids if any(each in nodes for each in _open(look, pid)))
    )


def named(root: Root, pid: int) -> str:
    """`PID 4242 (dcgm)`, or without a name where the host knows none."""
    command = root.attribute(f"{_PROC}/{pid}/comm")
    return f"PID {pid} ({command})" if command else f"PID {pid}"


def _open(look: Root, pid: str) -> Iterator[str]:
    """What a process has open; nothing of one that has ended or may not be looked at."""
    folder = f"{_PROC}/{pid}/fd"
    try:
        for each in look.list(folder):
            yield look.link(f"{folder}/{each}") or ""
    except errors.GpudeckError:
        return
