# SPDX-License-Identifier: Apache-2.0
"""Keys that want reconciling: each at most once in the queue and at most once in work.

Callbacks of caches `add` keys; `work` calls the reconciler. A key added while it
is in work comes again afterwards. Failures wait, longer each time, key by key.
This is the one loop of the product that catches every exception: a bug in one
reconciliation is logged with its traceback and must not end the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gpudeck import errors, logs
from gpudeck.kube import pacing

_log = logs.get(__name__)


class Queue:
    """A work queue of keys. `add` only on the loop's own thread."""

    def __init__(
        self, name: str = "", *, first_seconds: float = 0.2, limit_seconds: float = 60.0
    ) -> None:
        self._ready: dict[str, None] = {}  # Ordered: first come, first served.
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, pacing.Backoff] = {}
        self._first_seconds, self._limit_seconds = first_seconds, limit_seconds
        self._wake = asyncio.Event()
        self._log = _log.bind(queue=name) if name else _log

    def __len__(self) -> int:
        return len(self._ready) + len(self._again)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is ready or in work; what waits for its time does not count."""
        return not self._ready and not self._working

    def add(self, key: str, after: float = 0.0) -> None:
        """Ask for a reconciliation of `key` in `after` seconds; the earliest of several counts."""
        timer = self._timers.get(key)
        if after <= 0.0:
            if timer is not None:
                self._timers.pop(key).cancel()
            self._admit(key)
            return
        loop = asyncio.get_running_loop()
        moment = loop.time() + after
        if timer is not None:
            if timer.when() <= moment:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(moment, self._due, key)

    async def work(
        self, reconcile: Callable[[str], Awaitable[float | None]], *, workers: int = 1
    ) -> None:
        """Reconcile keys for ever, `workers` at a time.

        `reconcile` may return the seconds after which to come again. A RetryableError
        waits and comes again, and so does a ForbiddenError: no event tells of a right that comes
        later. Any other TerminalError is logged and waits for the next add. What is in work when
        it is cancelled is ready again, so `work` may be called anew.
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._worker(reconcile))

    async def _worker(self, reconcile: Callable[[str], Awaitable[float | None]]) -> None:
        while True:
            key = await self._next()
            try:
                await self._attempt(key, reconcile)
            except asyncio.CancelledError:
                self._again.add(key)  # Half done: for whoever calls `work` next.
                raise
            finally:
                self._done(key)

    async def _attempt(self, key: str, reconcile: Callable[[str], Awaitable[float | None]]) -> None:
        try:
            again = await reconcile(key)
        except (errors.RetryableError, errors.ForbiddenError) as error:
            seconds = self._retry(key, error)
            self._log.info(
                "Will retry",
                key=key,
                reason=error.reason,
                error=error,
                seconds=f"{seconds:.1f}",
            )
        except errors.TerminalError as error:
            self._failures.pop(key, None)
            self._log.error("Gave up", key=key, reason=error.reason, error=error)
        except Exception as error:  # noqa: BLE001 (the one loop that must outlive any bug)
            seconds = self._retry(key, error)
            self._log.exception("Reconciler failed", key=key, seconds=f"{seconds:.1f}")
        else:
            self._failures.pop(key, None)
            if again is not None:
                self.add(key, again)

    def _retry(self, key: str, error: Exception) -> float:
        pace = self._failures.get(key)
        if pace is None:
            pace = pacing.Backoff(self._first_seconds, self._limit_seconds)
            self._failures[key] = pace
        seconds = pace.after(error)
        self.add(key, seconds)
        return seconds

    async def _next(self) -> str:
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        key = next(iter(self._ready))
        del self._ready[key]
        self._working.add(key)
        return key

    def _done(self, key: str) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._admit(key)

    def _due(self, key: str) -> None:
        self._timers.pop(key, None)
        self._admit(key)

    def _admit(self, key: str) -> None:
        if key in self._working:
            self._again.add(key)
        else:
            self._ready[key] = None
            self._wake.set()
