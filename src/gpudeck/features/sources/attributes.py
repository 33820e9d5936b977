# SPDX-License-Identifier: Apache-2.0
"""Attributes of the kernel, of which a sick one costs itself; each source makes one a look.

What has no value now is absent without a word, as `Root.attribute` has it. What cannot be read
(EIO) is absent too and is told: the device that it belongs to stays, and so does the source.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpudeck import errors
from gpudeck.host.root import Root

ABSENT = (errors.NotFoundError, errors.ForbiddenError, errors.InvalidError)
"""A file that says nothing, now and later. Of one whose disk fails nobody knows what it says."""


class Attributes:
    """Reads attributes and remembers what could not be read."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self.left_out: list[str] = []
        """One sentence each."""

    def get(self, path: str) -> str | None:
        """The text of an attribute; None if there is none."""
        try:
            return self._root.attribute(path)
        except errors.GpudeckError as error:
            self.left_out.append(error.message)
            return None

    def of(self, folder: str, names: Iterable[str]) -> dict[str, str]:
        """The attributes of a folder that have a value, by name."""
        values = {name: self.get(f"{folder}/{name}") for name in names}
        return {name: value for name, value in values.items() if value is not None}
