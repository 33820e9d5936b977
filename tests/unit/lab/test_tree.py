# SPDX-License-Identifier: Apache-2.0
"""Applying a tree: complete, repeatable, and careful with what others wrote."""

from pathlib import Path

from gpudeck.lab import tree

SAMPLE: tree.Tree = {
    "etc/name": tree.text("one"),
    "etc/link": tree.Link("name"),
    "run/private": tree.Folder(0o700),
}


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path.relative_to(root)): (
            path.lstat().st_ino,
            path.lstat().st_mtime_ns,
            path.lstat().st_mode,
        )
        for path in root.rglob("*")
    }


def test_a_tree_becomes_files_links_and_folders(tmp_path: Path) -> None:
    tree.apply(SAMPLE, tmp_path)
    assert (tmp_path / "etc/link").read_text() == "one\n"
    assert (tmp_path / "etc/link").is_symlink()
    assert (tmp_path / "run/private").stat().st_mode & 0o777 == 0o700


def test_applying_again_touches_nothing(tmp_path: Path) -> None:
    tree.apply(SAMPLE, tmp_path)
    before = snapshot(tmp_path)
    tree.apply(SAMPLE, tmp_path)
    assert snapshot(tmp_path) == before


def test_a_changed_entry_is_replaced_whatever_it_was(tmp_path: Path) -> None:
    tree.apply(SAMPLE, tmp_path)
    tree.apply({"etc/link": tree.text("a file now"), "etc/name": tree.Link("link")}, tmp_path)
    assert (tmp_path / "etc/name").read_text() == "a file now\n"
    assert not (tmp_path / "etc/link").is_symlink()


def test_what_an_earlier_tree_had_goes_and_what_others_wrote_stays(tmp_path: Path) -> None:
    tree.apply(SAMPLE, tmp_path)
    (tmp_path / "etc/mine").write_text("keep")
    tree.apply({}, tmp_path, previous=SAMPLE)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["etc", "mine"]


def test_a_half_written_entry_of_a_killed_run_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/.name.new").write_text("half")
    tree.apply(SAMPLE, tmp_path)
    assert (tmp_path / "etc/name").read_text() == "one\n"
    assert not (tmp_path / "etc/.name.new").exists()


def test_links_are_relative_to_where_they_stand() -> None:
    assert tree.relative("sys/bus/pci/devices/x", "sys/devices/pci0/x") == tree.Link(
        "../../../devices/pci0/x"
    )
