# SPDX-License-Identifier: Apache-2.0
"""Locks exclude tasks and processes, give up at the deadline, and die with their holder."""

from __future__ import annotations

import asyncio
import concurrent.futures
from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.host import files, locks


async def test_a_second_holder_of_the_same_process_is_refused_at_the_deadline(
    tmp_path: Path,
) -> None:
    async with locks.held(tmp_path / "lock"):
        with pytest.raises(errors.BusyError, match="another process has held this lock for 0 s"):
            async with locks.held(tmp_path / "lock", deadline_seconds=0):
                raise AssertionError("both hold the lock")


async def test_a_waiter_gets_the_lock_when_it_is_released(tmp_path: Path) -> None:
    order: list[str] = []
    released = asyncio.Event()

    async def wait() -> None:
        async with locks.held(tmp_path / "lock"):
            order.append("second")

    async with locks.held(tmp_path / "lock"):
        waiter = asyncio.create_task(wait())
        asyncio.get_running_loop().call_soon(released.set)
        await released.wait()
        order.append("first")
    await waiter
    assert order == ["first", "second"]


async def test_a_cancelled_waiter_leaves_the_lock_free(tmp_path: Path) -> None:
    async with locks.held(tmp_path / "lock"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), locks.held(tmp_path / "lock"):
                raise AssertionError("both hold the lock")
    async with locks.held(tmp_path / "lock", deadline_seconds=0):
        assert (tmp_path / "lock").exists()


async def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f, fcntl.LOCK_EX);"
        "print('held', flush=True); time.sleep(60)"
    )
    child = await asyncio.create_subprocess_exec(
        "python3", "-c", code, str(tmp_path / "lock"), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"held\n"
    with pytest.raises(errors.BusyError):
        async with locks.held(tmp_path / "lock", deadline_seconds=0):
            raise AssertionError("both hold the lock")
    child.kill()
    await child.wait()
    async with locks.held(tmp_path / "lock", deadline_seconds=0):
        assert child.returncode == -9


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="absent/lock"):
        async with locks.held(tmp_path / "absent/lock"):
            raise AssertionError("held a lock that cannot exist")


def test_those_who_ask_at_once_do_not_take_each_other_for_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: files.is_locked(path), range(4000)))
    assert answers.count(True) == 0


async def test_a_lock_that_is_held_is_seen_and_one_that_is_missing_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not files.is_locked(path)
    async with locks.held(path):
        assert files.is_locked(path)
    assert not files.is_locked(path)
