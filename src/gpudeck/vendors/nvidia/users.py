# SPDX-License-Identifier: Apache-2.0
"""Who uses a card, in words for people: the processes by number and name.

The driver lists programs that compute or draw; whoever only looks on, as monitoring does, is
found by the card's device node. Used where a card cannot be changed because it is in use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpudeck.host import openers
from gpudeck.host import root as host

_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
_GPUS = "/proc/driver/nvidia/gpus"


def named(root: host.Root, pids: Iterable[int]) -> str:
    """The processes, e.g. `PID 4242 (dcgm), PID 4711`; empty for none."""
    return ", ".join(openers.named(root, pid) for pid in sorted(set(pids)))


def of_cards(root: host.Root, addresses: Sequence[str]) -> tuple[int, ...]:
    """Processes of the host that have the device node of one of the cards open."""
    minors = [_MINOR.search(_about(root, each)) for each in addresses]
    nodes = {f"/dev/nvidia{each[1]}" for each in minors if each is not None}
    return openers.openers(root, nodes) if nodes else ()


def _about(root: host.Root, address: str) -> str:
    return root.attribute(f"{_GPUS}/{address}/information") or ""
