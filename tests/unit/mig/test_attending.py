# SPDX-License-Identifier: Apache-2.0
"""Cards that a command attends to for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gpudeck.host import files
from gpudeck.mig import attending
from gpudeck.vendors.simulated import machine

pytestmark = pytest.mark.asyncio


async def test_who_is_cancelled_while_it_leaves_the_cards_ends(tmp_path: Path) -> None:
    machine.Bench(tmp_path).write(machine.make(1))
    place = attending.Place("simulated", str(tmp_path))
    for steps in range(4):
        leaving = asyncio.Event()

        async def work(leaving: asyncio.Event = leaving) -> None:
            async with attending.attended(place, changing=True):
                leaving.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await leaving.wait()
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=10)
        assert done, steps
        assert task.cancelled()
        (lock,) = (tmp_path / "run").iterdir()
        assert not files.is_locked(lock)
