# SPDX-License-Identifier: Apache-2.0
"""Each maker's cards under the supervisor: one that fails never takes another with it."""

import pytest
from tests.contract.vendors import benches
from tests.contract.vendors.watching import watching

GOOD = ("Healthy", "Healthy")


async def test_a_hung_card_is_named_and_comes_back(bench: benches.Bench) -> None:
    async with watching(bench.vendor, bench.settings) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD])
        bench.hang(0)
        await watched.until(lambda: watched.verdicts() == [("Unhealthy", "Hung"), GOOD])
        assert "has not returned for" in watched.card(0).health.message
        bench.unhang(0)
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD])


async def test_a_card_hung_from_the_start_does_not_hide_the_other(bench: benches.Bench) -> None:
    bench.hang(0)
    async with watching(bench.vendor, bench.settings) as watched:
        await watched.until(lambda: watched.verdicts() == [("Unhealthy", "Hung"), GOOD])
        assert not watched.card(0).driver.ready


async def test_a_lost_card_is_unhealthy_and_the_other_is_not(bench: benches.Bench) -> None:
    async with watching(bench.vendor, bench.settings) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD])
        bench.lose(1)
        await watched.until(lambda: watched.verdicts()[1][0] == "Unhealthy")
        assert watched.verdicts()[0] == GOOD


async def test_an_application_error_is_told_and_leaves_the_verdict(bench: benches.Bench) -> None:
    async with watching(bench.vendor, bench.settings) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD])
        number = bench.raise_application_error(0)
        await watched.until(lambda: watched.card(0).health.xid == number)
        assert watched.verdicts() == [GOOD, GOOD]


async def test_a_hardware_error_is_unhealthy_until_a_recovery(bench: benches.Bench) -> None:
    async with watching(bench.vendor, bench.settings) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD])
        bench.raise_hardware_error(1)
        await watched.until(lambda: watched.verdicts()[1] == ("Unhealthy", "HardwareXid"))
        bench.raise_application_error(1)
        await watched.until(lambda: watched.card(1).health.xid == 31)
        assert watched.verdicts() == [GOOD, ("Unhealthy", "HardwareXid")]  # case-35


async def test_the_driver_goes_and_every_card_says_so(bench: benches.Bench) -> None:
    bench.take_driver_away()
    async with watching(bench.vendor, bench.settings) as watched:
        await watched.until(lambda: watched.published[-1].driver.reason == "DriverNotLoaded")
        assert watched.verdicts() == [("Unknown", "DriverNotLoaded")] * 2


async def test_a_reset_ends_what_the_driver_raised(nvidia: benches.NvidiaBench) -> None:
    async with watching(nvidia.vendor, nvidia.settings) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD])
        nvidia.turn(0, "recovery-action=1")  # The driver asks for a reset, and gets it.
        await watched.until(
            lambda: watched.verdicts()[0] == ("Unhealthy", "RecoveryActionRequired")
        )
        nvidia.raise_hardware_error(0)
        await watched.until(lambda: watched.verdicts()[0] == ("Unhealthy", "HardwareXid"))
        nvidia.turn(0, "reset=1")
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD])


async def test_a_library_that_is_installed_later_is_found(nvidia: benches.NvidiaBench) -> None:
    link = nvidia.tree / nvidia.libraries / "libnvidia-ml.so.1"
    target = link.readlink()
    link.unlink()
    async with watching(nvidia.vendor, nvidia.settings) as watched:
        await watched.until(lambda: watched.published[-1].driver.reason == "DriverLibraryNotFound")
        link.symlink_to(target)
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD])


async def test_a_card_that_its_driver_takes_later_is_read(nvidia: benches.NvidiaBench) -> None:
    """NVML lists the cards when it is initialised, so this needs another process."""
    link = nvidia.tree / "sys/bus/pci/devices" / nvidia.machine.cards[0].address / "driver"
    target = link.readlink()
    link.unlink()
    nvidia.turn(0, "unbind=1")
    async with watching(nvidia.vendor, nvidia.settings) as watched:
        await watched.until(lambda: watched.verdicts()[1] == GOOD)
        assert watched.card(0).driver.reason == "DriverNotBound"
        nvidia.turn(0, "bind=1")
        link.symlink_to(target)
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD])


@pytest.mark.parametrize("code", [1, 4, 17, 999])
async def test_a_card_whose_every_query_fails_is_alone(
    nvidia: benches.NvidiaBench, code: int
) -> None:
    async with watching(nvidia.vendor, nvidia.settings) as watched:
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD])
        nvidia.turn(1, f"fail={code}")
        await watched.until(lambda: watched.verdicts()[1][0] == "Unhealthy")
        assert watched.verdicts()[0] == GOOD
        assert f"({code})" in watched.card(1).health.message
        nvidia.turn(1, "fail=0")
        await watched.until(lambda: watched.verdicts() == [GOOD, GOOD])
