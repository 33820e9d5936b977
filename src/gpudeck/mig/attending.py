# SPDX-License-Identifier: Apache-2.0
"""The cards of the host that this process runs on, read and ready to be changed.

Used by the command `gpudeck mig`, which is no process of the chart: it has the maker's
library in a process of its own like they do, so that a broken driver does not hang it.
One at a time changes the cards of a host: a lock on a file of the host sees to that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping

import msgspec

from gpudeck import errors, finishing
from gpudeck.host import locks, root
from gpudeck.vendors import calling, contract, records, registry, supervisor

_LOCK = "/run/gpudeck-mig.lock"
LOCK_SECONDS = 60.0
_FIRST_SECONDS = 120.0
"""For the driver to open and each card to be read, those that hang included."""


class Place(msgspec.Struct, frozen=True):
    """Whose cards, and where."""

    vendor: str = "nvidia"
    host_root: str = "/"
    log_level: str = "error"


class Cards:
    """The cards of a host while they are attended to."""

    def __init__(self, place: Place) -> None:
        settings = contract.VendorSettings(
            host_root=place.host_root, host_root_on_node=place.host_root
        )
        self._first = asyncio.Event()
        self._inventory = records.Inventory()
        self.vendor = registry.load(place.vendor).vendor(settings)
        self.supervisor = supervisor.Supervisor(
            self.vendor,
            calling.Program(vendor=place.vendor, settings=settings, log_level=place.log_level),
            self._publish,
            # No inventory before each card was read, or has failed to be.
            timing=supervisor.Timing(first_inventory=_FIRST_SECONDS),
        )

    @property
    def now(self) -> tuple[records.CardState, ...]:
        """Every card as it was last read, by address; anew after each change."""
        return self._inventory.cards

    def _publish(self, inventory: records.Inventory) -> None:
        self._inventory = inventory
        self._first.set()

    async def ready(self) -> None:
        """Wait for the first inventory. Raises UnavailableError where there is no driver."""
        try:
            async with asyncio.timeout(2 * _FIRST_SECONDS):
                await self._first.wait()
        except TimeoutError as error:
            raise errors.UnavailableError(
                f"the cards have not been read for {2 * _FIRST_SECONDS:g} s"
            ) from error
        driver = self._inventory.driver
        if not driver.ready:
            raise errors.UnavailableError(driver.message, reason=driver.reason)

    async def act(self, address: str, action: contract.Action) -> contract.Partition | None:
        """`Supervisor.act`."""
        return await self.supervisor.act(address, action)

    async def switch(self, wanted: Mapping[str, bool]) -> Mapping[str, errors.GpudeckError]:
        """`Supervisor.switch`."""
        return await self.supervisor.switch(wanted)


@contextlib.asynccontextmanager
async def attended(place: Place, *, changing: bool = False) -> AsyncIterator[Cards]:
    """The cards of a host; `changing` waits for others that change them and keeps them off.

    Raises UnavailableError where the driver is not there, BusyError where another process
    has been changing cards for a minute.
    """
    async with contextlib.AsyncExitStack() as stack:
        if changing:
            host = root.Root(place.host_root)
            host.make_directory("/run")
            lock = host.real(_LOCK)
            await stack.enter_async_context(locks.held(lock, deadline_seconds=LOCK_SECONDS))
        cards = Cards(place)
        running = asyncio.create_task(cards.supervisor.run())
        try:
            await _unless_ended(running, cards.ready())
            yield cards
        finally:
            await finishing.ended(running)
        if not running.cancelled():
            running.result()


async def _unless_ended(running: asyncio.Task[None], waiting: Awaitable[None]) -> None:
    """Wait, but not for a supervisor that has ended, which it does by an error alone."""
    ready = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        is_ready = ready.done()
    finally:
        await finishing.ended(ready)
    await (ready if is_ready else running)
