# SPDX-License-Identifier: Apache-2.0
"""Events: what happened to an object, for people who run `kubectl describe`.

`record` never blocks and never fails; `run` writes. Equal events become one with
a count, written at most every few seconds, so a hot loop cannot flood the API
server. An Event that cannot be written is dropped with a log line: Events are
for people, conditions are for programs. Core v1 Events, as kubectl reads them.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import socket
import uuid
from typing import Any

import msgspec

from gpudeck import errors, logs
from gpudeck.api.meta import Meta, ObjectMeta, ObjectReference
from gpudeck.api.resources import EVENT, Resource
from gpudeck.kube import client, pacing

REPEAT_SECONDS = 10.0
"""The count of an event that goes on happening is written this often at most."""
REMEMBERED = 2048
"""Different events whose counts go on; beyond it the oldest starts anew."""
PENDING = 1024
MESSAGE_LIMIT = 1024
"""The API server refuses longer messages (core v1 validation, 1.37)."""
_log = logs.get(__name__)


def of_node(name: str) -> ObjectReference:
    """Return the Node that an Event is about.

    As in the kubelet's Events (1.37) its name stands for the UID: `kubectl describe node` looks
    for that.
    """
    return ObjectReference(api_version="v1", kind="Node", name=name, uid=name)


def of(resource: Resource, meta: ObjectMeta) -> ObjectReference:
    """Return the object that an Event is about, of any other kind."""
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
    )


class Occurrence(msgspec.Struct, frozen=True):
    """What makes two events equal."""

    regarding: ObjectReference
    reason: str
    message: str
    warning: bool

    @property
    def key(self) -> tuple[str | bool | None, ...]:
        """The parts, for a dict."""
        about = self.regarding
        parts = (about.kind, about.namespace, about.name, about.uid)
        return (*parts, self.reason, self.message, self.warning)


class _Series(msgspec.Struct):
    occurrence: Occurrence
    first: str
    last: str
    count: int = 0
    name: str = ""
    written: int = 0
    not_before: float = 0.0


class Recorder:
    """Writes Events in the name of one component."""

    def __init__(self, connection: client.Client, component: str, *, instance: str = "") -> None:
        self._client = connection
        self._component = component
        self._instance = instance or socket.gethostname()
        self._known: dict[tuple[Any, ...], _Series] = {}
        self._pending: dict[tuple[Any, ...], None] = {}
        self._wake = asyncio.Event()

    def record(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        message: str,
        warning: bool = False,
    ) -> None:
        """Note an event about an object; `reason` is CamelCase, `message` a sentence."""
        occurrence = Occurrence(regarding, reason, _cut(message), warning)
        now = timestamp()
        series = self._known.pop(occurrence.key, None) or _Series(occurrence, now, now)
        series.count += 1
        series.last = now
        self._known[occurrence.key] = series  # At the end: the oldest go first.
        self._pending[occurrence.key] = None
        if len(self._pending) > PENDING:
            del self._pending[next(iter(self._pending))]
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        self._wake.set()

    async def record_once(
        self,
        regarding: ObjectReference,
        *,
        key: str,
        reason: str,
        message: str,
        warning: bool = False,
    ) -> None:
        """Write an event now, unless one of this object and `key` was written within its life.

        Also not by another process: the name is made of both. Raises what the API server
        answers; an equal name is success.
        """
        digest = hashlib.sha256(f"{regarding.uid} {key}".encode()).hexdigest()[:16]
        occurrence = Occurrence(regarding, reason, _cut(message), warning)
        now = timestamp()
        series = _Series(occurrence, now, now, name=_name(regarding, digest))
        with contextlib.suppress(errors.AlreadyExistsError):
            await self._client.create(EVENT, self._body(series, 1), Meta)

    async def run(self) -> None:
        """Write what is recorded, for ever."""
        pace = pacing.Backoff()
        while True:
            await self._wake.wait()
            self._wake.clear()
            for key in list(self._pending):
                await self._flush(key, pace)

    async def _flush(self, key: tuple[Any, ...], pace: pacing.Backoff) -> None:
        self._pending.pop(key, None)
        series = self._known.get(key)
        if series is None or series.count == series.written:
            return
        loop = asyncio.get_running_loop()
        if series.not_before > loop.time():
            loop.call_at(series.not_before, self._again, key)
            return
        try:
            await self._write(series)
            pace.reset()
        except errors.RetryableError as error:
            self._pending[key] = None
            self._wake.set()
            await asyncio.sleep(pace.after(error))
        except errors.TerminalError as error:
            _log.warning("Event dropped", reason=series.occurrence.reason, error=error)
            series.written = series.count

    def _again(self, key: tuple[Any, ...]) -> None:
        self._pending[key] = None
        self._wake.set()

    async def _write(self, series: _Series) -> None:
        count = series.count
        if series.name:
            try:
                await self._update(series, count)
            except errors.NotFoundError:
                series.name = ""  # Events expire after an hour; begin another.
        if not series.name:
            await self._create(series, count)
        series.written = count
        series.not_before = asyncio.get_running_loop().time() + REPEAT_SECONDS
        if series.count != count:
            self._again(series.occurrence.key)

    async def _update(self, series: _Series, count: int) -> None:
        patch = {"count": count, "lastTimestamp": series.last}
        namespace = _namespace(series.occurrence)
        await self._client.merge_patch(EVENT, series.name, patch, Meta, namespace=namespace)

    async def _create(self, series: _Series, count: int) -> None:
        name = _name(series.occurrence.regarding, uuid.uuid4().hex[:16])
        body = self._body(msgspec.structs.replace(series, name=name), count)
        await self._client.create(EVENT, body, Meta)
        series.name = name

    def _body(self, series: _Series, count: int) -> dict[str, Any]:
        about = series.occurrence
        return {
            "metadata": {"name": series.name, "namespace": _namespace(about)},
            "involvedObject": about.regarding,
            "reason": about.reason,
            "message": about.message,
            "type": "Warning" if about.warning else "Normal",
            "count": count,
            "firstTimestamp": series.first,
            "lastTimestamp": series.last,
            "source": {"component": self._component, "host": self._instance},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


def timestamp(seconds: float = 0.0) -> str:
    """Return the present, or so many seconds after it, as a `metav1.Time`: RFC 3339, whole, UTC."""
    then = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(regarding: ObjectReference, suffix: str) -> str:
    # An Event's name may have 253 characters, as the name of what it is about.
    return f"{(regarding.name or 'unknown')[:236].rstrip('-.')}.{suffix}"


def _namespace(occurrence: Occurrence) -> str:
    # The API server takes Events about cluster-scoped objects in "default" only.
    return occurrence.regarding.namespace or "default"


def _cut(message: str) -> str:
    # A file may have a name that is no text; JSON cannot carry it.
    encoded = message.encode(errors="replace")
    if len(encoded) <= MESSAGE_LIMIT:
        return encoded.decode()
    return encoded[: MESSAGE_LIMIT - 4].decode("utf-8", "ignore") + " …"
