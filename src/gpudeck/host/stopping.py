# SPDX-License-Identifier: Apache-2.0
"""Units of the host that are stopped for a while, by `systemctl`, and run again after it.

Which they are stands on the host itself until they run again, so that whoever stopped them may be
killed at any instruction: who starts after it finds them. It stands in /run, for after a reboot
the init system has started what is to run. Used by mig-manager and `gpudeck mig`, each by a name
of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gpudeck import errors
from gpudeck.host import systemctl
from gpudeck.host.root import Root

START_PAUSES = (0.0, 2.0, 5.0)
"""Seconds before each attempt at starting the units."""


class Stopping:
    """The units that one program of this host has stopped."""

    def __init__(self, root: Root, who: str) -> None:
        self._root = root
        self._file = f"/run/gpudeck-{who}-stopped"

    @property
    def stopped(self) -> tuple[str, ...]:
        """Units that are to run again, sorted."""
        try:
            text = self._root.read_text(self._file)
        except errors.NotFoundError:
            return ()
        return tuple(sorted(text.split()))

    async def stop(self, units: Iterable[str]) -> None:
        """Stop units, and wait until they have ended. Raises UnavailableError: which do not."""
        named = tuple(units)
        text = "\n".join(sorted({*self.stopped, *named}))
        await asyncio.to_thread(self._root.write_atomic, self._file, f"{text}\n".encode())
        await systemctl.stop(self._root, named)

    async def start(self) -> None:
        """Start what was stopped, and forget it.

        Raises UnavailableError where one does not start after some attempts: it is for a person.
        """
        units, failure = self.stopped, None
        for pause in START_PAUSES if units else ():
            await asyncio.sleep(pause)
            try:
                await systemctl.start(self._root, units)
            except errors.UnavailableError as error:
                failure = error
            else:
                failure = None
                break
        self._root.unlink(self._file)
        if failure is not None:
            raise failure
