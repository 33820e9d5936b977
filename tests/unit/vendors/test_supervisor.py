# SPDX-License-Identifier: Apache-2.0
"""The supervisor over real processes of the simulated maker."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.vendors import watching as watch

from gpudeck import errors
from gpudeck.vendors import calling, contract, health, registry, supervisor
from gpudeck.vendors.simulated import cards, machine


@contextlib.asynccontextmanager
async def watching(root: Path, cards: int = 3) -> AsyncIterator[watch.Watched]:
    bench = machine.Bench(root)
    if not bench.path.exists():
        bench.write(machine.make(cards))
    settings = contract.VendorSettings(host_root=str(root))
    async with watch.watching("simulated", settings) as watched:
        yield watched


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
        machine.Bench(tmp_path).change_reading(0, lifetime=5000)
        machine.Bench(tmp_path).change_reading(0, product_name="Other")
        await watched.until(lambda: len(watched.published) > 1)
        reading = watched.card(0).reading
        assert reading is not None
        assert reading.product_name == "Other"
        assert len(watched.published) == 2


async def test_a_hung_card_is_put_aside_alone_and_comes_back(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)
        machine.Bench(tmp_path).change_card(1, hangs=True)
        await watched.until(lambda: watched.card(1).health.verdict is health.Verdict.UNHEALTHY)
        assert watched.verdicts() == [GOOD, ("Unhealthy", "Hung"), GOOD]
        assert "simulatedRead has not returned for 0.5 s" in watched.card(1).health.message
        machine.Bench(tmp_path).change_reading(2, product_name="Still read")
        await watched.until(lambda: watched.product(2) == "Still read")
        machine.Bench(tmp_path).change_card(1, hangs=False)
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
        machine.Bench(tmp_path).change_card(0, crashes=True)
        await watched.until(lambda: watched.verdicts()[0] == ("Unhealthy", "LibraryCrashed"))
        assert watched.verdicts()[1:] == [GOOD, GOOD]
        machine.Bench(tmp_path).change_card(0, crashes=False)
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)


async def test_a_card_whose_queries_fail_says_so_and_recovers(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)
        lost = contract.Fault(reason="GpuLost", message="0000:03:00.0: lost.")
        machine.Bench(tmp_path).change_card(2, error=lost)
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD, ("Unhealthy", "GpuLost")])
        assert watched.card(2).driver.ready  # It was read before: it stays what it was.
        machine.Bench(tmp_path).change_card(2, error=None)
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)


async def test_an_event_is_published_without_waiting_for_a_reading(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)
        fault = contract.Fault(reason="HardwareXid", message="Xid 79.")
        machine.Bench(tmp_path).raise_event(1, 79, fault)
        await watched.until(lambda: watched.verdicts()[1] == ("Unhealthy", "HardwareXid"))
        assert watched.card(1).health.xid == 79
        assert watched.verdicts()[0] == GOOD


async def test_a_partition_that_somebody_made_is_seen_before_the_next_period(
    tmp_path: Path,
) -> None:
    timing = supervisor.Timing(poll=600.0, shortest_pause=0.01, traces=0.05)
    bench = machine.Bench(tmp_path)
    bench.write(machine.partitionable(1))
    settings = contract.VendorSettings(host_root=str(tmp_path))
    async with watch.watching("simulated", settings, timing=timing) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD])
        part = contract.Partition(profile="1g.2gb", uuid="MIG-1", start=0, size=1)
        bench.change_reading(0, mode=contract.PartitioningMode.ENABLED, partitions=(part,))
        await watched.until(
            lambda: (found := watched.card(0).reading) is not None and found.partitions == (part,)
        )


async def test_a_mode_that_somebody_changed_is_seen_without_a_trace(tmp_path: Path) -> None:
    timing = supervisor.Timing(poll=600.0, changeable=0.05, shortest_pause=0.01, traces=600.0)
    bench = machine.Bench(tmp_path)
    bench.write(machine.partitionable(1))
    settings = contract.VendorSettings(host_root=str(tmp_path))
    async with watch.watching("simulated", settings, timing=timing) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD])
        enabled = contract.PartitioningMode.ENABLED
        bench.change_reading(0, mode=enabled)
        await watched.until(
            lambda: (found := watched.card(0).reading) is not None and found.mode is enabled
        )


async def test_a_killed_library_process_is_replaced(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)
        for pid in _library_processes():
            os.kill(pid, signal.SIGKILL)
        machine.Bench(tmp_path).change_reading(0, product_name="After the kill")
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
        host = machine.Bench(tmp_path).read()
        machine.Bench(tmp_path).change(cards=host.cards[1:])
        await watched.until(lambda: len(watched.published[-1].cards) == 2)
        machine.Bench(tmp_path).write(host)
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)


@pytest.mark.parametrize("instance", ["", "2/0"])
async def test_an_event_of_which_the_driver_does_not_name_the_card_is_about_every_device(
    tmp_path: Path, instance: str
) -> None:
    """case-06: a partition of a card that is not known may be one of any."""
    fault = contract.Fault(reason="HardwareXid", message="Xid 79.")
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 3)
        machine.Bench(tmp_path).raise_event(None, 79, fault, instance=instance)
        await watched.until(lambda: watched.verdicts() == [("Unhealthy", "HardwareXid")] * 3)
        assert all(watched.card(number).health.concerns("5/0") for number in range(3))


async def test_what_goes_on_beside_the_passes_does_not_die_unseen(tmp_path: Path) -> None:
    machine.Bench(tmp_path).write(machine.make(1))

    class Broken(cards.SimulatedVendor):
        def traces(self) -> tuple[str, ...]:
            raise ZeroDivisionError

    settings = contract.VendorSettings(host_root=str(tmp_path))
    program = calling.Program(vendor="simulated", settings=settings)
    watched = supervisor.Supervisor(Broken(settings), program, lambda _: None)
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(watched.run(), 20)
    assert caught.group_contains(ZeroDivisionError)
    assert _library_processes() == []


async def test_nothing_is_left_running_afterwards(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        await watched.until(lambda: True)
        assert _library_processes()
    assert _library_processes() == []


async def test_no_library_process_is_left_by_one_that_is_cancelled_again_while_it_ends(
    tmp_path: Path,
) -> None:
    machine.Bench(tmp_path).write(machine.make(2))
    settings = contract.VendorSettings(host_root=str(tmp_path))
    for steps in range(6):
        watched = watch.Watched()
        program = calling.Program(vendor="simulated", settings=settings)
        vendor = registry.load("simulated").vendor(settings)
        watched.supervisor = supervisor.Supervisor(
            vendor, program, watched.publish, timing=watch.FAST
        )
        running = asyncio.create_task(watched.supervisor.run())
        await watched.until(lambda seen=watched: seen.verdicts() == [GOOD] * 2)
        running.cancel()
        for _ in range(steps):
            await asyncio.sleep(0)
            running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not _library_processes()


def _library_processes() -> list[int]:
    """Library processes that this process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and "gpudeck" in (folder / "comm").read_text():
                found.append(int(folder.name))
    return found


SMALL = contract.MakePartition(profile_id=19, placement=contract.Placement(start=0, size=1))


def partitionable(root: Path) -> machine.Bench:
    bench = machine.Bench(root)
    bench.write(machine.partitionable(2))
    return bench


async def test_an_action_whose_caller_gave_up_comes_to_its_end(tmp_path: Path) -> None:
    bench = partitionable(tmp_path)
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 2)
        address = watched.card(0).site.address
        with bench.locked():  # The library waits for the host.
            asked = asyncio.create_task(watched.supervisor.act(address, SMALL))
            await asyncio.sleep(0)  # It has started.
            asked.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asked
        await watched.until(lambda: _partitions(watched) == 1)


async def test_actions_at_once_take_turns_and_all_succeed(tmp_path: Path) -> None:
    partitionable(tmp_path)
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 2)
        address = watched.card(0).site.address
        places = [contract.Placement(start=start, size=1) for start in range(4)]
        wanted = [contract.MakePartition(profile_id=19, placement=place) for place in places]
        made = await asyncio.gather(*(watched.supervisor.act(address, each) for each in wanted))
        assert [each.start for each in made if each is not None] == [0, 1, 2, 3]
        assert _partitions(watched) == 4


async def test_a_card_that_crashes_the_library_in_an_action_is_answered_at_once(
    tmp_path: Path,
) -> None:
    bench = partitionable(tmp_path)
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 2)
        addresses = [card.site.address for card in watched.published[-1].cards]
        bench.change_card(0, crashes=True)
        with pytest.raises(errors.UnavailableError):
            await watched.supervisor.act(addresses[0], SMALL)
        await watched.until(lambda: watched.verdicts()[0] == ("Unhealthy", "LibraryCrashed"))
        assert await watched.supervisor.act(addresses[1], SMALL) is not None


async def test_a_card_that_is_not_on_the_bus_is_not_changed(tmp_path: Path) -> None:
    partitionable(tmp_path)
    async with watching(tmp_path) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD] * 2)
        with pytest.raises(errors.UnavailableError) as caught:
            await watched.supervisor.act("0000:99:00.0", SMALL)
        assert caught.value.reason == "CardNotReady"
        assert "0000:99:00.0" in caught.value.message


def _partitions(watched: watch.Watched) -> int:
    reading = watched.card(0).reading
    return len(reading.partitions) if reading is not None else 0
