# SPDX-License-Identifier: Apache-2.0
"""One config from a file: read at the start, and again when it is another.

For a node without named configs, or a bare host; `following` is for named ones. The path is
this process's own, not the host's: a mounted ConfigMap, or a file of a bare host.
"""

from __future__ import annotations

import asyncio

import msgspec

from gpudeck import errors
from gpudeck.host.root import Root
from gpudeck.pluginconfig import keeping, selecting, telling

LOOK_SECONDS = 0.5


class File:
    """The file, or nothing where none is named: then the config says nothing."""

    def __init__(self, path: str, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._path = path
        self._look_seconds = look_seconds
        self._files = Root()
        self._stamp = self._look()

    def read(self) -> selecting.Selected:
        """Read it now. Raises InvalidError, or NotFoundError where it is named and not there."""
        if not self._path:
            return selecting.NOTHING
        return selecting.of_file(self._path, self._files.read_text(self._path))

    async def follow(self, show: telling.Show, state: keeping.State | None = None) -> None:
        """Tell of its content, and of each new one for as long as there may be one.

        A wrong one keeps the last good one in force. One that is wrong already leaves that of the
        last run, by its `state`; raises as `read` where there is no state.
        """
        selected = await self._first(state)
        told = telling.Telling(show)
        told.use(selected)
        if state is not None:
            await state.save(selected)
        while self._path:
            await asyncio.sleep(self._look_seconds)
            stamp = await asyncio.to_thread(self._look)
            if stamp != self._stamp:
                self._stamp = stamp
                selected = await asyncio.to_thread(self._again, selected)
                told.use(selected)
                if state is not None:
                    await state.save(selected)

    async def _first(self, state: keeping.State | None) -> selecting.Selected:
        if state is None:
            return await asyncio.to_thread(self.read)
        before = await state.restore() or selecting.NOTHING
        return await asyncio.to_thread(self._again, before)

    def _again(self, before: selecting.Selected) -> selecting.Selected:
        try:
            return self.read()
        except errors.GpudeckError as error:
            problem = selecting.Problem(reason=error.reason, message=error.message)
            return msgspec.structs.replace(before, problem=problem)

    def _look(self) -> tuple[int, int, int] | None:
        return self._files.stamp(self._path) if self._path else None
