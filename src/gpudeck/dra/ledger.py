# SPDX-License-Identifier: Apache-2.0
"""The checkpoint under its lock: read, made usable, handed to one caller at a time.

The lock is a file, so the plugins of a rolling update exclude each other; nothing read
before is trusted after it was taken. Reading drops what an earlier boot left (its CDI
files lay on a tmpfs, its devices are released) and replaces a checkpoint that is
corrupt, or missing beside CDI specs of ours, by what `recovering` finds. The file is a
few kilobytes that were just written, so it is read in place; writes go through a thread.

No call waits for the disk: what a call writes survives the end of any process, and after
a power cut the boot id has changed and all entries are dropped. The disk is told right
afterwards, so that a power cut does not leave half a file. Only where the host has no
boot id does each write wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from gpudeck import finishing, logs
from gpudeck.cdi.files import Folder
from gpudeck.dra import changing, checkpoint, events, exposing, metrics, recovering
from gpudeck.errors import BusyError, GpudeckError
from gpudeck.host import files, locks

log = logs.get(__name__)

LOCK_SECONDS = 20.0
"""The kubelet gives a call 45 s; a caller that waits longer than this is told so instead."""


T = TypeVar("T")
P = ParamSpec("P")


async def whole(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` in a thread and wait for its end, even when the call is cancelled meanwhile:
    a write must not go on when the lock has been given back."""
    call = functools.partial(function, *args, **kwargs)
    return await finishing.whole(asyncio.get_running_loop().run_in_executor(None, call))


class Ledger:
    """The prepared claims of one node."""

    def __init__(
        self,
        data_dir: Path,
        folder: Folder,
        node_events: events.NodeEvents,
        *,
        exposure: exposing.Exposure,
        boot_id: str | None,
    ) -> None:
        self.changing = changing.Changing(data_dir)
        """The cards that are given to no claim now, though the lock may be free."""
        self._store = checkpoint.Store(data_dir / checkpoint.FILE)
        self._lock_path = data_dir / checkpoint.LOCK
        self._folder = folder
        self._exposure = exposure
        self._events = node_events
        self._boot_id = boot_id
        self._turn = asyncio.Lock()
        self._is_unsynced = False
        self._syncing: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []

    def glance(self) -> checkpoint.Content:
        """The content without the lock: good for guessing what a call will need."""
        try:
            content = self._store.read()
        except checkpoint.CorruptError:
            return checkpoint.Content()
        if content is None or self._is_stale(content):
            return checkpoint.Content()
        return content

    def held_devices(self) -> frozenset[str]:
        """The names of the devices of all claims that the checkpoint has now."""
        return frozenset(
            device.name for entry in self.glance().claims.values() for device in entry.devices
        )

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call back, in any thread, after each write."""
        self._listeners.append(changed)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[checkpoint.Content]:
        """Hold the lock and the content; `save` it before the block ends.

        Raises BusyError when the lock is not to be had.
        """
        # Tasks of this process wait in line; the file's lock only asks now and then.
        try:
            async with asyncio.timeout(LOCK_SECONDS):
                await self._turn.acquire()
        except TimeoutError as error:
            raise BusyError(
                f"other claims of this node have been in work for {LOCK_SECONDS:g} s",
                reason="PrepareBusy",
            ) from error
        try:
            async with locks.held(self._lock_path, deadline_seconds=LOCK_SECONDS):
                yield await self._load()
        finally:
            self._turn.release()
            if self._is_unsynced and (self._syncing is None or self._syncing.done()):
                self._syncing = asyncio.create_task(self._sync())

    async def save(self, content: checkpoint.Content) -> None:
        """Write the content and wait for the disk; only inside `opened`."""
        await whole(self._write, content, durable=True)

    def write(self, content: checkpoint.Content) -> None:
        """Write the content, for a caller that is in a thread already; only inside `opened`."""
        self._write(content, durable=self._boot_id is None)
        self._is_unsynced = True

    def _write(self, content: checkpoint.Content, *, durable: bool) -> None:
        self._store.write(content, durable=durable)
        metrics.prepared_claims.set(len(content.claims))
        for changed in self._listeners:
            changed()

    async def _sync(self) -> None:
        """Tell the disk what calls have written; those that write meanwhile make it go on."""
        while self._is_unsynced:
            self._is_unsynced = False
            try:
                await asyncio.to_thread(files.sync, self._store.path)
            except GpudeckError as error:
                log.warning("Cannot sync the checkpoint", error=error)

    async def clean(self) -> None:
        """Undo what a killed plugin left half done, at the start.

        Only what was made needs the adapter for that: the entry stays as Released until the
        adapter has removed it, so this works while the adapter is away.
        """
        async with self.opened() as content:
            started = [
                uid
                for uid, entry in content.claims.items()
                if entry.state is checkpoint.State.STARTED
            ]
            for uid in started:
                entry = content.claims[uid]
                if entry.holds_made:
                    content.claims[uid] = entry.released()
                else:
                    content.forget(uid)
            kept = {*content.claims, *content.quarantined}
            removed = await whole(self._sweep, kept)
            await self.save(content)
            for uid in content.quarantined:
                self._events.entry_quarantined(uid, "it is of another version or damaged")
        if started or removed:
            log.info("Cleaned up", rolled_back=len(started), files_removed=removed)

    def _sweep(self, kept: set[str]) -> int:
        files.remove_leftovers(self._store.path.parent)
        self._folder.remove_leftovers()
        orphans = [uid for uid in self._folder.claims() if uid not in kept]
        return sum(self._folder.remove(uid) for uid in orphans) + self._exposure.sweep(kept)

    async def _load(self) -> checkpoint.Content:
        try:
            content = self._store.read()
        except checkpoint.CorruptError as error:
            kept = await asyncio.to_thread(self._store.set_aside)
            return await self._rebuild(str(error), str(kept))
        if content is None:
            if await asyncio.to_thread(self._folder.claims):
                return await self._rebuild("the file is missing", "")
            return checkpoint.Content(boot_id=self._boot_id)
        if self._is_stale(content):
            log.info("Dropping the claims of an earlier boot", claims=len(content.claims))
            return checkpoint.Content(boot_id=self._boot_id)
        content.boot_id = self._boot_id or content.boot_id
        return content

    def _is_stale(self, content: checkpoint.Content) -> bool:
        """Whether another boot wrote it; without an id (older release) it counts as this one's."""
        known = content.boot_id is not None and self._boot_id is not None
        return known and content.boot_id != self._boot_id

    async def _rebuild(self, why: str, kept: str) -> checkpoint.Content:
        specs = await asyncio.to_thread(self._read_specs)
        content = checkpoint.Content(
            boot_id=self._boot_id, claims=recovering.from_specs(specs), is_partial=True
        )
        await self.save(content)
        log.error("Replaced the checkpoint", error=why, kept=kept, claims=len(content.claims))
        self._events.checkpoint_replaced(kept, why, len(content.claims))
        return content

    def _read_specs(self) -> dict[str, bytes]:
        found = {}
        for uid in self._folder.claims():
            try:
                found[uid] = self._folder.read(uid) or b""
            except GpudeckError as error:
                log.warning("Cannot read a CDI spec", claim=uid, error=error)
        return found
