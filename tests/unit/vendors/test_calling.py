# SPDX-License-Identifier: Apache-2.0
"""A library process that was started before it was needed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
import sys
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


async def test_the_first_start_of_an_equal_program_takes_what_was_prepared(tmp_path: Path) -> None:
    prepared = program(tmp_path)
    prepared.prepare()
    other = await start(program(tmp_path / "other"))
    first = await start(program(tmp_path))
    second = await start(program(tmp_path))
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


async def test_what_was_prepared_and_has_crashed_is_an_end_like_any_other(tmp_path: Path) -> None:
    found = program(tmp_path, crashes=True)
    found.prepare()
    ended = asyncio.Event()
    process = await found.start(lambda events: None, ended.set)
    async with asyncio.timeout(20):
        await ended.wait()
    assert process.ended


def test_what_nobody_takes_ends_with_the_process(tmp_path: Path) -> None:
    program(tmp_path)
    text = (
        "from gpudeck.vendors import calling, contract\n"
        f"settings = contract.VendorSettings(host_root={str(tmp_path)!r})\n"
        "found = calling.Program(vendor='simulated', settings=settings)\n"
        "found.prepare()\n"
        "print(calling._prepared[found].process.pid)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, text=True)
    with contextlib.suppress(ProcessLookupError):  # It is gone already.
        descriptor = os.pidfd_open(int(done.stdout))
        try:
            assert select.select([descriptor], [], [], 20)[0]
        finally:
            os.close(descriptor)
