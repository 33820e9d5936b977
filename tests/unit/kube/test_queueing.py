# SPDX-License-Identifier: Apache-2.0
"""Each key at most once in work, failures wait, and nothing ends the workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from gpudeck import errors
from gpudeck.kube import queueing


class Bench:
    """A queue whose reconciler notes its calls."""

    def __init__(self, queue: queueing.Queue) -> None:
        self.queue = queue
        self.calls: list[str] = []
        self.answers: list[float | Exception | None] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._more = asyncio.Event()

    async def reconcile(self, key: str) -> float | None:
        self.calls.append(key)
        self._more.set()
        await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not true():
                self._more.clear()
                await self._more.wait()

    async def settled(self) -> None:
        """Let the workers go as far as they can now."""
        for _ in range(20):
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def working(
    reconcile: Callable[[str], Awaitable[float | None]], queue: queueing.Queue, workers: int = 1
) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.work(reconcile, workers=workers))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def bench() -> Bench:
    return Bench(queueing.Queue(first_seconds=0.01, limit_seconds=0.02))


async def test_a_key_added_many_times_is_done_once(bench: Bench) -> None:
    for _ in range(5):
        bench.queue.add("a")
    bench.queue.add("b")
    async with working(bench.reconcile, bench.queue):
        await bench.settled()
    assert bench.calls == ["a", "b"]
    assert bench.queue.is_idle


async def test_a_key_added_while_in_work_comes_again_afterwards(bench: Bench) -> None:
    bench.gate.clear()
    bench.queue.add("a")
    async with working(bench.reconcile, bench.queue, workers=3):
        await bench.settled()
        bench.queue.add("a")
        bench.queue.add("a")
        await bench.settled()
        assert bench.calls == ["a"]
        bench.gate.set()
        await bench.settled()
    assert bench.calls == ["a", "a"]


async def test_different_keys_are_worked_at_the_same_time_up_to_the_limit(bench: Bench) -> None:
    bench.gate.clear()
    for key in "abc":
        bench.queue.add(key)
    async with working(bench.reconcile, bench.queue, workers=2):
        await bench.settled()
        assert bench.calls == ["a", "b"]


async def test_a_retryable_failure_comes_again(bench: Bench) -> None:
    bench.answers = [errors.UnavailableError("away"), errors.ConflictError("changed"), None]
    bench.queue.add("a")
    async with working(bench.reconcile, bench.queue):
        await bench.until(lambda: len(bench.calls) == 3)


async def test_the_wait_that_a_failure_asks_for_is_respected(bench: Bench) -> None:
    bench.answers = [errors.UnavailableError("away", after_seconds=3600.0)]
    bench.queue.add("a")
    async with working(bench.reconcile, bench.queue):
        await bench.settled()
        assert bench.calls == ["a"]
        bench.queue.add("a")
        await bench.settled()
    assert bench.calls == ["a", "a"]


async def test_a_terminal_failure_waits_for_the_next_add(bench: Bench) -> None:
    bench.answers = [errors.InvalidError("no")]
    bench.queue.add("a")
    async with working(bench.reconcile, bench.queue):
        await bench.settled()
        assert bench.calls == ["a"]
        bench.queue.add("a")
        await bench.settled()
    assert bench.calls == ["a", "a"]


async def test_a_right_that_comes_later_is_waited_for(bench: Bench) -> None:
    """No event tells of it: also an API server that has just started refuses at first."""
    bench.answers = [errors.ForbiddenError("not yet"), None]
    bench.queue.add("a")
    async with working(bench.reconcile, bench.queue):
        await bench.until(lambda: len(bench.calls) == 2)


async def test_a_bug_in_the_reconciler_is_logged_and_tried_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.answers = [ZeroDivisionError("a bug"), None]
    bench.queue.add("a")
    async with working(bench.reconcile, bench.queue):
        await bench.until(lambda: len(bench.calls) == 2)
    assert "ZeroDivisionError: a bug" in caplog.text
    assert "key=a" in caplog.text


async def test_a_result_in_seconds_comes_again_then(bench: Bench) -> None:
    bench.answers = [0.01, None]
    bench.queue.add("a")
    async with working(bench.reconcile, bench.queue):
        await bench.until(lambda: len(bench.calls) == 2)


async def test_of_two_times_the_earlier_counts(bench: Bench) -> None:
    bench.queue.add("a", after=3600.0)
    bench.queue.add("a", after=0.01)
    bench.queue.add("a", after=3600.0)
    async with working(bench.reconcile, bench.queue):
        await bench.until(lambda: bench.calls == ["a"])


async def test_a_key_in_work_is_not_lost_when_the_workers_are_cancelled(bench: Bench) -> None:
    bench.gate.clear()
    bench.queue.add("a")
    async with working(bench.reconcile, bench.queue):
        await bench.settled()
        bench.queue.add("a")
    assert len(bench.queue) == 1


async def test_what_was_in_work_when_the_workers_ended_is_done_by_the_next_ones(
    bench: Bench,
) -> None:
    bench.gate.clear()
    bench.queue.add("a")
    async with working(bench.reconcile, bench.queue):
        await bench.settled()
    assert len(bench.queue) == 1
    bench.gate.set()
    async with working(bench.reconcile, bench.queue):
        await bench.settled()
    assert bench.calls == ["a", "a"]
    assert bench.queue.is_idle
