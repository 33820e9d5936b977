# SPDX-License-Identifier: Apache-2.0
"""The configuration file of a role, read at the start and again when it changes.

A file that is wrong at the start ends the process with its path, because defaults could relabel
a whole cluster. One that becomes wrong later is reported, and the last good one holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from gpudeck import errors, logs
from gpudeck.api.labelselectors import Requirement
from gpudeck.errors import InvalidError
from gpudeck.features import configuring, metrics
from gpudeck.features.rules.evaluating import Named
from gpudeck.features.settings import Settings
from gpudeck.host.root import Root

LIMIT_BYTES = 1 << 20
_log = logs.get(__name__)


class Configured(msgspec.Struct, frozen=True):
    """What a role works with."""

    settings: Settings
    rules: tuple[Named, ...] = ()
    namespaces: tuple[Requirement, ...] | None = None


class File:
    """The file, and what it says together with the settings of the process."""

    def __init__(self, given: Settings, parse: Callable[[str], configuring.Found]) -> None:
        self._given = given
        self._parse = parse
        self._root = Root()
        self._stamp: tuple[int, int, int] | None = None
        self.current = Configured(given)

    def load(self) -> None:
        """Read the file, if there is one. InvalidError names it and the place in it."""
        if self._given.config:
            self._stamp = self._root.stamp(self._given.config)
            self.current = self._read()

    async def watch(
        self,
        changed: Callable[[], None],
        *,
        ready: Callable[[Configured], Awaitable[None]] | None = None,
    ) -> None:
        """Call `changed` when the file says something new; look once each `poll_seconds`.

        `ready` is awaited before, with what is to hold from then on.
        """
        while self._given.config:
            await asyncio.sleep(self._given.poll_seconds)
            stamp = self._root.stamp(self._given.config)
            if stamp == self._stamp:
                continue
            self._stamp = stamp
            try:
                found = self._read()
            except errors.GpudeckError as error:
                _log.warning("The last good configuration holds", error=error.message)
                metrics.config_success.set(0)
                continue
            if ready is not None:
                await ready(found)
            self.current = found
            _log.info("Read the configuration anew", file=self._given.config)
            changed()

    def _read(self) -> Configured:
        path = self._given.config
        content = self._root.read_bytes(path, limit=LIMIT_BYTES)
        try:
            found = self._parse(content.decode("utf-8", "replace"))
        except InvalidError as error:
            raise error.inside(path) from error
        for each in found.notes:
            _log.info("A value of the configuration has no effect here", field=each, file=path)
        metrics.config_success.set(1)
        merged = configuring.merged(self._given, found)
        return Configured(merged, tuple(found.rules), found.namespaces)
