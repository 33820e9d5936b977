# SPDX-License-Identifier: Apache-2.0
"""A library process that was started before it was needed, in a program of its own.

That is where `prepare` belongs: the process of the tests has threads, and a copy of it their locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from gpudeck.vendors import calling, contract
from gpudeck.vendors.simulated import machine


def program(folder: Path, *, crashes: bool = False) -> calling.Program:
    folder.mkdir(exist_ok=True)
    made = msgspec.structs.replace(machine.make(1), opening_crashes=crashes)
    machine.Bench(folder).write(made)
    return calling.Program(
        vendor="simulated", settings=contract.VendorSettings(host_root=str(folder))
    )


async def start(found: calling.Program) -> calling.LibraryProcess:
    return await found.start(lambda events: None, lambda: None)


def alone(scenario: Callable[[Path], Awaitable[None]], folder: Path) -> None:
    """Run a scenario of this module in a program of its own; its errors fail the test."""
    text = (
        "import asyncio, sys, pathlib\n"
        f"from {scenario.__module__} import {scenario.__name__} as scenario\n"
        f"asyncio.run(scenario(pathlib.Path({str(folder)!r})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


async def first_and_others(folder: Path) -> None:
    prepared = program(folder)
    prepared.prepare()
    other = await start(program(folder / "other"))
    first = await start(program(folder))
    second = await start(program(folder))
    try:
        assert len({other.pid, first.pid, second.pid}) == 3
        for each in (first, second):
            state = await each.open(deadline_seconds=20)
            assert state.ready
            (card,) = machine.make(1).cards
            reading = await each.read(card.site.address, deadline_seconds=20)
            assert reading.uuid == card.reading.uuid
    finally:
        for each in (other, first, second):
            assert await each.kill()


def test_the_first_start_of_an_equal_program_takes_what_was_prepared(tmp_path: Path) -> None:
    alone(first_and_others, tmp_path)


async def crashed(folder: Path) -> None:
    found = program(folder, crashes=True)
    found.prepare()
    ended = asyncio.Event()
    process = await found.start(lambda events: None, ended.set)
    async with asyncio.timeout(20):
        await ended.wait()
    assert process.ended


def test_what_was_prepared_and_has_crashed_is_an_end_like_any_other(tmp_path: Path) -> None:
    alone(crashed, tmp_path)


async def untaken(folder: Path) -> None:
    found = program(folder)
    found.prepare()
    (folder / "pid").write_text(str(calling._prepared[found].process.pid))


def test_what_nobody_takes_ends_with_the_process(tmp_path: Path) -> None:
    alone(untaken, tmp_path)
    pid = int((tmp_path / "pid").read_text())
    with contextlib.suppress(ProcessLookupError):  # It is gone already.
        descriptor = os.pidfd_open(pid)
        try:
            assert select.select([descriptor], [], [], 20)[0]
        finally:
            os.close(descriptor)
