# SPDX-License-Identifier: Apache-2.0
"""Units that are stopped for a while and run again, whoever was killed meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.systemctl import Systemctl

from gpudeck import errors
from gpudeck.host import stopping
from gpudeck.host.root import Root

A, B = "a.service", "b.service"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "START_PAUSES", (0.0, 0.0))


@pytest.fixture
def host(tmp_path: Path) -> Systemctl:
    return Systemctl(tmp_path, a="active", b="active")


async def test_what_was_stopped_is_started_by_whoever_comes_next(
    tmp_path: Path, host: Systemctl
) -> None:
    root = Root(tmp_path)
    await stopping.Stopping(root, "mig").stop([A])
    await stopping.Stopping(root, "mig").stop([B])
    assert stopping.Stopping(root, "another").stopped == ()
    await stopping.Stopping(root, "another").start()
    assert host.told == [f"stop {A}", f"stop {B}"]
    after = stopping.Stopping(root, "mig")
    assert after.stopped == (A, B)
    await after.start()
    assert (after.stopped, host.state(A), host.state(B)) == ((), "active", "active")


async def test_one_that_does_not_stop_is_started_with_the_others(
    tmp_path: Path, host: Systemctl
) -> None:
    host.stick(B)
    units = stopping.Stopping(Root(tmp_path), "mig")
    with pytest.raises(errors.UnavailableError, match=r"Job for b\.service failed"):
        await units.stop([A, B])
    assert units.stopped == (A, B)


async def test_one_that_does_not_start_is_told_and_forgotten(
    tmp_path: Path, host: Systemctl
) -> None:
    units = stopping.Stopping(Root(tmp_path), "mig")
    await units.stop([A, B])
    host.stick(B)
    with pytest.raises(errors.UnavailableError, match=r"Job for b\.service failed"):
        await units.start()
    assert (units.stopped, host.state(A)) == ((), "active")


async def test_who_is_ended_while_they_start_has_them_started_later(
    tmp_path: Path, host: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = stopping.Stopping(Root(tmp_path), "mig")
    await units.stop([A])
    host.stick(A)
    monkeypatch.setattr(stopping, "START_PAUSES", (0.0, 3600.0))
    starting = asyncio.create_task(units.start())
    async with asyncio.timeout(10):
        while f"start {A}" not in host.told:  # noqa: ASYNC110 - a file tells nobody.
            await asyncio.sleep(0.01)
    starting.cancel()
    await asyncio.wait([starting])
    assert units.stopped == (A,)
