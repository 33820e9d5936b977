# SPDX-License-Identifier: Apache-2.0
"""Kill a process from outside when it enters its n-th system call of a family.

strace's fault injection is not enough for a process with threads: strace 6.1 counts
`when=N` for each thread by itself, so calls that threads share out among themselves
are passed over. The small debugger in `tracer` counts all threads together, and the
call that is n-th is not executed any more. It is a program beside the test, since
ptrace binds a process to one thread of its tracer.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

import pytest
from tests.support import tracer

T = TypeVar("T")


class CannotTraceError(Exception):
    """This machine, user or sandbox does not allow ptrace, or its call numbers are unknown."""


@dataclasses.dataclass
class Doom:
    """What became of it; `struck` holds once the block has ended."""

    struck: bool = False


@contextlib.asynccontextmanager
async def doomed(pid: int, family: str, number: int) -> AsyncIterator[Doom]:
    """Inside the block, kill process `pid` at its `number`-th call of `family`, counted from now.

    Raises CannotTraceError; AssertionError if the process has ended by itself. After the block
    the process, if it lives, is not traced any more.
    """
    if not tracer.FAMILIES:
        raise CannotTraceError(f"numbers of system calls of {os.uname().machine} are not known")
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", tracer.__file__, str(pid), family, str(number)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdout is not None
    doom = Doom()
    try:
        answer = (await program.stdout.readline()).decode().strip()
        if answer.startswith("cannot trace"):
            raise CannotTraceError(answer)
        assert answer == "ready", f"process {pid} has ended before anybody killed it"
        yield doom
    finally:
        # Tracees of a tracer that ends go on as if nothing had been.
        send(program, signal.SIGTERM)
        doom.struck = b"struck" in await program.stdout.read()
        await program.wait()


def send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a process that may be ending right now.

    `Process.send_signal` of Python 3.11 would take the exit status from asyncio's own waiter.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def at_every_call(
    node: Callable[[], contextlib.AbstractAsyncContextManager[T]],
    survives: Callable[[T, str, int], Awaitable[bool]],
    families: Iterable[str],
    *,
    at_once: int,
) -> None:
    """Try n = 1, 2, … of each family until one is not reached any more.

    Families are independent: each has a `node` of its own, `at_once` of them at a time.
    `survives` tells whether the n-th call was not reached.
    """
    turn = asyncio.Semaphore(at_once)

    async def of(family: str) -> None:
        async with turn, node() as program:
            for number in itertools.count(1):
                try:
                    if await survives(program, family, number):
                        break
                except Exception as error:
                    error.add_note(f"The plugin was to be killed at {family} number {number}.")
                    raise
            assert number > 1, f"no {family} was seen"

    try:
        async with asyncio.TaskGroup() as group:
            for family in families:
                group.create_task(of(family))
    except* CannotTraceError as error:
        pytest.skip(str(error.exceptions[0]))
