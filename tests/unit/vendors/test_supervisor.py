# SPDX-License-Identifier: Apache-2.0
"""The supervisor over real processes of the simulated maker."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from gpudeck.vendors import calling, contract, health, probing, records, registry, supervisor
from gpudeck.vendors.simulated import machine

FAST = supervisor.Timing(
    poll=0.05, shortest_pause=0.01, read=0.5, open=3.0, first_inventory=10.0, longest_backoff=0.05
)
FAST_PROBES = probing.Timing(every=0.1, open=3.0, read=0.5)


class Watched:
    """A supervisor at work and the last inventory it published."""

    def __init__(self, root: Path) -> None:
        self.bench = machine.Bench(root)
        self.published: list[records.Inventory] = []
        self.changed = asyncio.Event()
        self.settings = contract.VendorSettings(host_root=str(root))

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
async def watching(root: Path, cards: int = 3) -> AsyncIterator[Watched]:
    watched = Watched(root)
    if not watched.bench.path.exists():
        watched.bench.write(machine.make(cards))
    program = calling.Program(vendor="simulated", settings=watched.settings)
    vendor = registry.load("simulated").vendor(watched.settings)
    running = asyncio.create_task(
        supervisor.Supervisor(
            vendor, program, watched.publish, timing=FAST, probe_timing=FAST_PROBES
        ).run()
    )
    try:
        yield watched
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


GOOD = ("Healthy", "Healthy")


async def test_the_first_inventory_has_every_card_read(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: True)
        assert watched.verdicts() == [GOOD, GOOD, GOOD]
        assert watched.card(0).driver.ready
        reading = watched.card(0).reading
        assert reading is not None
        assert reading.product_name == "Simulated Card 8GB"


async def test_an_unchanged_host_is_published_once(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: True)
        watched.bench.change_reading(0, lifetime=5000)
        watched.bench.change_reading(0, product_name="Other")
        await watched.until(lambda: len(watched.published) > 1)
        reading = watched.card(0).reading
        assert reading is not None
        assert reading.product_name == "Other"
        assert len(watched.published) == 2


async def test_a_hung_card_is_put_aside_alone_and_comes_back(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)
        watched.bench.change_card(1, hangs=True)
        await watched.until(lambda: watched.card(1).health.verdict is health.Verdict.UNHEALTHY)
        assert watched.verdicts() == [GOOD, ("Unhealthy", "Hung"), GOOD]
        assert "simulatedRead has not returned for 0.5 s" in watched.card(1).health.message
        watched.bench.change_reading(2, product_name="Still read")
        await watched.until(lambda: watched.product(2) == "Still read")
        watched.bench.change_card(1, hangs=False)
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)


async def test_two_cards_hung_from_the_start_do_not_hide_the_third(tmp_path: Path) -> None:
    bench = machine.Bench(tmp_path)
    bench.write(machine.make(3))
    bench.change_card(0, hangs=True)
    bench.change_card(1, hangs=True)
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.card(2).health.verdict is health.Verdict.HEALTHY)
        await watched.until(lambda: watched.verdicts()[:2] == [("Unhealthy", "Hung")] * 2)
        assert not watched.card(0).driver.ready
        assert watched.card(0).driver.reason == "Hung"


async def test_a_card_that_crashes_the_library_is_put_aside_alone(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)
        watched.bench.change_card(0, crashes=True)
        await watched.until(lambda: watched.verdicts()[0] == ("Unhealthy", "LibraryCrashed"))
        assert watched.verdicts()[1:] == [GOOD, GOOD]
        watched.bench.change_card(0, crashes=False)
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)


async def test_a_card_whose_queries_fail_says_so_and_recovers(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)
        lost = contract.Fault(reason="GpuLost", message="0000:03:00.0: lost.")
        watched.bench.change_card(2, error=lost)
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD, ("Unhealthy", "GpuLost")])
        assert watched.card(2).driver.ready  # It was read before: it stays what it was.
        watched.bench.change_card(2, error=None)
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)


async def test_an_event_is_published_without_waiting_for_a_reading(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)
        fault = contract.Fault(reason="HardwareXid", message="Xid 79.")
        watched.bench.raise_event(1, 79, fault)
        await watched.until(lambda: watched.verdicts()[1] == ("Unhealthy", "HardwareXid"))
        assert watched.card(1).health.xid == 79
        assert watched.verdicts()[0] == GOOD


async def test_a_killed_library_process_is_replaced(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)
        for pid in _library_processes():
            os.kill(pid, signal.SIGKILL)
        watched.bench.change_reading(0, product_name="After the kill")
        await watched.until(lambda: watched.product(0) == "After the kill")
        assert watched.verdicts() == [GOOD] * 3


async def test_a_driver_that_is_not_ready_is_said_and_found_later(tmp_path: Path) -> None:
    bench = machine.Bench(tmp_path)
    host = machine.make(2)
    bench.write(host)
    absent = contract.DriverState(ready=False, reason="DriverLibraryNotFound", message="No file.")
    bench.change(driver=absent)
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.published[-1].driver == absent)
        assert watched.card(0).driver == absent
        assert watched.verdicts() == [("Unknown", "DriverLibraryNotFound")] * 2
        bench.change(driver=host.driver)
        await watched.until(lambda: watched.verdicts() == [GOOD] * 2)
        assert watched.card(0).driver.ready


async def test_a_library_that_hangs_when_opened_is_said_and_found_later(tmp_path: Path) -> None:
    bench = machine.Bench(tmp_path)
    bench.write(machine.make(1))
    bench.change(opening_hangs=True)
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.published[-1].driver.reason == "DriverHung")
        bench.change(opening_hangs=False)
        await watched.until(lambda: watched.verdicts() == [GOOD])


async def test_a_library_that_crashes_when_opened_is_said_and_found_later(tmp_path: Path) -> None:
    bench = machine.Bench(tmp_path)
    bench.write(machine.make(1))
    bench.change(opening_crashes=True)
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.published[-1].driver.reason == "LibraryCrashed")
        bench.change(opening_crashes=False)
        await watched.until(lambda: watched.verdicts() == [GOOD])


async def test_a_card_bound_to_another_driver_is_not_read(tmp_path: Path) -> None:
    bench = machine.Bench(tmp_path)
    host = machine.make(2)
    bench.write(host)
    away = contract.Site(address=host.cards[0].site.address, served=False, driver="vfio-pci")
    bench.change_card(0, site=away, hangs=True)
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts()[1] == GOOD)
        assert watched.card(0).driver.reason == "DriverNotBound"
        assert "vfio-pci" in watched.card(0).driver.message


async def test_a_card_that_leaves_the_bus_leaves_the_inventory(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)
        host = watched.bench.read()
        watched.bench.change(cards=host.cards[1:])
        await watched.until(lambda: len(watched.published[-1].cards) == 2)
        watched.bench.write(host)
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)


async def test_nothing_is_left_running_afterwards(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: True)
        assert _library_processes()
    assert _library_processes() == []


def _library_processes() -> list[int]:
    """Library processes that this process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and "gpudeck" in (folder / "comm").read_text():
                found.append(int(folder.name))
    return found
