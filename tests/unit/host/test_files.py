# SPDX-License-Identifier: Apache-2.0
"""Files: whole replacement, leftovers, and what each system error becomes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.host import files


def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        files.write_atomic(tmp_path / "spec.json", b"{}", mode=0o644)
    finally:
        os.umask(before)
    assert (tmp_path / "spec.json").stat().st_mode & 0o777 == 0o644


def test_a_failed_replacement_keeps_the_old_file_and_no_leftover(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/file").write_text("kept")
    with pytest.raises(errors.GpudeckError):
        files.write_atomic(tmp_path / "state", b"new")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["state"]


def test_leftovers_of_killed_writers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".state.0123456789ab.tmp").write_text("half")
    (tmp_path / "state.tmp").write_text("a user's")
    (tmp_path / "state").write_text("whole")
    assert files.remove_leftovers(tmp_path) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["state", "state.tmp"]
    assert files.remove_leftovers(tmp_path / "absent") == 0


def test_removing_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    assert not files.remove(tmp_path / "absent")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOENT, errors.NotFoundError),
        (errno.EROFS, errors.ForbiddenError),
        (errno.EEXIST, errors.AlreadyExistsError),
        (errno.EISDIR, errors.InvalidError),
        (errno.EIO, errors.UnavailableError),
        (errno.ENOSPC, errors.UnavailableError),
    ],
)
def test_system_errors_become_ours_by_what_can_be_done(
    code: int, kind: type[errors.GpudeckError]
) -> None:
    error = files.translated(OSError(code, os.strerror(code)), Path("/x/y"))
    assert type(error) is kind
    assert error.message == f"/x/y: {os.strerror(code)}"
