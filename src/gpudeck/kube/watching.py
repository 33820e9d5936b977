# SPDX-License-Identifier: Apache-2.0
"""One watch: a stream of events from a resource version on, until the server or the net ends it.

Used by `caching`, which resumes, relists and diffs. Events leave here as Raw,
so that a BOOKMARK (of which servers send objects with null lists) or an ERROR is
never decoded as the typed object. Lines are split on our own buffer: asyncio's
and aiohttp's readline raise above a limit, and an object may be large.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from gpudeck import errors
from gpudeck.kube import client, decoding, responses
from gpudeck.kube.requests import Request

T = TypeVar("T")
SERVER_SECONDS = (240, 480)
"""How long a watch is asked to last, at random, so that clients do not reconnect in step."""
IDLE_SECONDS = 85.0
"""Bookmarks come every minute (apiserver 1.37), so longer silence is a dead connection."""
LINE_LIMIT = 64 * 1024 * 1024
"""An object has at most some 3 MiB; without a limit, garbage would fill the memory."""

ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"


class Change(msgspec.Struct, Generic[T], gc=False):
    """What happened to one object of a cache. `new` is None when it is gone.

    `key` is "namespace/name", or "name" for cluster-scoped kinds.
    """

    key: str
    old: T | None
    new: T | None


class WatchEvent(msgspec.Struct, gc=False):
    """A line of a watch before its object is decoded."""

    type: str
    object: msgspec.Raw


_events = msgspec.json.Decoder(WatchEvent)


class Lines:
    """Cuts a stream of bytes into lines."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Add bytes and give the lines that are complete now, without their ends."""
        start = len(self._buffer)  # What was there before holds no line end.
        self._buffer += chunk
        taken = 0
        while (end := self._buffer.find(b"\n", max(start, taken))) >= 0:
            yield bytes(self._buffer[taken:end])
            taken = end + 1
        del self._buffer[:taken]
        if len(self._buffer) > LINE_LIMIT:
            raise errors.ExpiredError(
                f"a line of the watch exceeds {LINE_LIMIT} bytes",
                reason="WatchMalformed",
            )


async def stream(
    connection: client.Client, path: str, query: Mapping[str, str], version: str
) -> AsyncGenerator[WatchEvent]:
    """Give the events after `version`; ends when the server closes the stream.

    Raises ExpiredError when the version is too old or a line cannot be read (list
    again), UnavailableError when the connection breaks (go on from the last version).
    """
    request = Request("GET", path, {**query, **_parameters(version)})
    what = f"WATCH {path}"
    transport = await connection.transport()
    lines = Lines()
    async with transport.stream(request, what, IDLE_SECONDS) as chunks:
        async for chunk in chunks:
            for line in lines.feed(chunk):
                if line.strip():
                    yield _parse(line, what)


def _parameters(version: str) -> dict[str, str]:
    seconds = random.randint(*SERVER_SECONDS)
    return {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(seconds),
    }


def _parse(line: bytes, what: str) -> WatchEvent:
    try:
        event = decoding.decode(_events, line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.ExpiredError(
            f"{what}: a line is not a watch event: {error}", reason="WatchMalformed"
        ) from error
    if event.type == "ERROR":
        status = responses.parse(bytes(event.object))
        raise responses.error_of(what, status.code or 500, status)
    return event
