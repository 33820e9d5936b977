# SPDX-License-Identifier: Apache-2.0
"""Which processes have a device node open, in a tree and on the machine itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpudeck.host import openers
from gpudeck.host.root import Root


def process(tree: Path, pid: int, command: str, *opened: str) -> None:
    """A process of the tree, with what it has open."""
    folder = tree / f"proc/{pid}/fd"
    folder.mkdir(parents=True)
    (folder.parent / "comm").write_text(f"{command}\n")
    for number, path in enumerate(opened):
        (folder / str(number)).symlink_to(path)


def test_who_has_a_node_open_is_told_by_number_and_name(tmp_path: Path) -> None:
    process(tmp_path, 7, "dcgm", "socket:[1]", "/dev/nvidia0", "/dev/nvidiactl")
    process(tmp_path, 8, "sh", "/dev/null", "/dev/nvidia01")
    process(tmp_path, 9, "Xorg", "/dev/nvidia1")
    process(tmp_path, 10, "me", "/dev/nvidia0")
    (tmp_path / "proc/self").symlink_to("10")
    (tmp_path / "proc/11").mkdir()  # It ends just now.
    root = Root(tmp_path)
    assert openers.openers(root, {"/dev/nvidia0"}) == (7,)
    assert openers.openers(root, {"/dev/nvidia0", "/dev/nvidia1"}) == (7, 9)
    assert [openers.named(root, each) for each in (7, 12)] == ["PID 7 (dcgm)", "PID 12"]


def test_a_process_of_this_machine_is_found_and_this_one_is_not() -> None:
    with (
        Path("/dev/null").open("rb"),
        subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL) as child,
    ):
        found = openers.openers(Root(), {"/dev/null"})
        name = openers.named(Root(), child.pid)
        child.kill()
    assert child.pid in found
    assert os.getpid() not in found
    assert name == f"PID {child.pid} (sleep)"
