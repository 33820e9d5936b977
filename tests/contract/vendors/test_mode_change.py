# SPDX-License-Identifier: Apache-2.0
"""What `vendors.contract` promises of cards whose partition mode changes by a reset only."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.vendors import benches
from tests.contract.vendors.watching import Watched, watching

from gpudeck import errors
from gpudeck.vendors import contract

Mode = contract.PartitioningMode
ON = contract.SetPartitioning(enabled=True, may_reset=True)
OFF = contract.SetPartitioning(enabled=False, may_reset=True)


@pytest.fixture(params=["simulated", "nvidia-reset", "nvidia-pending"])
def bench(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> benches.ResetBench:
    """The driver resets a card itself (nvidia-reset), or leaves it to its tool."""
    return benches.make_resettable(request.param, tmp_path, monkeypatch)


@pytest.fixture
async def watched(bench: benches.ResetBench) -> AsyncIterator[Watched]:
    async with watching(bench.vendor, bench.settings) as each:
        await each.until(lambda: True)
        yield each


def reading(watched: Watched, index: int = 0) -> contract.CardReading:
    found = watched.card(index).reading
    assert found is not None
    return found


def modes(watched: Watched, index: int = 0) -> tuple[Mode, Mode]:
    return reading(watched, index).mode, reading(watched, index).pending_mode


async def test_the_mode_is_there_when_the_answer_comes_and_partitions_can_be_made(
    bench: benches.ResetBench, watched: Watched
) -> None:
    address = reading(watched).address
    assert not reading(watched).dynamic
    for _ in range(2):
        await watched.supervisor.act(address, ON)
        assert modes(watched) == (Mode.ENABLED, Mode.ENABLED)
    assert await watched.supervisor.act(address, bench.small) is not None
    assert modes(watched, 1) == (Mode.DISABLED, Mode.DISABLED)


async def test_the_mode_goes_back(watched: Watched) -> None:
    address = reading(watched).address
    await watched.supervisor.act(address, ON)
    await watched.supervisor.act(address, OFF)
    assert modes(watched) == (Mode.DISABLED, Mode.DISABLED)


async def test_events_of_the_cards_are_heard_after_a_reset(
    bench: benches.ResetBench, watched: Watched
) -> None:
    await watched.supervisor.act(reading(watched).address, ON)
    await watched.until(lambda: watched.card(0).health.verdict.value == "Healthy")
    bench.raise_hardware_error(0)
    await watched.until(lambda: watched.card(0).health.reason == "HardwareXid")


async def test_without_leave_to_reset_nothing_changes(watched: Watched) -> None:
    with pytest.raises(errors.UnsupportedError) as caught:
        await watched.supervisor.act(
            reading(watched).address, contract.SetPartitioning(enabled=True)
        )
    assert caught.value.reason == "PartitioningNeedsReset"
    assert modes(watched) == (Mode.DISABLED, Mode.DISABLED)


async def test_a_card_in_use_is_not_reset(bench: benches.ResetBench, watched: Watched) -> None:
    address = reading(watched).address
    bench.work(0)
    with pytest.raises(errors.BusyError) as caught:
        await watched.supervisor.act(address, ON)
    assert caught.value.reason == "CardInUse"
    assert reading(watched).mode is Mode.DISABLED
    bench.rest(0)
    await watched.supervisor.act(address, ON)
    assert modes(watched) == (Mode.ENABLED, Mode.ENABLED)


async def test_a_card_with_partitions_keeps_its_mode(
    bench: benches.ResetBench, watched: Watched
) -> None:
    address = reading(watched).address
    await watched.supervisor.act(address, ON)
    made = await watched.supervisor.act(address, bench.small)
    with pytest.raises(errors.BusyError) as caught:
        await watched.supervisor.act(address, OFF)
    assert caught.value.reason == "CardPartitioned"
    assert reading(watched).partitions == (made,)


async def test_a_reset_that_fails_leaves_the_card_in_its_old_mode_and_may_be_repeated(
    bench: benches.ResetBench, watched: Watched
) -> None:
    address = reading(watched).address
    bench.fail_reset(0)
    with pytest.raises(errors.UnavailableError):
        await watched.supervisor.act(address, ON)
    assert reading(watched).mode is Mode.DISABLED
    assert watched.card(0).driver.ready
    bench.mend_reset(0)
    await watched.supervisor.act(address, ON)
    assert modes(watched) == (Mode.ENABLED, Mode.ENABLED)


async def test_a_wish_that_waits_for_a_reset_can_be_taken_back(
    bench: benches.ResetBench, watched: Watched
) -> None:
    address = reading(watched).address
    bench.fail_reset(0)
    with pytest.raises(errors.UnavailableError):
        await watched.supervisor.act(address, ON)
    bench.mend_reset(0)
    await watched.supervisor.act(address, OFF)
    assert modes(watched) == (Mode.DISABLED, Mode.DISABLED)


async def test_the_cards_beside_it_stay_as_they_are(watched: Watched) -> None:
    before = watched.card(1)
    await watched.supervisor.act(reading(watched).address, ON)
    assert watched.card(1).reading == before.reading
    assert watched.card(1).driver.ready


async def test_several_cards_change_together(bench: benches.ResetBench, watched: Watched) -> None:
    addresses = [reading(watched, each).address for each in (0, 1)]
    for wanted, mode in ((True, Mode.ENABLED), (False, Mode.DISABLED)):
        assert await watched.supervisor.switch(dict.fromkeys(addresses, wanted)) == {}
        assert [modes(watched, each) for each in (0, 1)] == [(mode, mode)] * 2


async def test_a_card_that_cannot_change_keeps_no_other_from_it(
    bench: benches.ResetBench, watched: Watched
) -> None:
    addresses = [reading(watched, each).address for each in (0, 1)]
    bench.fail_reset(0)
    failed = await watched.supervisor.switch(dict.fromkeys(addresses, True))
    assert list(failed) == addresses[:1]
    assert [modes(watched, each)[0] for each in (0, 1)] == [Mode.DISABLED, Mode.ENABLED]
    bench.mend_reset(0)
    bench.work(0)
    failed = await watched.supervisor.switch(dict.fromkeys(addresses, True))
    assert {each: error.reason for each, error in failed.items()} == {addresses[0]: "CardInUse"}
    bench.rest(0)
    assert await watched.supervisor.switch(dict.fromkeys(addresses, True)) == {}


@pytest.mark.parametrize(
    ("change", "call"), [("pending", "simReset"), ("reset", "nvmlDeviceSetMigMode")]
)
async def test_whoever_only_looks_on_is_named_where_it_keeps_a_card_from_its_reset(
    change: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("device nodes of the simulated host can be made by root only")
    bench = benches.NvidiaBench(tmp_path, monkeypatch, "a100-40gb-x4", mode_change=change)
    opened = bench.tree / "proc/4711/fd/3"
    opened.parent.mkdir(parents=True)
    opened.symlink_to("/dev/nvidia0")
    (bench.tree / "proc/4711/comm").write_text("nv-hostengine\n")
    bench.turn(0, f"fail.{call}=19")  # NVML_ERROR_IN_USE
    async with watching(bench.vendor, bench.settings) as watched:
        await watched.until(lambda: True)
        with pytest.raises(errors.BusyError, match=r"end PID 4711 \(nv-hostengine\)"):
            await watched.supervisor.act(reading(watched).address, ON)
