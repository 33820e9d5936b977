# SPDX-License-Identifier: Apache-2.0
"""What the driver raised about cards, kept on the node for the next process.

A driver tells of an event once, to who listens then; queries show at most that it wants a
recovery. So without this file a restart would name another reason, or none. Owned by
`supervisor`; below /run, which a reboot empties, and void in another boot all the same.
What cannot be kept is only logged: verdicts never wait for the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from gpudeck import errors, logs
from gpudeck.host import root as host
from gpudeck.vendors import contract, health

log = logs.get(__name__)

FOLDER = "/run/gpudeck"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
VERSION = "v2"


class _Content(contract.Value, frozen=True):
    version: str
    boot_id: str
    cards: dict[str, health.Raised]


class Remembering:
    """The file of one maker; `run` must run for what is kept to be written."""

    def __init__(self, root: host.Root, vendor: str) -> None:
        self.path = f"{FOLDER}/raised-{vendor}.json"
        self._root = root
        self._boot_id = ""
        self._written: Mapping[str, health.Raised] = {}
        self._wanted: Mapping[str, health.Raised] = {}
        self._changed = asyncio.Event()

    async def load(self) -> dict[str, health.Raised]:
        """Return what stood at the end of the process before, by address; nothing if unusable."""
        try:
            boot_id = await asyncio.to_thread(self._root.attribute, BOOT_ID)
            self._boot_id = boot_id or ""
            content = await asyncio.to_thread(self._root.read_bytes, self.path)
            found = msgspec.json.decode(content, type=_Content)
        except errors.NotFoundError:
            return {}
        except (errors.GpudeckError, msgspec.DecodeError) as error:
            log.warning("What drivers raised before is not known", path=self.path, why=error)
            return {}
        if found.version != VERSION or found.boot_id != self._boot_id:
            return {}
        self._written = self._wanted = found.cards
        return dict(found.cards)

    def keep(self, raised: Mapping[str, health.Raised]) -> None:
        """Have the file hold this, soon."""
        if raised != self._wanted:
            self._wanted = dict(raised)
            self._changed.set()

    async def run(self) -> None:
        """Write what is to be kept, for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._wanted
            if wanted == self._written:
                continue
            try:
                await asyncio.to_thread(self._write, wanted)
            except errors.GpudeckError as error:
                log.warning("Cannot keep what the driver raised", path=self.path, why=error)
            else:
                self._written = wanted

    def _write(self, wanted: Mapping[str, health.Raised]) -> None:
        content = _Content(version=VERSION, boot_id=self._boot_id, cards=dict(wanted))
        self._root.make_directory(FOLDER)
        self._root.write_atomic(self.path, msgspec.json.encode(content), mode=0o600)
