# SPDX-License-Identifier: Apache-2.0
"""The record of a lab: names, folders, the lock, and what survives a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.lab import state
from gpudeck.lab.state import Lab, Node, Process


@pytest.mark.parametrize("name", ["lab", "a", "two-labs", "x" * 32])
def test_a_plain_name_is_a_labs_name(tmp_path: Path, name: str) -> None:
    assert state.folder(name, tmp_path).path == tmp_path / name


@pytest.mark.parametrize("name", ["", "Lab", "-a", "a-", "a/b", "..", "x" * 33, "a b", "lab\n"])
def test_a_name_that_could_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.InvalidError, match=r"--name: .* allowed: lower case"):
        state.folder(name, tmp_path)


def test_labs_of_one_name_in_two_folders_have_other_cgroups(tmp_path: Path) -> None:
    one, two = (state.folder("lab", tmp_path / each) for each in "ab")
    assert one.cgroup.startswith("gpudeck/lab-")
    assert one.cgroup != two.cgroup


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    folder = state.folder("lab", tmp_path)
    node = Node(name="node-0", index=2, machine="t4-x4", init=Process(pid=7, start=9))
    node.daemons["kubelet"] = Process(pid=8, start=10)
    lab = Lab(name="lab", subnet=51, nodes={"node-0": node})
    folder.save(lab)
    assert folder.load() == lab
    assert [each.name for each in folder.path.iterdir()] == ["lab.json"]


def test_a_folder_without_a_record_is_no_lab(tmp_path: Path) -> None:
    folder = state.folder("lab", tmp_path)
    assert folder.load() is None
    with pytest.raises(errors.NotFoundError, match="make it with: gpudeck lab up"):
        state.running(folder)


def test_an_unreadable_record_says_how_to_get_rid_of_the_lab(tmp_path: Path) -> None:
    folder = state.folder("lab", tmp_path)
    folder.path.mkdir()
    folder.record.write_text("{")
    with pytest.raises(errors.InvalidError, match="gpudeck lab down --name lab"):
        folder.load()


def test_the_second_holder_of_a_lock_is_turned_away_and_nothing_stays(tmp_path: Path) -> None:
    folder = state.folder("lab", tmp_path)
    with folder.locked():
        with pytest.raises(errors.BusyError), state.folder("lab", tmp_path).locked():
            pass
        assert folder.path.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_lab_that_was_made_keeps_its_folder_after_the_lock(tmp_path: Path) -> None:
    folder = state.folder("lab", tmp_path)
    with folder.locked():
        folder.save(Lab(name="lab"))
    with folder.locked():
        assert folder.load() == Lab(name="lab")


def test_an_unknown_node_is_refused_with_those_there_are() -> None:
    lab = Lab(name="lab", nodes={"node-0": Node(name="node-0", index=2, machine="t4-x4")})
    with pytest.raises(errors.InvalidError, match="'node-7' is not in lab lab; there are: node-0"):
        lab.node("node-7")
    assert [each.name for each in lab.workers()] == ["node-0"]


def test_the_environment_says_where_labs_live(tmp_path: Path) -> None:
    assert state.home({"GPUDECK_STATE_DIR": str(tmp_path)}) == tmp_path / "labs"
    assert state.home({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "gpudeck" / "labs"
    assert state.home({}) == Path.home() / ".local/state/gpudeck/labs"
