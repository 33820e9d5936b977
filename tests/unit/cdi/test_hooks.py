# SPDX-License-Identifier: Apache-2.0
"""The program of the CDI hooks on the node."""

from __future__ import annotations

import os
from pathlib import Path

from gpudeck.cdi import hooks
from gpudeck.host import programs


def install(program: Path, data_dir: Path) -> str:
    """As a plugin does when it starts."""
    found = hooks.Hooks(program, data_dir)
    found.look()
    return found.path


def test_the_program_is_copied_once_and_can_be_run(tmp_path: Path) -> None:
    program = tmp_path / "cdi-hook"
    program.write_bytes(b"one")
    first = Path(install(program, tmp_path))
    assert (first.parent, first.name[:9]) == (tmp_path / "bin", "cdi-hook-")
    assert (first.read_bytes(), os.access(first, os.X_OK)) == (b"one", True)
    stamp = first.stat()
    assert install(program, tmp_path) == str(first)
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == (stamp.st_ino, stamp.st_mtime_ns)


def test_another_version_stands_beside_the_one_that_may_be_running(tmp_path: Path) -> None:
    program = tmp_path / "cdi-hook"
    program.write_bytes(b"one")
    first = Path(install(program, tmp_path))
    program.write_bytes(b"two")
    second = Path(install(program, tmp_path))
    assert (first.read_bytes(), second.read_bytes()) == (b"one", b"two")


def test_a_copy_that_is_not_whole_is_made_again(tmp_path: Path) -> None:
    program = tmp_path / "cdi-hook"
    program.write_bytes(b"whole")
    copy = Path(install(program, tmp_path))
    copy.write_bytes(b"who")
    install(program, tmp_path)
    assert copy.read_bytes() == b"whole"


def test_an_image_without_the_program_has_no_hooks(tmp_path: Path) -> None:
    assert install(tmp_path / "none", tmp_path) == ""


def test_our_own_program_comes_along(tmp_path: Path) -> None:
    program = tmp_path / "cdi-hook"
    program.write_bytes(b"theirs")
    (tmp_path / "gpudeck-memory-limits").write_bytes(b"ours")
    installed = Path(install(program, tmp_path))
    name = programs.installed_name("gpudeck-memory-limits", b"ours")
    assert installed.with_name(name).read_bytes() == b"ours"


def test_a_copy_that_somebody_removed_or_changed_is_put_back(tmp_path: Path) -> None:
    program = tmp_path / "cdi-hook"
    program.write_bytes(b"whole")
    (tmp_path / "gpudeck-memory-limits").write_bytes(b"ours")
    found = hooks.Hooks(program, tmp_path)
    found.look()
    copies = sorted((tmp_path / "bin").iterdir())
    for copy in copies:
        content = copy.read_bytes()
        copy.unlink()
        found.look()
        assert copy.read_bytes() == content
        copy.write_bytes(b"other")
        found.look()
        assert copy.read_bytes() == content
    assert len(copies) == 2


def test_a_file_in_the_place_of_the_folder_is_told_until_it_is_gone(tmp_path: Path) -> None:
    program = tmp_path / "cdi-hook"
    program.write_bytes(b"whole")
    (tmp_path / "bin").write_text("no folder")
    found = hooks.Hooks(program, tmp_path)
    found.look()
    assert (found.path, str(tmp_path / "bin") in found.failure) == ("", True)
    (tmp_path / "bin").unlink()
    found.look()
    assert Path(found.path).read_bytes() == b"whole"
    assert found.failure == ""
