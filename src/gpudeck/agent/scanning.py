# SPDX-License-Identifier: Apache-2.0
"""Look at the PCI bus: when it changes, when the list of vendors changes, and every 30 s.

The look runs in a thread, since a sick device may keep a read of sysfs waiting. It
needs no API server. Where there is no bus to be read, nothing is said of any card:
an absent mount must not make every card of the node lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec

from gpudeck import errors, logs
from gpudeck.agent import describing, discovering, metrics
from gpudeck.agent.supported import Supported
from gpudeck.host import pci, pciids
from gpudeck.host.root import Root

CONFIRM_SECONDS = 0.2
"""A device that cannot be read is looked at once more after this: it may be going away."""
STUCK_FACTOR = 4
"""A look that has not come back for so many periods hangs inside the kernel."""
_log = logs.get(__name__)


class Seen(msgspec.Struct, frozen=True):
    """One complete look: the cards, the names of their numbers, the facts of the host."""

    inventory: discovering.Inventory
    book: pciids.Names
    host: describing.HostFacts
    vendor: str | None
    """What the node's vendor label should be."""


class Scanner:
    """Looks once; names come from the host's pci.ids, else from the image's."""

    def __init__(self, root: Root, node: str) -> None:
        self._root = root
        self._node = node
        self._book = pciids.Book(root, Root("/"))

    def look(self, supported: Supported) -> Seen:
        """Read bus and host; blocks on sysfs. UnavailableError where there is no bus."""
        if not self._root.is_directory(pci.DEVICES):
            raise errors.UnavailableError(
                f"{self._root.path}{pci.DEVICES} is not there", reason="PciBusUnreadable"
            )
        scan = pci.scan(self._root, supported.accepts)
        if scan.failures:
            # While the kernel removes a device, its folder outlives the values in it.
            time.sleep(CONFIRM_SECONDS)
            scan = pci.scan(self._root, supported.accepts)
        found = discovering.inventory(self._node, scan, supported)
        return Seen(
            inventory=found,
            book=self._book.names(card.device for card in found.cards.values()),
            host=describing.host_facts(self._root),
            vendor=discovering.node_vendor(found.cards, supported),
        )


class Scanning:
    """The task that looks again and again, and gives each result to `show`.

    Why there is none goes to `trouble`, once until it is another reason.
    """

    def __init__(
        self,
        scanner: Scanner,
        show: Callable[[Seen], None],
        trouble: Callable[[errors.GpudeckError], None],
        *,
        supported: Callable[[], Supported],
        seconds: float,
    ) -> None:
        self.last: Seen | None = None
        self._scanner = scanner
        self._show = show
        self._trouble = trouble
        self._supported = supported
        self._seconds = seconds
        self._wanted = asyncio.Event()
        self._began: float | None = None
        self._known_trouble = ""

    def again(self) -> None:
        """Look as soon as possible."""
        self._wanted.set()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the cards that were there at the last look."""
        if self.last is None:
            return ()
        return tuple(card.device.address for card in self.last.inventory.cards.values())

    def hanging(self) -> str:
        """What is wrong if a look does not come back, else the empty string."""
        limit = STUCK_FACTOR * self._seconds
        if self._began is None or time.monotonic() - self._began < limit:
            return ""
        return f"a look at the PCI bus has taken more than {limit:g} s"

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self._wanted.clear()
            await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._wanted.wait()

    async def _look(self) -> None:
        self._began = time.monotonic()
        try:
            seen = await asyncio.to_thread(self._scanner.look, self._supported())
        except errors.GpudeckError as error:
            metrics.scan_success.set(0)
            if self._known_trouble != error.message:
                _log.warning("The PCI bus cannot be read", error=error)
                self._trouble(error)
            self._known_trouble = error.message
            return
        finally:
            metrics.scan_seconds.observe(time.monotonic() - self._began)
            self._began = None
        self._known_trouble = ""
        metrics.scan_success.set(1)
        self.last = seen
        self._show(seen)
