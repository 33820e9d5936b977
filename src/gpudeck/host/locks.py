# SPDX-License-Identifier: Apache-2.0
"""Exclusive locks between processes and pods of one node: flock(2) with a deadline.

The kernel drops the lock when its holder ends, however it ends. The lock belongs to
the open file, so two tasks of one process exclude each other too. Lock files are
never removed: a waiter would then hold a lock on a file that nobody else can see.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator
from pathlib import Path

from gpudeck import errors
from gpudeck.host import files

_FIRST_WAIT_SECONDS = 0.002
_LONGEST_WAIT_SECONDS = 0.05


@contextlib.asynccontextmanager
async def held(path: Path, *, deadline_seconds: float = 10.0) -> AsyncIterator[None]:
    """Hold the lock file `path` (made if missing; its folder must exist) inside the block.

    Raises BusyError when another holder keeps it for `deadline_seconds`. A free lock
    is taken without waiting; a cancelled wait leaves nothing behind.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise files.translated(error, path) from error
    try:
        await _acquire(descriptor, path, deadline_seconds)
        yield
    finally:
        os.close(descriptor)


async def _acquire(descriptor: int, path: Path, deadline_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    ends = loop.time() + deadline_seconds
    wait = _FIRST_WAIT_SECONDS
    while not _try(descriptor, path):
        left = ends - loop.time()
        if left <= 0:
            raise errors.BusyError(
                f"{path}: another process has held this lock for {deadline_seconds:g} s",
                reason="LockHeld",
            )
        # A blocking flock in a thread could not be cancelled, so ask again instead.
        await asyncio.sleep(min(wait, left))
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)


def _try(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise files.translated(error, path) from error
    return True
