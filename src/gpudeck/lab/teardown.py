# SPDX-License-Identifier: Apache-2.0
"""Ending a lab, or what a crash left of one, from its folder's name alone.

Order: the nodes' first processes (the kernel then ends everything in them and drops their
mounts and interfaces), whatever else is in the lab's cgroups, the machine's interface, the
cgroups, the folder. Every step is fine when its thing is gone already, so that a killed
teardown is repeated by the next one.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from gpudeck import errors
from gpudeck.lab import cgroups, network, processes
from gpudeck.lab.state import Folder, Lab, Node


def clear(folder: Folder, *, keep_folder: bool = False) -> None:
    """End everything that belongs to a lab's folder, then remove the folder or what is in it."""
    subnet = None
    try:
        lab = folder.load()
        subnet = lab.subnet if lab else None
    except errors.InvalidError:
        # An unreadable record does not keep its lab alive: the kernel removes the interface
        # with the control plane's node, and all other names are derived.
        subnet = None
    processes.stop_all(folder.cgroup)
    network.disconnect(subnet, folder.digest)
    cgroups.remove(folder.cgroup)
    empty(folder.path)
    if not keep_folder:
        folder.path.rmdir()


def has_leftovers(folder: Folder) -> bool:
    """Whether a lab without a folder still has cgroups, as after somebody removed its folder."""
    return any((each / folder.cgroup).exists() for each in cgroups.hierarchies())


def end_node(folder: Folder, node: Node) -> None:
    """End one node with all that runs on it; its folder stays."""
    name = f"{folder.cgroup}/{node.name}"
    processes.stop_all(name)
    cgroups.remove(name)
    node.init = None
    node.daemons = {}


def empty(path: Path) -> None:
    """Remove what is in a lab's folder, the record last, and nothing that is mounted there."""
    inside = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    mounted = [point for point in inside if point.startswith(f"{path}/")]
    if mounted:
        raise errors.BusyError(
            f"{path}: {mounted[0]} is mounted inside it; unmount it, then repeat", reason="Mounted"
        )
    for entry in sorted(path.iterdir(), key=lambda each: each.name == "lab.json"):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def is_running(lab: Lab) -> bool:
    """Whether the lab came up once and something of it still lives."""
    return lab.phase == "up" and any(processes.alive(each.init) for each in lab.nodes.values())
