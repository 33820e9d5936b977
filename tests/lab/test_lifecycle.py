# SPDX-License-Identifier: Apache-2.0
"""A lab comes and goes whole: beside another one, after kills, with nothing left behind.

Runs the command line in processes of its own, with labs in a folder of the test's. What is
left is read from the machine itself (processes, cgroups, interfaces, mounts), never from
the lab's own record.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.lab import network, state

LAB = [sys.executable, "-c", "from gpudeck.cli.lab import lab; lab()"]
MACHINE = ["--machine", "t4-x4"]


class Home:
    """The folder that holds a test's labs, and the command line that works in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {**os.environ, "GPUDECK_STATE_DIR": str(path)}

    def lab(self, *words: str, code: int = 0) -> str:
        """Run a command of the lab, expect its exit code, return what it printed."""
        done = subprocess.run(
            [*LAB, *words], env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def ready(self, name: str) -> set[str]:
        """The nodes that the lab's API server calls Ready."""
        shown = json.loads(self.lab("status", "--json", "--name", name))
        return {node["name"] for node in shown["nodes"] if node["ready"]}

    def kill_at(self, step: int, name: str) -> None:
        """Kill `lab up` by SIGKILL once it has ended its step of that number."""
        with subprocess.Popen(
            [*LAB, "up", *MACHINE, "--name", name],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stderr is not None
            for line in child.stderr:
                if line.startswith(f"[{step}/"):
                    break
            child.send_signal(signal.SIGKILL)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    if os.geteuid() != 0:
        pytest.skip("a lab needs root")
    return Home(tmp_path_factory.mktemp("labs"))


@pytest.fixture(scope="module")
def whole(home: Home) -> Iterator[str]:
    """A lab that was made after a killed `up`."""
    try:
        home.kill_at(5, "whole")
        home.lab("up", *MACHINE, "--name", "whole")
        yield "whole"
    finally:
        home.lab("down", "--name", "whole")


def leftovers(name: str) -> list[str]:
    """Everything of a lab that the machine still has."""
    mark = f"gpudeck/{name}-"
    found = [
        f"process {path.parent.name}"
        for path in Path("/proc").glob("[0-9]*/cgroup")
        if mark in _read(path) and "State:\tZ" not in _read(path.with_name("status"))
    ]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/gpudeck/{name}-*")]
    return found


def interfaces(home: Home, *names: str) -> list[str]:
    """The machine's interfaces into labs of a test's; other labs come and go meanwhile."""
    labs = [state.folder(name, home.path / "labs") for name in names]
    own = {network.hardware_address(each.digest) for each in labs}
    found = Path("/sys/class/net").glob("gpudeck-*")
    return [path.name for path in found if _read(path / "address").strip() in own]


def mounts_in(home: Home) -> list[str]:
    """What is mounted below a test's folder, as the machine sees it."""
    text = Path("/proc/self/mountinfo").read_text()
    return [line for line in text.splitlines() if str(home.path) in line]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # It is gone meanwhile.
        return ""


@pytest.mark.parametrize("step", [4, 5, 6, 7])
def test_down_clears_what_a_killed_up_left(home: Home, step: int) -> None:
    try:
        home.kill_at(step, "killed")
    finally:
        home.lab("down", "--name", "killed")
    assert leftovers("killed") == []
    assert interfaces(home, "killed") == []
    assert mounts_in(home) == []


def test_up_after_a_killed_up_makes_a_whole_lab(home: Home, whole: str) -> None:
    assert home.ready(whole) == {"control-plane", "node-0"}


def test_up_starts_again_what_died_of_a_running_lab(home: Home, whole: str) -> None:
    shown = json.loads(home.lab("status", "--json", "--name", whole))
    node = next(node for node in shown["nodes"] if node["name"] == "node-0")
    os.kill(node["processes"]["kubelet"], signal.SIGKILL)
    assert "started again: kubelet of node-0" in home.lab("up", "--name", whole)
    assert json.loads(home.lab("status", "--json", "--name", whole))["state"] == "up"


def test_nodes_are_added_rebooted_and_removed(home: Home, whole: str) -> None:
    home.lab("node", "add", "more", "--machine", "l40s-x4", "--name", whole)
    assert home.ready(whole) == {"control-plane", "node-0", "more"}
    ids = home.lab("shell", "--name", whole, "more", "--", "nvidia-smi", "-L")
    assert ids.count("L40S") == 4
    boot = home.lab("shell", "--name", whole, "more", "--", *BOOT_ID)
    home.lab("node", "reboot", "more", "--name", whole)
    assert home.lab("shell", "--name", whole, "more", "--", *BOOT_ID) != boot
    assert home.lab("shell", "--name", whole, "more", "--", "nvidia-smi", "-L") == ids
    home.lab("node", "remove", "more", "--name", whole)
    assert home.ready(whole) == {"control-plane", "node-0"}
    assert "there are: control-plane, node-0" in home.lab(
        "node", "reboot", "more", "--name", whole, code=2
    )


def test_two_labs_run_side_by_side_and_leave_nothing(home: Home, whole: str) -> None:
    try:
        home.lab("up", *MACHINE, "--name", "other")
        assert home.ready(whole) == home.ready("other") == {"control-plane", "node-0"}
        assert len(interfaces(home, whole, "other")) == 2
    finally:
        home.lab("down", "--name", "other")
    assert leftovers("other") == []
    assert home.ready(whole) == {"control-plane", "node-0"}
    assert "is up already" in home.lab("up", *MACHINE, "--name", whole)
    home.lab("down", "--name", whole)
    assert leftovers(whole) == []
    assert interfaces(home, whole, "other") == []
    assert mounts_in(home) == []
    assert list((home.path / "labs").iterdir()) == []


BOOT_ID = ("cat", "/proc/sys/kernel/random/boot_id")


def test_a_lab_that_is_not_there_is_said_to_be_so(home: Home) -> None:
    assert "does not exist" in home.lab("status", "--name", "nowhere", code=1)
    assert "does not exist; nothing to do" in home.lab("down", "--name", "nowhere")
    assert "is not a lab's name" in home.lab("up", "--name", "No", code=2)
    assert "allowed: a100-40gb-x4" in home.lab(
        "up", "--machine", "toaster", "--name", "nowhere", code=2
    )
    assert leftovers("nowhere") == []
