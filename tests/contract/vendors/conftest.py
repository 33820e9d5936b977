# SPDX-License-Identifier: Apache-2.0
"""The makers under the suite, and one library process of the maker at hand."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.vendors import benches

from gpudeck.vendors import calling, contract, registry

SECONDS = 20.0


class Library:
    """A library process, and the events that it told."""

    def __init__(self) -> None:
        self.events: list[contract.CardEvent] = []
        self.came = asyncio.Event()
        self.process: calling.LibraryProcess

    def take(self, events: tuple[contract.CardEvent, ...]) -> None:
        self.events += events
        self.came.set()

    async def open(self) -> contract.DriverState:
        return await self.process.open(deadline_seconds=SECONDS)

    async def read(self, address: str, *, seconds: float = SECONDS) -> contract.CardReading:
        return await self.process.read(address, deadline_seconds=seconds)

    async def act(self, address: str, action: contract.Action) -> contract.Partition | None:
        return await self.process.act(address, action, deadline_seconds=SECONDS)

    async def event_of(self, xid: int) -> contract.CardEvent:
        """Wait for the event with that number."""
        async with asyncio.timeout(SECONDS):
            while True:
                for event in self.events:
                    if event.xid == xid:
                        return event
                self.came.clear()
                await self.came.wait()


@pytest.fixture(params=["simulated", "nvidia-on-mock"])
def bench(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> benches.Bench:
    return benches.make(request.param, tmp_path, monkeypatch)


@pytest.fixture(params=["simulated", "nvidia-on-mock"])
def split(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> benches.PartitionBench:
    """A bench whose cards can be partitioned."""
    return benches.make_partitionable(request.param, tmp_path, monkeypatch)


@pytest.fixture
async def splitting(split: benches.PartitionBench) -> AsyncIterator[Library]:
    """The library of `split`, open."""
    async for each in start(split):
        assert (await each.open()).ready
        yield each


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> benches.NvidiaBench:
    made = benches.make("nvidia-on-mock", tmp_path, monkeypatch)
    assert isinstance(made, benches.NvidiaBench)
    return made


@pytest.fixture
def vendor(bench: benches.Bench) -> contract.Vendor:
    return registry.load(bench.vendor).vendor(bench.settings)


@pytest.fixture
async def library(bench: benches.Bench) -> AsyncIterator[Library]:
    async for each in start(bench):
        yield each


@pytest.fixture
async def nvml(nvidia: benches.NvidiaBench) -> AsyncIterator[Library]:
    async for each in start(nvidia):
        yield each


async def start(bench: benches.Bench) -> AsyncIterator[Library]:
    told = Library()
    program = calling.Program(vendor=bench.vendor, settings=bench.settings)
    told.process = await program.start(told.take, lambda: None)
    yield told
    await told.process.kill()
