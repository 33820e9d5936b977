# SPDX-License-Identifier: Apache-2.0
"""What `vendors.contract` promises of cards whose partition mode changes by a reset only."""

from __future__ import annotations

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
