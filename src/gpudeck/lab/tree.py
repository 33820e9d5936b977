# SPDX-License-Identifier: Apache-2.0
"""A folder tree as a value, and the one function that makes a real folder agree with it.

`tree_system`, `tree_machine`, `tree_pci` and `tree_driver` describe a simulated host's files
as a mapping of relative paths; `hosttree` hands the mapping to `apply`. Applying twice changes
nothing, applying half and again completes it, and what an earlier description had and this
one lacks is removed. It never removes what it did not write: programs on the host may have
put files of their own beside ours.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from gpudeck import errors


@dataclasses.dataclass(frozen=True)
class File:
    """A regular file, replaced as a whole when its content differs."""

    content: bytes
    mode: int = 0o644


@dataclasses.dataclass(frozen=True)
class Link:
    """A symbolic link; the target is written as given."""

    target: str


@dataclasses.dataclass(frozen=True)
class Folder:
    """An empty folder, or one with another mode than 0755."""

    mode: int = 0o755


@dataclasses.dataclass(frozen=True)
class Device:
    """A character device."""

    major: int
    minor: int
    mode: int = 0o666


Entry = File | Link | Folder | Device
Tree = dict[str, Entry]


def text(content: str, mode: int = 0o444) -> File:
    """Return a file of one or more lines; a final newline is added when it lacks."""
    ending = "" if content.endswith("\n") or not content else "\n"
    return File((content + ending).encode(), mode)


def relative(source: str, target: str) -> Link:
    """Return the link at `source` that leads to `target`, both paths of one tree."""
    return Link(os.path.relpath(target, PurePosixPath(source).parent))


def apply(tree: Mapping[str, Entry], root: Path, *, previous: Iterable[str] = ()) -> None:
    """Make `root` hold `tree`; paths of `previous` that `tree` lacks are removed.

    Raises ForbiddenError where device nodes may not be made (they need CAP_MKNOD).
    """
    root.mkdir(parents=True, exist_ok=True)
    made: set[Path] = set()
    for path in sorted(tree):
        place = root / path
        if place.parent not in made:
            place.parent.mkdir(parents=True, exist_ok=True)
            made.add(place.parent)
        _make(place, tree[path])
    remove(root, set(previous) - tree.keys())


def remove(root: Path, paths: Iterable[str]) -> None:
    """Remove what stands at `paths`, then the folders that this leaves empty."""
    for path in sorted(paths, reverse=True):
        place = root / path
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if stat.S_ISDIR(place.lstat().st_mode):
                _remove_empty(place)
            else:
                place.unlink()
        for parent in place.parents:
            if parent == root or not _remove_empty(parent):
                break


def _remove_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def _make(place: Path, entry: Entry) -> None:
    if isinstance(entry, Folder):
        place.mkdir(exist_ok=True)
        place.chmod(entry.mode)
    elif not _is(place, entry):
        fresh = place.with_name(f".{place.name}.new")
        fresh.unlink(missing_ok=True)
        _create(fresh, entry)
        fresh.replace(place)


def _is(place: Path, entry: File | Link | Device) -> bool:
    try:
        found = place.lstat()
    except FileNotFoundError:
        return False
    if isinstance(entry, Link):
        return stat.S_ISLNK(found.st_mode) and str(place.readlink()) == entry.target
    if stat.S_IMODE(found.st_mode) != entry.mode:
        return False
    if isinstance(entry, Device):
        return stat.S_ISCHR(found.st_mode) and found.st_rdev == _number(entry)
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_size == len(entry.content)
        and place.read_bytes() == entry.content
    )


def _create(place: Path, entry: File | Link | Device) -> None:
    if isinstance(entry, Link):
        place.symlink_to(entry.target)
        return
    if isinstance(entry, File):
        place.write_bytes(entry.content)
    else:
        try:
            os.mknod(place, stat.S_IFCHR | entry.mode, _number(entry))
        except PermissionError as error:
            raise errors.ForbiddenError(
                f"{place}: this process may not make device nodes; it needs root and CAP_MKNOD",
                reason="DeviceNodesForbidden",
            ) from error
    place.chmod(entry.mode)


def _number(device: Device) -> int:
    return os.makedev(device.major, device.minor)
