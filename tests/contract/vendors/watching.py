# SPDX-License-Identifier: Apache-2.0
"""A supervisor at work in a test, and the inventories that it published."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from gpudeck.vendors import calling, contract, probing, records, registry, supervisor

FAST = supervisor.Timing(
    poll=0.05,
    shortest_pause=0.01,
    read=0.5,
    act=0.5,
    open=3.0,
    first_inventory=10.0,
    longest_backoff=0.05,
)
FAST_PROBES = probing.Timing(every=0.1, open=3.0, read=0.5)


class Watched:
    """A supervisor at work and the last inventory it published."""

    def __init__(self) -> None:
        self.published: list[records.Inventory] = []
        self.changed = asyncio.Event()
        self.supervisor: supervisor.Supervisor

    def publish(self, inventory: records.Inventory) -> None:
        self.published.append(inventory)
        self.changed.set()

    def card(self, index: int) -> records.CardState:
        return self.published[-1].cards[index]

    def product(self, index: int) -> str:
        reading = self.card(index).reading
        return reading.product_name if reading is not None else ""

    def verdicts(self) -> list[tuple[str, str]]:
        cards = self.published[-1].cards
        return [(card.health.verdict.value, card.health.reason) for card in cards]

    async def until(self, wanted: Callable[[], bool], seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds):
            while not (self.published and wanted()):
                self.changed.clear()
                await self.changed.wait()


@contextlib.asynccontextmanager
async def watching(
    vendor: str, settings: contract.VendorSettings, *, timing: supervisor.Timing = FAST
) -> AsyncIterator[Watched]:
    """Watch a maker's cards until the block ends."""
    watched = Watched()
    program = calling.Program(vendor=vendor, settings=settings)
    watched.supervisor = supervisor.Supervisor(
        registry.load(vendor).vendor(settings),
        program,
        watched.publish,
        timing=timing,
        probe_timing=FAST_PROBES,
    )
    running = asyncio.create_task(watched.supervisor.run())
    try:
        yield watched
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
