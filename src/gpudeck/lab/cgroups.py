# SPDX-License-Identifier: Apache-2.0
"""The lab's cgroups, in every hierarchy that the machine has.

Each process of a lab is born in a cgroup below the lab's own, so that whatever a crash
left behind is found and ended by one sweep. The kubelet's `cgroupRoot` is a node's cgroup.
Works on cgroup v1 (one folder a controller) and v2 (one tree). Called by `processes` and
`teardown`; it never looks at what the processes are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from gpudeck import errors

MOUNTS = Path("/proc/self/mountinfo")


def hierarchies(mounts: Path = MOUNTS) -> list[Path]:
    """List the mount points of all cgroup hierarchies, v1 and v2."""
    found = []
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ")[0] in ("cgroup", "cgroup2"):
            found.append(Path(before.split(" ")[4]))
    return found


def create(name: str) -> list[Path]:
    """Make a cgroup with all its parents in every hierarchy and return its folders.

    A new v1 cpuset takes no process until its CPUs and memory nodes are filled in; on v2 a
    controller works in a cgroup only when its parent hands it on.
    """
    folders = []
    for hierarchy in hierarchies():
        folder = hierarchy
        for part in Path(name).parts:
            _delegate(folder)
            parent, folder = folder, folder / part
            folder.mkdir(exist_ok=True)
            _inherit(parent, folder)
        folders.append(folder)
    return folders


def _delegate(folder: Path) -> None:
    subtree = folder / "cgroup.subtree_control"
    if not subtree.exists():
        return
    for controller in (folder / "cgroup.controllers").read_text().split():
        subtree.write_text(f"+{controller}")


def _inherit(parent: Path, folder: Path) -> None:
    if (folder / "cgroup.controllers").exists():
        return
    for file in ("cpuset.cpus", "cpuset.mems"):
        if (folder / file).exists() and not (folder / file).read_text().strip():
            (folder / file).write_text((parent / file).read_text())


def members(name: str) -> set[int]:
    """The processes in a cgroup and below it, as this process numbers them."""
    found: set[int] = set()
    for _, folder in _below(name):
        try:
            found.update(int(line) for line in (folder / "cgroup.procs").read_text().split())
        except (FileNotFoundError, OSError):
            continue  # A cgroup that vanished meanwhile has no processes.
    found.discard(0)
    return found


def remove(name: str, *, seconds: float = 5.0) -> None:
    """Remove a cgroup and all below it; its processes must have ended."""
    deadline = time.monotonic() + seconds
    for hierarchy, folder in _below(name):
        while folder.exists():
            try:
                folder.rmdir()
            except FileNotFoundError:
                break
            except OSError as error:
                # An exited process leaves its cgroup a moment after its parent could see it.
                if time.monotonic() > deadline:
                    raise errors.UnavailableError(
                        f"cgroup {folder} cannot be removed: {error}", reason="CgroupBusy"
                    ) from error
                time.sleep(0.02)
        _prune(hierarchy, folder.parent)


def _prune(hierarchy: Path, folder: Path) -> None:
    """Remove empty parents that labs share; another lab's cgroup keeps its parent."""
    while folder != hierarchy and folder.is_relative_to(hierarchy / "gpudeck"):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _below(name: str) -> Iterator[tuple[Path, Path]]:
    """Yield (hierarchy, folder) for the cgroup and all below it, the deepest first."""
    for hierarchy in hierarchies():
        for folder, _, _ in os.walk(hierarchy / name, topdown=False):
            yield hierarchy, Path(folder)
