# SPDX-License-Identifier: Apache-2.0
"""Files of the host, read and written below the folder where this process sees the host's root.

`Root` is passed to whatever works on the host. Its paths are those of the node
(`/sys/bus/pci`). Links are resolved inside the root, an absolute target too, so a
link in a mounted or simulated tree never leads into this container's own files.
Reads are of small files and do not wait for disks, save on a sick device; what may
be slow is called through `asyncio.to_thread` by those who have an event loop.
"""

from __future__ import annotations

import copy
import errno
import os
import stat
from pathlib import Path, PurePosixPath

from gpudeck import errors
from gpudeck.host import files

_PAGE = 4096
_MAX_LINKS = 40  # As the kernel's own limit (path_resolution(7)).
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
# A kernel attribute that exists but has no value now: the driver does not say, or
# the device is going away. Not a fault of the host, so not worth a log line.
_VALUELESS = _ABSENT | {
    errno.EINVAL,
    errno.ENODATA,
    errno.ENODEV,
    errno.ENXIO,
    errno.EOPNOTSUPP,
}

HostPath = str | PurePosixPath
"""An absolute path on the node."""


class Root:
    """The host's root: `path` as this process sees it, `on_node` as the container runtime does."""

    def __init__(self, path: Path | str = "/", *, on_node: str = "/") -> None:
        self.path = Path(path).absolute()
        self.is_host = self.path == Path("/")
        self._prefix = "" if self.is_host else str(self.path)
        self._on_node = on_node.rstrip("/")
        self._folders: dict[str, str] | None = None

    def look(self) -> Root:
        """The same root for one short look at many files: it resolves each folder once."""
        view = copy.copy(self)
        view._folders = {}
        return view

    def __repr__(self) -> str:
        return f"Root({str(self.path)!r})"

    def on_node(self, path: HostPath) -> str:
        """The path as the container runtime must spell it, e.g. in a CDI spec. Follows no link."""
        return self._on_node + _absolute(path)

    def resolve(self, path: HostPath) -> str:
        """The node path that `path` leads to after all links; need not exist.

        Raises InvalidError for a loop of links.
        """
        return self._inside(path, follow_last=True)

    def real(self, path: HostPath) -> Path:
        """Where this process opens `path`: all links resolved inside the root."""
        return Path(self._real(path))

    def read_bytes(self, path: HostPath, *, limit: int = -1) -> bytes:
        """The content of a file, at most `limit` bytes if given.

        Raises NotFoundError, ForbiddenError, UnavailableError where the device or disk
        answers with an error (EIO), or InvalidError for what is no file: to open a pipe waits
        for a writer, and to open a device may do something.
        """
        try:
            real = self._real(path)
            if not stat.S_ISREG(os.stat(real).st_mode):  # noqa: PTH116 (as `_target`)
                raise errors.InvalidError(f"{path} is not a file", reason="FileInvalid")
            with open(real, "rb", buffering=0) as stream:  # noqa: PTH123
                return stream.read(limit) or b""
        except OSError as error:
            raise files.translated(error, path) from error

    def read_text(self, path: HostPath, *, limit: int = -1) -> str:
        """Like `read_bytes`, as UTF-8; bytes that are not UTF-8 become U+FFFD."""
        return self.read_bytes(path, limit=limit).decode("utf-8", "replace")

    def attribute(self, path: HostPath) -> str | None:
        """The stripped text of a kernel attribute; None if it is missing, empty or has no value.

        "No value" is what drivers answer with EINVAL, ENODATA, ENODEV, ENXIO or EOPNOTSUPP
        and an unprivileged read with EACCES. EIO and the like raise UnavailableError.
        """
        try:
            content = _read(self._real(path))
        except OSError as error:
            if error.errno in _VALUELESS or error.errno in (errno.EACCES, errno.EPERM):
                return None
            raise files.translated(error, path) from error
        return content.decode("utf-8", "replace").strip() or None

    def list(self, path: HostPath) -> list[str]:
        """The sorted names in a folder; empty if there is no such folder."""
        try:
            return sorted(each.name for each in os.scandir(self._real(path)))
        except OSError as error:
            if error.errno in _ABSENT:
                return []
            raise files.translated(error, path) from error

    def link(self, path: HostPath) -> str | None:
        """The target text of a link, unresolved; None if `path` is no link or not there."""
        try:
            return os.readlink(self._real(path, follow_last=False))  # noqa: PTH115 (as `_target`)
        except OSError as error:
            if error.errno in _VALUELESS:
                return None
            raise files.translated(error, path) from error

    def exists(self, path: HostPath) -> bool:
        """Whether `path` leads to something."""
        return self._stat(path) is not None

    def is_directory(self, path: HostPath) -> bool:
        """Whether `path` leads to a folder."""
        found = self._stat(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def device_number(self, path: HostPath) -> tuple[int, int] | None:
        """Major and minor number of a character device; None if `path` is none."""
        found = self._stat(path)
        if found is None or not stat.S_ISCHR(found.st_mode):
            return None
        return os.major(found.st_rdev), os.minor(found.st_rdev)

    def ownership(self, path: HostPath) -> tuple[int, int, int] | None:
        """Mode, user id and group id of what `path` leads to; None if it is not there."""
        found = self._stat(path)
        return None if found is None else (found.st_mode, found.st_uid, found.st_gid)

    def stamp(self, path: HostPath) -> tuple[int, int, int] | None:
        """A value that differs when the file was replaced or written: inode, size, mtime in ns."""
        found = self._stat(path)
        return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)

    def write_atomic(self, path: HostPath, content: bytes, *, mode: int = 0o644) -> None:
        """Like `files.write_atomic`, below the root; its folder must exist."""
        files.write_atomic(self.real(path), content, mode=mode)

    def unlink(self, path: HostPath) -> bool:
        """Remove a file or a link itself; False if it was not there."""
        return files.remove(Path(self._real(path, follow_last=False)))

    def make_directory(self, path: HostPath, *, mode: int = 0o755) -> None:
        """Make a folder with its parents; nothing happens if it is there."""
        try:
            self.real(path).mkdir(mode=mode, parents=True, exist_ok=True)
        except OSError as error:
            raise files.translated(error, path) from error

    def _stat(self, path: HostPath) -> os.stat_result | None:
        try:
            return os.lstat(self._real(path))
        except errors.InvalidError:  # A loop of links leads nowhere.
            return None
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise files.translated(error, path) from error

    def _real(self, path: HostPath, *, follow_last: bool = True) -> str:
        inside = self._inside(path, follow_last=follow_last)
        return inside if self.is_host else f"{self._prefix}{inside}"

    def _inside(self, path: HostPath, *, follow_last: bool) -> str:
        text = _absolute(path)
        folder, _, name = text.rpartition("/")
        if self._folders is None or name in ("", ".", ".."):
            return _walk(self._prefix, text, follow_last=follow_last)
        known = self._folders.get(folder)
        if known is None:
            known = self._inside(folder, follow_last=True).rstrip("/") if folder else ""
            self._folders[folder] = known
        inside = f"{known}/{name}"
        if follow_last and _target(self._prefix + inside) is not None:
            return _walk(self._prefix, inside, follow_last=True)
        return inside


def _absolute(path: HostPath) -> str:
    text = str(path)
    return text if text.startswith("/") else f"/{text}"


def _read(path: str) -> bytes:
    """The content of a kernel attribute, which fits a page; without the cost of a stream."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, _PAGE)
        while content and (more := os.read(descriptor, _PAGE)):
            content += more
        return content
    finally:
        os.close(descriptor)


def _walk(prefix: str, path: str, *, follow_last: bool) -> str:
    """Resolve `path` as the kernel would after chroot(prefix); parts that are missing are kept."""
    resolved: list[str] = []
    waiting = [part for part in reversed(path.split("/")) if part and part != "."]
    links = 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            if resolved:
                resolved.pop()
            continue
        resolved.append(part)
        if not waiting and not follow_last:
            break
        target = _target(f"{prefix}/{'/'.join(resolved)}")
        if target is None:
            continue
        links += 1
        if links > _MAX_LINKS:
            raise errors.InvalidError(f"{path}: too many links", reason="FileInvalid", field=path)
        if target.startswith("/"):
            resolved.clear()
        else:
            resolved.pop()
        waiting += [each for each in reversed(target.split("/")) if each and each != "."]
    return "/" + "/".join(resolved)


def _target(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 (once for each part of each path of a scan)
    except OSError:
        return None  # Not a link, or not there: the open that follows says which.
