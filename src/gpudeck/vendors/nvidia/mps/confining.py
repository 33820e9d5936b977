# SPDX-License-Identifier: Apache-2.0
"""Becomes a program of the node's driver, in the node's root, that ends with its parent.

Run by `control` as a process of its own. The program finds the libraries, device nodes
and paths of the node, as if it had been started there; /dev/shm is the card's, in a mount
namespace of its own: daemon and clients share memory there, and nobody else's. SIGKILL
comes when the parent ends in any way (PR_SET_PDEATHSIG), so no daemon is ever doubled.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

import msgspec

_CLONE_NEWNS = 0x00020000  # linux/sched.h
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8  # linux/mount.h
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1


class Order(msgspec.Struct, frozen=True):
    """What to become, as JSON in the first argument."""

    parent: int
    root: str
    """The node's root as the parent sees it."""
    arguments: tuple[str, ...]
    environment: dict[str, str]
    shm: str = ""
    """A folder, as the parent sees it, that is /dev/shm for the program; empty for the node's."""
    shm_target: str = ""
    """Where the parent sees the node's /dev/shm."""
    standard_input: str = ""


def main() -> None:
    """Do as ordered; what cannot be done is one line on stderr and a status of 1."""
    order = msgspec.json.decode(sys.argv[1], type=Order)
    try:
        _confine(order)
        os.execve(order.arguments[0], list(order.arguments), order.environment)
    except OSError as error:
        sys.exit(f"{error.filename or order.arguments[0]}: {error.strerror}")


def mount_memory(path: Path, mebibytes: int) -> None:
    """Mount a memory file system for everybody at `path`, if none is there. Raises OSError."""
    if not path.is_mount():
        options = f"mode=1777,size={mebibytes}m".encode()
        _mount(b"tmpfs", path, b"tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options)


def unmount(path: Path) -> None:
    """Take away what is mounted at `path`, if anything is. Raises OSError."""
    if path.is_mount() and _libc().umount2(os.fsencode(path), _MNT_DETACH) != 0:
        _fail(path)


def _confine(order: Order) -> None:
    if _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        _fail(Path("prctl"))
    if os.getppid() != order.parent:  # It ended before the line above.
        os._exit(os.EX_OK)
    if order.standard_input:
        reading, writing = os.pipe()
        os.write(writing, order.standard_input.encode())
        os.close(writing)
        os.dup2(reading, 0)
    if order.shm:
        if _libc().unshare(_CLONE_NEWNS) != 0:
            _fail(Path("unshare"))
        _mount(None, Path("/"), None, _MS_REC | _MS_PRIVATE, None)
        _mount(os.fsencode(order.shm), Path(order.shm_target), None, _MS_BIND | _MS_REC, None)
    os.chroot(order.root)
    os.chdir("/")


def _mount(
    source: bytes | None, target: Path, kind: bytes | None, flags: int, options: bytes | None
) -> None:
    done = _libc().mount(source, os.fsencode(target), kind, ctypes.c_ulong(flags), options)
    if done != 0:
        _fail(target)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _fail(path: Path) -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), str(path))
