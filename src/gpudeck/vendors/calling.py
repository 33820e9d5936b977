# SPDX-License-Identifier: Apache-2.0
"""Start a library process and call into it, with a deadline for each call.

Used by `supervisor` and `probing`. A call that passes its deadline raises HungError with
the name of the library function that was entered; the process is then of no more use
and the caller kills it. A process that not even SIGKILL ends (it sits in the kernel) is
known by `ended` staying False. The first can be a copy of this process from before it serves
(`Program.prepare`): it has what it would import, so it spares half of a start. Each later one is a
program of its own: the serving process cannot fork safely (gRPC starts threads).
"""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import msgspec

from gpudeck import errors
from gpudeck.host import processes
from gpudeck.vendors import contract, registry, worker

OnEvents = Callable[[tuple[contract.CardEvent, ...]], None]
OnEnd = Callable[[], None]

_START = "from gpudeck.vendors import worker; worker.main()"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(worker.Reply).decode


class HungError(errors.UnavailableError):
    """A call did not return before its deadline."""

    reason = "Hung"


class EndedError(errors.UnavailableError):
    """The library process ended during the call, or before it."""

    reason = "LibraryCrashed"


class Program(contract.Value, frozen=True):
    """How library processes of a maker are started. Raises InvalidError for no such maker."""

    vendor: str
    settings: contract.VendorSettings
    log_level: str = "info"

    def __post_init__(self) -> None:
        registry.check(self.vendor)

    async def start(self, on_events: OnEvents, on_end: OnEnd) -> LibraryProcess:
        """Start one, in which nothing is loaded before `open`; or take that of `prepare`.

        Raises UnavailableError or ForbiddenError where the node cannot start a process.
        """
        early = _prepared.pop(self, None)
        if early is not None:
            early.connection.setblocking(False)
            return LibraryProcess(
                processes.Child.adopt(early.process),
                early.connection,
                early.memory,
                on_events=on_events,
                on_end=on_end,
                opening=True,
            )
        with _Ends() as ends:
            child = await processes.Child.start(
                [sys.executable, "-c", _START, msgspec.json.encode(ends.order(self)).decode()],
                # The maker's library is to see what it would see in this process.
                environment=os.environ,
                descriptors=ends.descriptors,
            )
            connection, memory = ends.keep()
        connection.setblocking(False)
        return LibraryProcess(child, connection, memory, on_events=on_events, on_end=on_end)

    def prepare(self) -> None:
        """Fork one now and let it open the library, for the first `start` of an equal program.

        For the begin of a process, before there are threads: the library opens while the rest is
        still being imported. Raises as `start`.
        """
        with _Ends() as ends:
            order = ends.order(self)
            ends.send(worker.Call(id=1, method="open"))

            def program() -> None:
                ends.drop()
                worker.serve(order)

            process = processes.Forked(program, "the library process")
            connection, memory = ends.keep()
        _prepared[self] = _Early(process, connection, memory)


class Settings(Protocol):
    """What a process that has library processes is told of them."""

    @property
    def vendor(self) -> str: ...
    @property
    def host_root(self) -> Path: ...
    @property
    def host_root_on_node(self) -> str: ...
    @property
    def log_level(self) -> str: ...


def program(settings: Settings) -> Program:
    """The library processes of a process with these settings. Raises InvalidError as `Program`."""
    return Program(
        vendor=settings.vendor,
        settings=contract.VendorSettings(
            host_root=str(settings.host_root), host_root_on_node=settings.host_root_on_node
        ),
        log_level=settings.log_level,
    )


class _Ends:
    """What connects a library process and this one: theirs ends with the block, ours if unkept."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._progress = os.memfd_create("progress", os.MFD_CLOEXEC)
        os.ftruncate(self._progress, worker.PROGRESS_BYTES)
        self.descriptors = [self._theirs.fileno(), self._progress]
        self._is_kept = False

    def order(self, program: Program) -> worker.Order:
        """What the process is told."""
        return worker.Order(
            connection=self._theirs.fileno(),
            progress=self._progress,
            parent=os.getpid(),
            vendor=program.vendor,
            settings=program.settings,
            log_level=program.log_level,
        )

    def send(self, call: worker.Call) -> None:
        """Leave a call for the process that is not there yet."""
        self._ours.send(_encode(call))

    def drop(self) -> None:
        """Close our end in a copy of this process: theirs is to see when it closes here."""
        self._ours.close()

    def keep(self) -> tuple[socket.socket, mmap.mmap]:
        """Our ends: the connection, and the memory where the process notes what it does."""
        memory = mmap.mmap(self._progress, worker.PROGRESS_BYTES, prot=mmap.PROT_READ)
        self._is_kept = True
        return self._ours, memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._theirs.close()
        os.close(self._progress)
        if not self._is_kept:
            self._ours.close()


class _Early(NamedTuple):
    process: processes.Forked
    connection: socket.socket
    memory: mmap.mmap


_prepared: dict[Program, _Early] = {}
"""Taken by the first `start` of the program; what nobody takes ends with this process."""


class LibraryProcess:
    """One library process. Calls are made one after the other; the caller sees to that."""

    def __init__(
        self,
        child: processes.Child,
        connection: socket.socket,
        progress: mmap.mmap,
        *,
        on_events: OnEvents,
        on_end: OnEnd,
        opening: bool = False,
    ) -> None:
        """With `opening` the call of `open` has been sent already."""
        self._is_sent = opening
        self._loop = asyncio.get_running_loop()
        self._child = child
        self._connection = connection
        self._progress = progress
        self._on_events = on_events
        self._on_end = on_end
        self._waiting: tuple[int, asyncio.Future[worker.Reply]] | None = None
        self._calls = 0
        self.pid = child.pid
        self.heard_at = self._loop.time()
        """When the process last sent anything, in the loop's time."""
        self._watch = self._loop.create_task(self._watch_end())

    @property
    def ended(self) -> bool:
        """The process is gone."""
        return self._child.status is not None

    @property
    def entered(self) -> str:
        """The library function that the process entered last."""
        return worker.read_progress(self._progress)

    async def open(self, *, deadline_seconds: float) -> contract.DriverState:
        """`Library.open`. Raises HungError, EndedError or what the library raised."""
        if self._connection.fileno() >= 0:
            # Not before: the answer to what `prepare` has sent is to find who waits for it.
            self._loop.add_reader(self._connection, self._receive)
        reply = await self._call(worker.Call(id=0, method="open"), deadline_seconds)
        if reply.state is None:
            raise EndedError("the library process gave no answer to open")
        return reply.state

    async def read(self, address: str, *, deadline_seconds: float) -> contract.CardReading:
        """`Library.read`. Raises HungError, EndedError or what the library raised."""
        call = worker.Call(id=0, method="read", argument=address)
        reply = await self._call(call, deadline_seconds)
        if reply.reading is None:
            raise EndedError(f"the library process gave no answer to read {address}")
        return reply.reading

    async def act(
        self, address: str, action: contract.Action, *, deadline_seconds: float
    ) -> contract.Partition | None:
        """`Library.act`. Raises HungError, EndedError or what the library raised."""
        call = worker.Call(id=0, method="act", argument=address, action=action)
        return (await self._call(call, deadline_seconds)).partition

    async def kill(self) -> bool:
        """End the process by SIGKILL; False if it has not ended some seconds later."""
        self._hang_up()
        return await self._child.kill()

    async def _call(self, call: worker.Call, deadline_seconds: float) -> worker.Reply:
        if self.ended or self._connection.fileno() < 0:
            raise EndedError("the library process has ended")
        self._calls += 1
        future: asyncio.Future[worker.Reply] = self._loop.create_future()
        self._waiting = (self._calls, future)
        numbered = msgspec.structs.replace(call, id=self._calls)
        try:
            if not self._is_sent:
                self._connection.send(_encode(numbered))
            self._is_sent = False
            async with asyncio.timeout(deadline_seconds):
                reply = await future
        except TimeoutError as error:
            raise HungError(
                f"{self.entered or call.method} has not returned for {deadline_seconds:g} s"
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

    async def _watch_end(self) -> None:
        await self._child.wait()
        self._hang_up()
        self._on_end()


def _error(failure: worker.Failure) -> errors.GpudeckError:
    kind = getattr(errors, failure.kind, errors.GpudeckError)
    error: errors.GpudeckError = kind(failure.message, reason=failure.reason)
    return error
