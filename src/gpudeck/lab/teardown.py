# SPDX-License-Identifier: Apache-2.0
"""Ending a lab, or what a crash left of one, from its folder's name alone.

Order: the nodes' first processes (the kernel then ends everything in them and drops their
mounts and interfaces), whatever else is in the lab's cgroups, the machine's interface, the
cgroups, the folder. Every step is fine when its thing is gone already, so that a killed
teardown is repeated by the next one.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from gpudeck import errors
from gpudeck.lab import cgroups, network, processes
from gpudeck.lab.state import Folder, Lab, Node


def clear(folder: Folder, *, keep_logs: bool = False) -> None:
    """End everything that belongs to a lab's folder, then remove the folder."""
    subnet = None
    try:
        lab = folder.load()
        subnet = lab.subnet if lab else None
    except errors.InvalidError:
        # An unreadable record does not keep its lab alive: names are derived, not recorded.
        subnet = None
    cgroups.kill(folder.cgroup)
    network.disconnect(subnet, folder.digest)
    cgroups.remove(folder.cgroup)
    remove_folder(folder.path, keep=folder.logs if keep_logs else None)


def end_node(folder: Folder, node: Node) -> None:
    """End one node with all that runs on it; its folder stays."""
    name = f"{folder.cgroup}/{node.name}"
    cgroups.kill(name)
    cgroups.remove(name)
    node.init = None
    node.daemons = {}


def remove_folder(path: Path, *, keep: Path | None = None) -> None:
    """Remove a lab's folder, and never anything that is mounted into it."""
    if not path.is_dir():
        return
    inside = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    mounted = [point for point in inside if point.startswith(f"{path}/")]
    if mounted:
        raise errors.BusyError(
            f"{path}: {mounted[0]} is mounted inside it; unmount it, then repeat", reason="Mounted"
        )
    for entry in path.iterdir():
        if entry == keep:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, onerror=_retry_writable)
        else:
            entry.unlink()
    if keep is None or not keep.exists():
        path.rmdir()


def _retry_writable(_: object, path: str, __: object) -> None:
    """Images may carry folders that not even their owner may write."""
    parent = Path(path).parent
    os.chmod(parent, stat.S_IRWXU)
    if Path(path).is_dir() and not Path(path).is_symlink():
        os.chmod(path, stat.S_IRWXU)
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)


def is_running(lab: Lab) -> bool:
    """Whether the lab came up once and every node of it still lives."""
    nodes = lab.nodes.values()
    return lab.phase == "up" and bool(nodes) and all(processes.alive(each.init) for each in nodes)
