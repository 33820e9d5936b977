# SPDX-License-Identifier: Apache-2.0
"""Steps that are cancelled again and again come to their end all the same."""

from __future__ import annotations

import asyncio

import pytest

from gpudeck import finishing


async def test_a_step_comes_to_its_end_before_its_cancellation() -> None:
    allowed, done = asyncio.Event(), []

    async def step() -> None:
        await allowed.wait()
        done.append(True)

    task = asyncio.create_task(finishing.whole(step()))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    allowed.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done


async def test_a_step_gives_its_result_or_its_error() -> None:
    async def three() -> int:
        return 3

    async def fail() -> None:
        raise ValueError("broken")

    assert await finishing.whole(three()) == 3
    with pytest.raises(ValueError, match="broken"):
        await finishing.whole(fail())


async def test_tasks_have_ended_although_one_fails_and_who_waits_is_cancelled() -> None:
    allowed = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await allowed.wait()

    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("broken")

    tasks = [asyncio.create_task(slow()), asyncio.create_task(failing())]
    await asyncio.sleep(0)
    waiting = asyncio.create_task(finishing.ended(*tasks))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    allowed.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert all(task.done() for task in tasks)
