# SPDX-License-Identifier: Apache-2.0
"""The last good config outlives the process, and a bad disk does not end it."""

from pathlib import Path

from gpudeck.pluginconfig import keeping, selecting

TEXT = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}}"
SLICED = selecting.select({"slice-4": TEXT}, selecting.Choices(label="slice-4"), None)


async def test_what_was_kept_is_restored(tmp_path: Path) -> None:
    path = tmp_path / "state/config.json"
    assert await keeping.State(path).restore() is None
    await keeping.State(path).save(SLICED)
    restored = await keeping.State(path).restore()
    assert restored is not None
    assert (restored.name, restored.text, restored.config) == ("slice-4", TEXT, SLICED.config)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_broken_file_is_as_good_as_none_and_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'{"version": 1, "na')
    state = keeping.State(path)
    assert await state.restore() is None
    await state.save(SLICED)
    assert await keeping.State(path).restore() is not None


async def test_a_disk_that_takes_nothing_costs_the_next_start_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    await keeping.State(tmp_path / "file/config.json").save(SLICED)


async def test_what_another_process_keeps_is_read_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    await keeping.State(path).save(SLICED)
    before = path.read_bytes(), path.stat().st_ino
    other = keeping.State(path, is_read_only=True)
    restored = await other.restore()
    assert restored is not None
    assert restored.name == "slice-4"
    await other.save(selecting.NOTHING)
    assert (path.read_bytes(), path.stat().st_ino) == before
