# SPDX-License-Identifier: Apache-2.0
"""A small host tree below a temporary folder, for what reads the files of a host."""

from __future__ import annotations

from pathlib import Path

from gpudeck.host.root import Root


class HostFiles:
    """The files, by paths without the first slash, and the root that reads them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = Root(path)

    def write(self, path: str, content: str | bytes) -> None:
        """Write one file, and its folders."""
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def values(self, folder: str, **values: str) -> None:
        """Write attributes as the kernel does, each with a line feed."""
        for name, value in values.items():
            self.write(f"{folder}/{name}", value + "\n")

    def sick(self, path: str) -> None:
        """A file whose read fails as on a sick device: a folder stands in its place."""
        (self.path / path).mkdir(parents=True)
