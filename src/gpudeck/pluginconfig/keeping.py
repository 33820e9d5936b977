# SPDX-License-Identifier: Apache-2.0
"""The last good config on disk, for a process that starts while the API server is away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from gpudeck import errors, logs
from gpudeck.host import files, root
from gpudeck.pluginconfig import selecting

log = logs.get(__name__)

VERSION = 1


class Kept(msgspec.Struct, frozen=True):
    """The file, version 1."""

    version: int
    name: str
    text: str


class State:
    """The file of one process. A disk that fails costs the next start, never this run.

    Who follows the same config as the process may read it too: it `is_read_only` for him.
    """

    def __init__(self, path: Path, *, is_read_only: bool = False) -> None:
        self._path = path
        self._is_read_only = is_read_only
        self._saved: Kept | None = None

    async def restore(self) -> selecting.Selected | None:
        """The config of the last run; None where there is none that is understood."""
        return await asyncio.to_thread(self._restore)

    def _restore(self) -> selecting.Selected | None:
        try:
            kept = msgspec.json.decode(files.read(self._path), type=Kept)
        except errors.NotFoundError:
            return None
        except (errors.GpudeckError, msgspec.DecodeError, RecursionError) as error:
            log.warning("The last config cannot be read", error=error)
            return None
        if kept.version != VERSION:
            log.warning("The last config is of another version", version=kept.version)
            return None
        self._saved = kept
        return selecting.restore(kept.name, kept.text)

    async def save(self, selected: selecting.Selected) -> None:
        """Keep what holds now."""
        kept = Kept(version=VERSION, name=selected.name, text=selected.text)
        if kept == self._saved or self._is_read_only:
            return
        try:
            await asyncio.to_thread(self._write, msgspec.json.encode(kept))
            self._saved = kept
        except errors.GpudeckError as error:
            log.warning("The config cannot be kept for the next start", error=error)

    def _write(self, content: bytes) -> None:
        root.Root().make_directory(self._path.parent.as_posix())
        files.write_atomic(self._path, content, mode=0o600)
