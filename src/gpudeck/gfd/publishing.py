# SPDX-License-Identifier: Apache-2.0
"""Where the labels go: a file that node-feature-discovery's worker reads, or a NodeFeature.

Labels come with their full names. Each write is repeatable, and leaves what is already so alone.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Protocol

from gpudeck import errors
from gpudeck.host.root import Root

LEAVE_SECONDS = 300
"""How long the labels of a file stay after the process has ended: longer than a restart."""
_EXPIRY = "# +expiry-time="


class Sink(Protocol):
    """Takes all labels of the node at once."""

    async def begin(self) -> None:
        """Let what the process before has left stay, until there is something to write."""

    async def write(self, labels: Mapping[str, str]) -> bool:
        """Let these labels, and no other of ours, be there; False if they were.

        Raises GpudeckError where that fails; it may be repeated.
        """

    async def close(self) -> None:
        """The process ends, perhaps to be started again at once."""


class File:
    """A file of `features.d`, a path below the host's root.

    At the end it is given an expiry time, by node-feature-discovery's own directive, instead of
    being removed as gpu-feature-discovery does: a restart takes no label away, and when the
    process is gone for good they go too.
    """

    def __init__(self, root: Root, path: str) -> None:
        self._root = root
        self._path = path
        self._labels: Mapping[str, str] = {}
        self._is_tidy = False

    async def begin(self) -> None:
        """`Sink.begin`."""
        # The first write tells what is wrong.
        with contextlib.suppress(errors.GpudeckError):
            first, *lines = self._root.read_text(self._path).splitlines() or [""]
            if first.startswith(_EXPIRY):
                self._labels = {name: value for name, _, value in (x.partition("=") for x in lines)}
                self._put(content(self._labels))

    async def write(self, labels: Mapping[str, str]) -> bool:
        """`Sink.write`."""
        self._labels = dict(labels)
        if not self._is_tidy:
            self._tidy()
        return self._put(content(labels))

    async def close(self) -> None:
        """`Sink.close`."""
        if not self._labels:
            return
        now = datetime.datetime.now(datetime.UTC)
        self._put(content(self._labels, expires=now + datetime.timedelta(seconds=LEAVE_SECONDS)))

    def _tidy(self) -> None:
        """Remove what a writer that was killed left half written; other programs' files stay."""
        path = PurePosixPath(self._path)
        for name in self._root.list(path.parent):
            if name.startswith(f".{path.name}.") and name.endswith(".tmp"):
                self._root.unlink(path.parent / name)
        self._is_tidy = True

    def _put(self, text: bytes) -> bool:
        try:
            if self._root.read_bytes(self._path) == text:
                return False
        except errors.NotFoundError:
            self._root.make_directory(PurePosixPath(self._path).parent)
        self._root.write_atomic(self._path, text)
        return True


def content(labels: Mapping[str, str], *, expires: datetime.datetime | None = None) -> bytes:
    """The text of a file with these labels."""
    lines = [f"{name}={value}" for name, value in sorted(labels.items())]
    if expires is not None:
        lines.insert(0, f"{_EXPIRY}{expires:%Y-%m-%dT%H:%M:%SZ}")
    return "".join(f"{line}\n" for line in lines).encode()
