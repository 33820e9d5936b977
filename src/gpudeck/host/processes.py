# SPDX-License-Identifier: Apache-2.0
"""Start, await and end child processes. No other package of the product starts any.

A child gets a session of its own, so ending it ends what it started as well. No
shell is ever involved: arguments are passed as they are. The environment is what
the caller gives, not this process's.

A program that is Python itself can begin as a copy of this process (`Forked`), which spares it the
start of an interpreter, and be taken over by `Child.adopt`. That is for the begin of a process,
before there are an event loop and threads: a copy has neither, but all their locks. It has a
process group of its own, to the same end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gpudeck import errors
from gpudeck.host import files

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
_KILL_SECONDS = 5.0  # A process that SIGKILL has not ended by then waits inside a driver.


class Finished(msgspec.Struct, frozen=True):
    """How a process ended: exit status (negative = signal) and all that it wrote."""

    status: int
    output: bytes
    error_output: bytes


class Forked:
    """A copy of this process that does something else; its output goes where ours goes."""

    def __init__(self, program: Callable[[], None], name: str) -> None:
        """Fork; the copy ends with `program`, which tells of its own errors.

        Raises UnavailableError if the node cannot start a process.
        """
        try:
            self.pid = os.fork()
        except OSError as error:
            raise files.translated(error, name) from error
        if self.pid == 0:
            try:
                os.setpgid(0, 0)
                program()
            finally:
                os._exit(os.EX_SOFTWARE)
        os.setpgid(self.pid, self.pid)  # Both do: whoever of them is first, it can be ended now.
        self.name = name
        self.returncode: int | None = None
        """As of `asyncio.subprocess.Process`."""
        self._ended: asyncio.Event | None = None

    def attach(self) -> None:
        """Let the running loop hear of its end."""
        self._ended = asyncio.Event()
        descriptor = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(descriptor, self._reap, descriptor)

    def _reap(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self._wait()  # It has ended: the kernel says so by the descriptor.
        if self._ended is not None:
            self._ended.set()

    async def wait(self) -> int:
        """As of `asyncio.subprocess.Process`, after `attach`."""
        if self._ended is not None:
            await self._ended.wait()
        return self._wait()

    def _wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """As of `asyncio.subprocess.Process`: its output went elsewhere."""
        await self.wait()
        return b"", b""


class Child:
    """A process that runs beside this one."""

    def __init__(self, process: asyncio.subprocess.Process | Forked, name: str) -> None:
        self._process = process
        self.name = name

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
        pipes: bool = False,
    ) -> Child:
        """Start `arguments[0]`; `descriptors` stay open in it, stdin is empty.

        With `pipes` its output is kept for `finished`, else it goes where ours goes.
        Raises NotFoundError or ForbiddenError if the program cannot be started.
        """
        target = asyncio.subprocess.PIPE if pipes else None
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=target,
                stderr=target,
                env=dict(_ENVIRONMENT if environment is None else environment),
                pass_fds=descriptors,
                start_new_session=True,
            )
        except OSError as error:
            raise files.translated(error, arguments[0]) from error
        return cls(process, arguments[0])

    @classmethod
    def adopt(cls, forked: Forked) -> Child:
        """Take over a process that was started before; only once."""
        forked.attach()
        return cls(forked, forked.name)

    @property
    def pid(self) -> int:
        """The process id; it is not reused before the end has been awaited."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for the end and return the exit status."""
        return await self._process.wait()

    async def finished(self) -> Finished:
        """Read its output to the end, wait, and return both. Only if started with `pipes`."""
        output, error_output = await self._process.communicate()
        return Finished(await self._process.wait(), output, error_output)

    async def stop(self, *, grace_seconds: float = 5.0) -> bool:
        """End the process and its children: SIGTERM, and SIGKILL after the grace.

        Returns False if not even SIGKILL has ended it: it waits inside the kernel and
        is left behind. May be repeated.
        """
        if await self._signal(signal.SIGTERM, grace_seconds):
            self._send(signal.SIGKILL)  # What it started may have outlived it.
            return True
        return await self._signal(signal.SIGKILL, _KILL_SECONDS)

    async def kill(self) -> bool:
        """End the process and its children at once; False as for `stop`."""
        return await self._signal(signal.SIGKILL, _KILL_SECONDS)

    async def _signal(self, number: signal.Signals, seconds: float) -> bool:
        self._send(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self._process.returncode is not None

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


async def run(
    arguments: Sequence[str],
    *,
    deadline_seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Run a program to its end and return its status and output.

    Raises UnavailableError after `deadline_seconds` (the process is killed) and what
    `Child.start` raises. A status other than 0 is the caller's to judge.
    """
    child = await Child.start(arguments, environment=environment, pipes=True)
    try:
        async with asyncio.timeout(deadline_seconds):
            return await child.finished()
    except TimeoutError as error:
        raise errors.UnavailableError(
            f"{arguments[0]} did not end within {deadline_seconds:g} s", reason="CommandTimeout"
        ) from error
    finally:
        if child.status is None:
            await child.kill()
