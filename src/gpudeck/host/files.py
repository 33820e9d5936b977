# SPDX-License-Identifier: Apache-2.0
"""Replace and remove files so that a crash leaves the old or the new content, never a mixture.

Checkpoints and CDI specs are written with it. The calls block on the disk for as
long as an fsync takes: on the event loop use `asyncio.to_thread`. The folder is not
synced (an fsync costs milliseconds while a pod waits): after a power cut the old
file may be back, whole, which every owner of such files handles at its start anyway.
Errors of the operating system are translated here and in `root` only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path, PurePath

from gpudeck import errors

_TEMPORARY = ".tmp"


def write_atomic(path: Path, content: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Replace what `path` holds by `content`; its folder must exist.

    The order is temporary file, fsync, rename. Without `durable` there is no fsync: the
    file survives the end of any process, but not that of the machine. The temporary
    name starts with a dot and ends in `.tmp`, which CDI readers and the kubelet's
    plugin watcher pass over; `remove_leftovers` clears what a kill left behind.
    """
    temporary = path.parent / f".{path.name}.{os.urandom(6).hex()}{_TEMPORARY}"
    try:
        _write(temporary, content, mode, durable)
        temporary.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise translated(error, path) from error


def read(path: Path) -> bytes:
    """What a file of ours holds. Raises NotFoundError or another error of this module."""
    try:
        with path.open("rb", buffering=0) as stream:
            return stream.readall()
    except OSError as error:
        raise translated(error, path) from error


def sync(path: Path) -> None:
    """Have the disk hold what was written without `durable`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise translated(error, path) from error


def remove(path: Path) -> bool:
    """Remove `path`; False if it was not there."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise translated(error, path) from error
    return True


def is_locked(path: Path) -> bool:
    """Whether somebody holds a lock file of `locks` now; False where there is none.

    Shares the lock for a moment if nobody does: those who wait for it sit that out, and
    those who ask at the same time are not in each other's way.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise translated(error, path) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def remove_leftovers(folder: Path) -> int:
    """Remove temporary files of writers that were killed; return how many.

    Only for a caller that knows there is no other writer, e.g. under a lock.
    """
    try:
        found = [
            entry.path
            for entry in os.scandir(folder)
            if entry.name.startswith(".") and entry.name.endswith(_TEMPORARY)
        ]
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise translated(error, folder) from error
    return sum(remove(Path(path)) for path in found)


def _write(path: Path, content: bytes, mode: int, durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        os.fchmod(descriptor, mode)  # The umask of the process must not decide who reads it.
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def translated(error: OSError, path: PurePath | str) -> errors.GpudeckError:
    """Return the gpudeck error that says what `error` means for `path`."""
    text = f"{path}: {error.strerror or error}"
    code = error.errno
    if code in (errno.ENOENT, errno.ENOTDIR):
        return errors.NotFoundError(text, reason="FileNotFound")
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return errors.ForbiddenError(text, reason="FileNotPermitted")
    if code == errno.EEXIST:
        return errors.AlreadyExistsError(text, reason="FileExists")
    if code in (errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL):
        return errors.InvalidError(text, reason="FileInvalid")
    return errors.UnavailableError(text, reason="FileUnavailable")
