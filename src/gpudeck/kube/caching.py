# SPDX-License-Identifier: Apache-2.0
"""A part of the cluster in memory: listed once, then followed by watches.

`Cache.run` lists in pages, watches from there, resumes a broken watch from the
last version it saw (bookmarks included), and lists again when that version has
expired or the stream was unreadable. A new list is compared with what is held,
so subscribers also hear of what was deleted meanwhile. Only the typed struct is
kept; `keep` may trim it further or refuse the object. An object that does not
fit the type is reported by name and left out: it must not take the rest along.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from gpudeck import errors, logs, nesting
from gpudeck.api.meta import Meta, ObjectMeta
from gpudeck.api.resources import Resource
from gpudeck.kube import client, detaching, pacing, watching


class Identified(Protocol):
    """An object with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Identified)
YIELD_BYTES = 128 * 1024
"""Text of objects decoded before other tasks get a turn: some 5 to 15 ms."""
LASTING_SECONDS = 5.0
"""A watch that ends sooner without an event counts as a failure, lest it spins."""
_log = logs.get(__name__)
_metas = msgspec.json.Decoder(Meta)


class Cache(Generic[T]):
    """The objects of one resource, of one namespace or all, that the selectors choose.

    `page` is how many a page of the list has; large objects want fewer than usual.
    """

    def __init__(
        self,
        connection: client.Client,
        resource: Resource,
        type_: type[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        keep: Callable[[T], T | None] | None = None,
        pace: pacing.Backoff | None = None,
        page: int = 0,
    ) -> None:
        self.objects: dict[str, T] = {}
        """By "namespace/name" or "name"; complete only once synced."""
        self._client = connection
        self._path = client.path_of(resource, namespace)
        self._query = client.selectors(label_selector, field_selector)
        self._keep = keep
        self._page = page
        self._decoder = msgspec.json.Decoder(type_)
        self._detach = detaching.plan(type_)
        self._callbacks: list[Callable[[watching.Change[T]], None]] = []
        self._pace = pace or pacing.Backoff()
        self._version: str | None = None
        self._read_bytes = 0
        self._synced = asyncio.Event()
        self._log = _log.bind(resource=resource.plural)

    @property
    def is_synced(self) -> bool:
        """Whether a list has been read to its end."""
        return self._synced.is_set()

    async def synced(self) -> None:
        """Wait until the first list has been read to its end."""
        await self._synced.wait()

    def subscribe(self, callback: Callable[[watching.Change[T]], None]) -> None:
        """Call back on each change, in order, on the loop; at once for what is held already.

        An exception of the callback ends `run`.
        """
        self._callbacks.append(callback)
        for key, held in self.objects.items():
            callback(watching.Change(key, None, held))

    async def run(self) -> None:
        """Keep `objects` up to date, for ever."""
        while True:
            try:
                if self._version is None:
                    self._version = await self._list()
                    self._synced.set()
                await self._follow()
            except errors.GpudeckError as error:
                await self._recover(error)

    async def _recover(self, error: errors.GpudeckError) -> None:
        resumable = isinstance(error, errors.RetryableError)
        if not resumable or isinstance(error, errors.ExpiredError):
            self._version = None
        seconds = self._pace.after(error)
        level = self._log.info if resumable else self._log.warning
        level(
            "Watch interrupted",
            reason=error.reason,
            error=error,
            seconds=f"{seconds:.1f}",
        )
        await asyncio.sleep(seconds)

    async def _list(self) -> str:
        seen: set[str] = set()
        version = ""
        async for page in self._client.pages(self._path, self._query, size=self._page):
            version = page.resource_version
            if page.is_anew:
                seen.clear()
            for raw in page.items:
                key, new = self._decode(raw)
                seen.add(key)
                self._store(key, new)
                await self._give_way(raw)
        for key in [key for key in self.objects if key not in seen]:
            self._store(key, None)
        return version

    async def _follow(self) -> None:
        """Read one watch to its end; what it got so far counts even if it breaks."""
        loop = asyncio.get_running_loop()
        started, count = loop.time(), 0
        events = watching.stream(self._client, self._path, self._query, self._version or "")
        async with contextlib.aclosing(events):
            async for event in events:
                self._take(event)
                self._pace.reset()
                count += 1
                await self._give_way(event.object)
        if count == 0 and loop.time() - started < LASTING_SECONDS:
            await asyncio.sleep(self._pace.next())

    async def _give_way(self, read: msgspec.Raw) -> None:
        """Let other tasks have a turn if much was read since the last one."""
        self._read_bytes += len(read)
        if self._read_bytes >= YIELD_BYTES:
            self._read_bytes = 0
            await asyncio.sleep(0)

    def _take(self, event: watching.WatchEvent) -> None:
        if event.type != watching.BOOKMARK:
            key, new = self._decode(event.object)
            self._store(key, None if event.type == watching.DELETED else new)
        self._version = _meta_of(event.object).resource_version or self._version

    def _decode(self, raw: msgspec.Raw) -> tuple[str, T | None]:
        """Return the key and what is to be kept of an object: None if nothing."""
        try:
            found = nesting.decode(self._decoder, raw)
        except (msgspec.ValidationError, UnicodeDecodeError) as error:
            key = key_of(_meta_of(raw))
            self._log.warning("Object left out", object=key, error=error)
            return key, None
        key = key_of(found.metadata)
        kept = self._keep(found) if self._keep else found
        if kept is not None and self._detach is not None:
            self._detach(kept)
        return key, kept

    def _store(self, key: str, new: T | None) -> None:
        old = self.objects.get(key)
        if old == new:
            return
        if new is None:
            del self.objects[key]
        else:
            self.objects[key] = new
        change = watching.Change(key, old, new)
        for callback in self._callbacks:
            callback(change)


def key_of(meta: ObjectMeta) -> str:
    """Return "namespace/name", or "name" for an object of the cluster."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def _meta_of(raw: msgspec.Raw) -> ObjectMeta:
    try:
        return nesting.decode(_metas, raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.ExpiredError(
            f"an object without readable metadata: {error}", reason="WatchMalformed"
        ) from error
