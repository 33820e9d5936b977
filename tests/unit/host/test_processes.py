# SPDX-License-Identifier: Apache-2.0
"""Processes: output, deadlines, and that nothing survives its end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.host import processes


async def test_status_and_output_are_returned() -> None:
    done = await processes.run(
        ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], deadline_seconds=10
    )
    assert done == processes.Finished(3, b"out\n", b"err\n")


async def test_the_environment_of_this_process_is_not_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET", "1")
    done = await processes.run(["/bin/sh", "-c", "echo $SECRET"], deadline_seconds=10)
    assert done.output == b"\n"


async def test_a_missing_program_is_named() -> None:
    with pytest.raises(errors.NotFoundError, match="/absent/program: No such file"):
        await processes.run(["/absent/program"], deadline_seconds=10)


async def test_past_the_deadline_the_process_and_its_children_end(tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    # The grandchild holds the pipe's writing end open for as long as it lives.
    script = f"sleep 60 > {fifo} & wait"
    with pytest.raises(errors.UnavailableError, match=r"did not end within 0\.2 s"):
        await processes.run(["/bin/sh", "-c", script], deadline_seconds=0.2)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(reader, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), 5)
        assert os.read(reader, 1) == b""
    finally:
        loop.remove_reader(reader)
        os.close(reader)


async def test_a_child_that_ignores_sigterm_is_killed() -> None:
    reader, writer = os.pipe()
    script = f"trap '' TERM; echo ready > /dev/fd/{writer}; while :; do sleep 60; done"
    child = await processes.Child.start(["/bin/sh", "-c", script], descriptors=[writer])
    os.close(writer)  # Without it the read ends even if the child dies first.
    assert await asyncio.to_thread(os.read, reader, 6) == b"ready\n"
    os.close(reader)
    assert await child.stop(grace_seconds=0.05)
    assert child.status == -9
    assert await child.stop(grace_seconds=0.05)


async def test_a_copy_of_this_process_is_taken_over() -> None:
    forked = processes.Forked(lambda: time.sleep(60), "copy")
    child = processes.Child.adopt(forked)
    assert (child.pid, child.status) == (forked.pid, None)
    assert await child.kill()
    assert child.status == -signal.SIGKILL


async def test_the_end_of_a_copy_before_it_was_taken_over_is_heard() -> None:
    forked = processes.Forked(lambda: os._exit(3), "copy")
    await asyncio.to_thread(os.waitid, os.P_PID, forked.pid, os.WEXITED | os.WNOWAIT)
    assert await processes.Child.adopt(forked).wait() == 3


async def test_a_copy_whose_program_returns_has_failed() -> None:
    forked = processes.Forked(lambda: None, "copy")
    assert await processes.Child.adopt(forked).wait() == os.EX_SOFTWARE
