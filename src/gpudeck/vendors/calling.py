# SPDX-License-Identifier: Apache-2.0
"""Call into one library process, with a deadline for each call, and know when it has ended.

Used by `supervisor` alone. A call that passes its deadline raises HungError with the
name of the library function that was entered; the process is then of no more use and
the caller kills it. The end of a process is seen on its pidfd: no other process
can be hit by a signal that was meant for it, and a process that not even SIGKILL ends
(it sits in the kernel) is known by `ended` staying False.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import signal
from collections.abc import Callable

import msgspec

from gpudeck import errors
from gpudeck.vendors import contract, worker, zygote

OnEvents = Callable[[tuple[contract.CardEvent, ...]], None]
OnEnd = Callable[[], None]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(worker.Reply).decode


class HungError(errors.UnavailableError):
    """A call did not return before its deadline."""

    reason = "Hung"


class EndedError(errors.UnavailableError):
    """The library process ended during the call, or before it."""

    reason = "LibraryCrashed"


class LibraryProcess:
    """One library process. Calls are made one after the other; the caller sees to that."""

    def __init__(self, spawned: zygote.Spawned, on_events: OnEvents, on_end: OnEnd) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = spawned.connection
        self._pidfd = spawned.pidfd
        self._on_events = on_events
        self._on_end = on_end
        self._progress = mmap.mmap(spawned.progress, worker.PROGRESS_BYTES, prot=mmap.PROT_READ)
        os.close(spawned.progress)
        self._waiting: tuple[int, asyncio.Future[worker.Reply]] | None = None
        self._calls = 0
        self._end = asyncio.Event()
        self.pid = spawned.pid
        self.heard_at = self._loop.time()
        """When the process last sent anything, in the loop's time."""
        self._loop.add_reader(self._connection, self._receive)
        self._loop.add_reader(self._pidfd, self._ended)

    @property
    def ended(self) -> bool:
        """The process is gone."""
        return self._end.is_set()

    @property
    def entered(self) -> str:
        """The library function that the process entered last."""
        return worker.read_progress(self._progress)

    async def open(self, *, deadline_seconds: float) -> contract.DriverState:
        """`Library.open`. Raises HungError, EndedError or what the library raised."""
        reply = await self._call("open", "", deadline_seconds)
        if reply.state is None:
            raise EndedError("the library process gave no answer to open")
        return reply.state

    async def read(self, address: str, *, deadline_seconds: float) -> contract.CardReading:
        """`Library.read`. Raises HungError, EndedError or what the library raised."""
        reply = await self._call("read", address, deadline_seconds)
        if reply.reading is None:
            raise EndedError(f"the library process gave no answer to read {address}")
        return reply.reading

    def kill(self) -> None:
        """Send SIGKILL; `ended` follows, unless the process sits in the kernel."""
        self._hang_up()
        if not self.ended:  # The descriptor is closed with the end, and its number used again.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def close(self, *, grace_seconds: float = 1.0) -> bool:
        """End the process: let it release its cards, then SIGKILL. True if it is gone."""
        self._hang_up()
        if not await self.wait_ended(grace_seconds):
            self.kill()
            await self.wait_ended(grace_seconds)
        return self.ended

    async def wait_ended(self, seconds: float) -> bool:
        """Wait at most `seconds` for the end of the process."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._end.wait(), seconds)
        return self.ended

    async def _call(self, method: str, argument: str, deadline_seconds: float) -> worker.Reply:
        if self.ended or self._connection.fileno() < 0:
            raise EndedError("the library process has ended")
        self._calls += 1
        future: asyncio.Future[worker.Reply] = self._loop.create_future()
        self._waiting = (self._calls, future)
        call = worker.Call(id=self._calls, method=method, argument=argument)
        try:
            self._connection.send(_encode(call))
            async with asyncio.timeout(deadline_seconds):
                reply = await future
        except TimeoutError as error:
            raise HungError(
                f"{self.entered or method} has not returned for {deadline_seconds:g} s"
            ) from error
        except OSError as error:
            raise EndedError(f"the library process has ended: {error}") from error
        finally:
            self._waiting = None
        if reply.failure is not None:
            raise _error(reply.failure)
        return reply

    def _receive(self) -> None:
        try:
            message = self._connection.recv(worker.MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._hang_up()
            return
        self.heard_at = self._loop.time()
        reply = _decode(message)
        if reply.events:
            self._on_events(reply.events)
        if self._waiting is not None and self._waiting[0] == reply.id:
            future = self._waiting[1]
            if not future.done():
                future.set_result(reply)

    def _hang_up(self) -> None:
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection)
            self._connection.close()
        self._fail_waiting()

    def _fail_waiting(self) -> None:
        if self._waiting is not None and not self._waiting[1].done():
            entered = self.entered or "a call"
            self._waiting[1].set_exception(EndedError(f"the library process ended in {entered}"))

    def _ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._end.set()
        self._hang_up()
        self._on_end()


def _error(failure: worker.Failure) -> errors.GpudeckError:
    kind = getattr(errors, failure.kind, errors.GpudeckError)
    error: errors.GpudeckError = kind(failure.message, reason=failure.reason)
    return error
