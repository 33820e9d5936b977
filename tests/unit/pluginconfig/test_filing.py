# SPDX-License-Identifier: Apache-2.0
"""A config file holds from the start, and each new content of it that is good."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.pluginconfig import filing, keeping, selecting

GOOD = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: %d}]}}"


@contextlib.asynccontextmanager
async def followed(
    path: Path | str, state: keeping.State | None = None
) -> AsyncIterator[asyncio.Queue[selecting.Selected]]:
    told: asyncio.Queue[selecting.Selected] = asyncio.Queue()
    file = filing.File(str(path), look_seconds=0.01)
    task = asyncio.create_task(file.follow(told.put_nowait, state))
    try:
        async with asyncio.timeout(20):
            yield told
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_each_good_content_holds_and_a_wrong_one_keeps_the_last(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(GOOD % 4)
    async with followed(path) as told:
        first = await told.get()
        assert (first.name, first.origin, first.problem) == (str(path), "file", None)
        path.write_text(GOOD % 1)
        wrong = await told.get()
        assert wrong.config == first.config
        assert wrong.problem is not None
        assert "sharing.timeSlicing.resources[0].replicas" in wrong.problem.message
        path.unlink()
        gone = await told.get()
        assert gone.config == first.config
        assert gone.problem is not None
        path.write_text(GOOD % 5)
        again = await told.get()
        assert again.text == GOOD % 5
        assert again.problem is None


async def test_without_a_file_an_empty_config_holds() -> None:
    async with followed("") as told:
        assert await told.get() == selecting.NOTHING


async def test_a_file_that_is_wrong_at_the_start_is_refused_by_its_field(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    with pytest.raises(errors.NotFoundError):
        filing.File(str(path)).read()
    path.write_text("flags: {migStrategy: both}")
    with pytest.raises(errors.InvalidError, match=r"flags\.migStrategy"):
        await filing.File(str(path)).follow(lambda selected: None)


async def test_a_file_that_is_wrong_at_the_start_leaves_the_config_of_the_last_run(
    tmp_path: Path,
) -> None:
    path, kept = tmp_path / "config.yaml", tmp_path / "kept.json"
    path.write_text("flags: {migStrategy: both}")
    before = selecting.of_file("config", GOOD % 4)
    await keeping.State(kept).save(before)
    async with followed(path, keeping.State(kept)) as told:
        found = await told.get()
    assert found.config == before.config
    assert found.problem is not None
    assert "flags.migStrategy" in found.problem.message
    kept.unlink()
    async with followed(path, keeping.State(kept)) as told:
        found = await told.get()
    assert found.config == selecting.NOTHING.config
    assert found.problem is not None
