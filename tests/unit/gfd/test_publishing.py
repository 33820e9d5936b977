# SPDX-License-Identifier: Apache-2.0
"""The file of labels: whole, only when it is another, and with an end once the process is gone."""

from __future__ import annotations

import datetime
import stat
from pathlib import Path

import pytest

from gpudeck.gfd import publishing
from gpudeck.host.root import Root

PATH = "/etc/kubernetes/node-feature-discovery/features.d/gfd"


@pytest.fixture
def file(tmp_path: Path) -> publishing.File:
    return publishing.File(Root(tmp_path), PATH)


async def test_the_file_holds_a_line_a_label(file: publishing.File, tmp_path: Path) -> None:
    assert await file.write({"nvidia.com/gpu.count": "4", "nvidia.com/gpu.mode": "compute"})
    written = tmp_path / PATH.lstrip("/")
    assert written.read_text() == "nvidia.com/gpu.count=4\nnvidia.com/gpu.mode=compute\n"
    assert stat.S_IMODE(written.stat().st_mode) == 0o644
    assert [each.name for each in written.parent.iterdir()] == ["gfd"]


async def test_what_is_there_already_is_not_written_again(
    file: publishing.File, tmp_path: Path
) -> None:
    assert await file.write({"nvidia.com/gpu.count": "4"})
    before = (tmp_path / PATH.lstrip("/")).stat().st_ino
    assert not await file.write({"nvidia.com/gpu.count": "4"})
    assert (tmp_path / PATH.lstrip("/")).stat().st_ino == before


async def test_a_file_that_somebody_removed_comes_back(
    file: publishing.File, tmp_path: Path
) -> None:
    await file.write({"nvidia.com/gpu.count": "4"})
    (tmp_path / PATH.lstrip("/")).unlink()
    assert await file.write({"nvidia.com/gpu.count": "4"})


async def test_labels_outlive_the_process_by_a_restart_only(
    file: publishing.File, tmp_path: Path
) -> None:
    await file.write({"nvidia.com/gpu.count": "4"})
    await file.close()
    first, second = (tmp_path / PATH.lstrip("/")).read_text().splitlines()
    assert second == "nvidia.com/gpu.count=4"
    expires = datetime.datetime.fromisoformat(first.removeprefix("# +expiry-time="))
    left = expires - datetime.datetime.now(datetime.UTC)
    assert 0 < left.total_seconds() <= publishing.LEAVE_SECONDS


async def test_labels_of_the_process_before_do_not_end_while_nothing_is_known_yet(
    file: publishing.File, tmp_path: Path
) -> None:
    """As when it starts in the middle of a change of the node's mode, which may take long."""
    await file.write({"nvidia.com/gpu.count": "4", "nvidia.com/gpu.mode": "compute"})
    before = (tmp_path / PATH.lstrip("/")).read_text()
    for _ in range(2):
        await file.close()
        file = publishing.File(Root(tmp_path), PATH)
        await file.begin()
        assert (tmp_path / PATH.lstrip("/")).read_text() == before
    await file.close()
    assert (tmp_path / PATH.lstrip("/")).read_text().startswith("# +expiry-time=")


async def test_a_file_that_is_not_ours_yet_begins_as_it_is(
    file: publishing.File, tmp_path: Path
) -> None:
    await file.begin()
    path = tmp_path / PATH.lstrip("/")
    assert not path.exists()
    path.parent.mkdir(parents=True)
    for text in ("", "nvidia.com/gpu.present\n"):
        path.write_text(text)
        await file.begin()
        await file.close()
        assert path.read_text() == text


async def test_a_process_that_never_knew_the_cards_leaves_the_file_alone(
    file: publishing.File, tmp_path: Path
) -> None:
    await file.close()
    assert not (tmp_path / PATH.lstrip("/")).exists()


async def test_what_a_killed_writer_left_is_removed_and_others_files_are_not(
    file: publishing.File, tmp_path: Path
) -> None:
    folder = (tmp_path / PATH.lstrip("/")).parent
    folder.mkdir(parents=True)
    for name in (".gfd.0123456789ab.tmp", ".other.0123456789ab.tmp", "other"):
        (folder / name).write_text("x=y\n")
    await file.write({"nvidia.com/gpu.count": "4"})
    assert {each.name for each in folder.iterdir()} == {".other.0123456789ab.tmp", "gfd", "other"}
