# SPDX-License-Identifier: Apache-2.0
"""What `lab status` and `lab logs` say of a lab, from its record and this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.lab import cluster, processes, report, state
from gpudeck.lab.state import CONTROL_PLANE, Lab, Node, Process


def own_process() -> Process:
    start = processes.start_time(os.getpid())
    assert start is not None
    return Process(pid=os.getpid(), start=start)


def lab(*, phase: str = "up", alive: bool = True, dead: str = "") -> Lab:
    """A lab whose processes are all this one, but for those that are dead."""
    mine = own_process() if alive else Process(pid=os.getpid(), start=0)
    nodes = {}
    for index, (name, machine) in enumerate({CONTROL_PLANE: None, "node-0": "t4-x4"}.items(), 1):
        node = Node(name=name, index=index, machine=machine, init=mine)
        node.daemons = {daemon: mine for daemon in cluster.daemons(node) if daemon != dead}
        nodes[name] = node
    return Lab(name="lab", phase=phase, subnet=51, nodes=nodes, registry=mine)


def test_a_lab_is_up_only_when_everything_of_it_runs() -> None:
    assert report.state_of(lab()) == "up"
    assert report.state_of(lab(dead="kubelet")) == "degraded"
    assert report.state_of(lab(phase="creating")) == "creating"
    assert report.state_of(lab(alive=False)) == "down"


def test_a_process_number_that_was_used_again_is_not_alive() -> None:
    mine = own_process()
    assert processes.alive(mine)
    assert not processes.alive(Process(pid=mine.pid, start=mine.start - 1))
    assert not processes.alive(None)


def test_status_names_what_stopped(tmp_path: Path) -> None:
    found = report.describe(state.folder("lab", tmp_path), lab(dead="kube-proxy"))
    assert [node["cards"] for node in found["nodes"]] == [0, 4]
    assert found["nodes"][1]["address"] == "10.89.51.2"
    assert "stopped: kube-proxy" in report.render(found)


def test_logs_are_found_by_the_names_that_people_use(tmp_path: Path) -> None:
    folder = state.folder("lab", tmp_path)
    for node, daemon in ((CONTROL_PLANE, "kube-apiserver"), ("node-0", "kube-proxy")):
        folder.log(node, daemon).write_text("one\ntwo\nthree\n")
    assert report.log_of(folder, lab(), "apiserver").name == "kube-apiserver.log"
    path = report.log_of(folder, lab(), "proxy:node-0")
    assert list(report.read_log(path)) == ["one\n", "two\n", "three\n"]
    assert list(report.read_log(path, tail=1)) == ["three\n"]


@pytest.mark.parametrize("component", ["nothing", "kubelet:node-9", "../../lab", "proxy:.."])
def test_an_unknown_log_is_refused_with_those_there_are(tmp_path: Path, component: str) -> None:
    folder = state.folder("lab", tmp_path)
    folder.log("node-0", "kubelet").write_text("")
    with pytest.raises(errors.InvalidError, match="there are: kubelet:node-0"):
        report.log_of(folder, lab(), component)


def test_columns_align_and_end_without_blanks() -> None:
    assert report.columns([("A", "B"), ("long", "x")]) == "A     B\nlong  x"


def test_a_node_that_does_not_run_says_how_to_start_it() -> None:
    with pytest.raises(errors.UnavailableError, match="gpudeck lab node reboot node-0"):
        report.init_of(lab(alive=False), "node-0")
