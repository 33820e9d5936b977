# SPDX-License-Identifier: Apache-2.0
"""What `gpudeck lab …` answers about a lab whose processes have all ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpudeck.cli import lab as command
from gpudeck.lab import state
from gpudeck.lab.state import CONTROL_PLANE, Lab, Node, Process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> state.Folder:
    """The record of a lab `lab` with one node, after the machine was switched off and on."""
    monkeypatch.setenv("GPUDECK_STATE_DIR", str(tmp_path))
    gone = Process(pid=2**22 - 1, start=1)
    folder = state.folder("lab")
    nodes = {
        CONTROL_PLANE: Node(name=CONTROL_PLANE, index=1, init=gone),
        "node-0": Node(name="node-0", index=2, machine="a30-x2", init=gone),
    }
    folder.save(Lab(name="lab", phase="up", subnet=51, nodes=nodes))
    return folder


def run(*words: str) -> Result:
    return CliRunner().invoke(command.lab, words)


def test_status_says_down_in_words_in_json_and_by_its_exit_code(folder: state.Folder) -> None:
    shown = run("status")
    assert shown.exit_code == 1
    assert shown.output.startswith("Lab lab is down")
    assert [line.split()[0] for line in shown.output.splitlines()[3:]] == [
        "NODE",
        "control-plane",
        "node-0",
    ]
    assert json.loads(run("status", "--json").output)["nodes"][1]["cards"] == 2


def test_the_kubeconfigs_path_is_all_that_is_printed(folder: state.Folder) -> None:
    assert run("kubeconfig").output == f"{folder.kubeconfig}\n"


def test_labs_are_listed_with_their_state(folder: state.Folder) -> None:
    state.folder("half-made").path.mkdir()
    assert json.loads(run("list", "--json").output) == [{"name": "lab", "state": "down"}]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("status", "--name", "other"), 1, "lab other does not exist (labs: lab)"),
        (("status", "--name", "Other"), 2, "--name: 'Other' is not a lab's name"),
        (("gpu", "control-plane", "0", "clear"), 2, "NODE: control-plane has no cards"),
        (("gpu", "node-7", "0", "clear"), 2, "there are: control-plane, node-0"),
        (("gpu", "node-0", "0", "clear"), 1, "gpudeck lab node reboot node-0"),
        (("logs", "kubelet:node-0"), 2, "COMPONENT: 'kubelet:node-0' has no log"),
        (("gpu", "node-0", "first", "clear"), 2, "'first' is not a valid integer"),
        (("up", "--host-root", "/srv"), 2, "'/srv' is not one of"),
        (("up", "--machine", "nope"), 2, "machine: 'nope' is not known; allowed: a100-40gb-x4"),
        (("shell", "nope"), 2, "there are: control-plane, node-0"),
    ],
)
def test_refusals_name_the_value_and_what_would_do(
    folder: state.Folder, words: tuple[str, ...], code: int, said: str
) -> None:
    result = run(*words)
    assert result.exit_code == code, result.output
    assert said in result.output


def test_commands_that_change_the_machine_ask_for_root(
    folder: state.Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    for words in (("up",), ("down",), ("node", "reboot", "node-0"), ("shell", "node-0")):
        result = run(*words)
        assert result.exit_code == 1
        assert "needs root; run the command with sudo" in result.output
