# SPDX-License-Identifier: Apache-2.0
"""The config file: read at the start, and again when it is another. `choosing` is for named ones.

The path is this process's own, not the host's: a mounted ConfigMap, or a file of a bare host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpudeck import errors, logs
from gpudeck.gfd import metrics, options
from gpudeck.gfd.settings import Settings
from gpudeck.host.root import Root
from gpudeck.pluginconfig import reading

_log = logs.get(__name__)


class File:
    """The config file: read at the start, and again when it is another."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files = Root()
        self._stamp = self._look()

    def read(self) -> options.Options:
        """Read it now. Raises InvalidError, or NotFoundError where it is named and not there."""
        metrics.config_valid.set(0)
        path = self._settings.config_file
        config = reading.parse(self._files.read_text(path) if path else "")
        chosen = options.merged(self._settings, config)
        metrics.config_valid.set(1)
        return chosen

    async def watch(self, show: Callable[[options.Options], None]) -> None:
        """Tell of each new content; a wrong one keeps the last good one in force."""
        while True:
            await asyncio.sleep(self._settings.look_seconds)
            stamp = self._look()
            if stamp == self._stamp:
                continue
            self._stamp = stamp
            try:
                chosen = self.read()
            except errors.GpudeckError as error:
                _log.warning("The config file is not valid, the last good one stays", error=error)
                continue
            _log.info("Using the new config file")
            show(chosen)

    def _look(self) -> tuple[int, int, int] | None:
        path = self._settings.config_file
        return self._files.stamp(path) if path else None
