# SPDX-License-Identifier: Apache-2.0
"""Looks at the bus: what one gives, and what is said when there is none or it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

import pytest

from gpudeck.agent import scanning
from gpudeck.agent.supported import DEFAULT, Supported
from gpudeck.errors import GpudeckError, UnavailableError
from gpudeck.host import pciids
from gpudeck.host.root import Root


def test_a_host_without_a_bus_is_refused_and_an_empty_bus_is_not(tmp_path: Path) -> None:
    scanner = scanning.Scanner(Root(tmp_path), "node-0")
    with pytest.raises(UnavailableError, match="sys/bus/pci/devices is not there"):
        scanner.look(DEFAULT)
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    seen = scanner.look(DEFAULT)
    assert seen.inventory.cards == {}
    assert seen.book == pciids.Names()
    assert seen.vendor is None


class Stuck(scanning.Scanner):
    """A look that waits inside a read until it is let go."""

    def __init__(self, root: Root) -> None:
        super().__init__(root, "node-0")
        self.inside, self.go = threading.Event(), threading.Event()

    def look(self, supported: Supported) -> scanning.Seen:
        self.inside.set()
        self.go.wait(10)
        return super().look(supported)


async def test_a_look_that_hangs_is_reported_while_the_loop_goes_on(tmp_path: Path) -> None:
    scanner = Stuck(Root(tmp_path))
    troubles: list[GpudeckError] = []
    told = asyncio.Event()

    def trouble(error: GpudeckError) -> None:
        troubles.append(error)
        told.set()

    task = scanning.Scanning(
        scanner, lambda seen: None, trouble, supported=lambda: DEFAULT, seconds=0.0
    )
    running = asyncio.create_task(task.run())
    await asyncio.to_thread(scanner.inside.wait, 10)
    assert task.hanging() == "a look at the PCI bus has taken more than 0 s"
    scanner.go.set()
    async with asyncio.timeout(5):
        await told.wait()
    assert troubles[0].reason == "PciBusUnreadable"
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
