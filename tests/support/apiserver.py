# SPDX-License-Identifier: Apache-2.0
"""An API server in memory, in the test's own event loop, with faults that tests turn on.

    async with ApiServer() as server:
        server.put(NODE, {"metadata": {"name": "node-0"}})
        async with server.client() as client: ...
        await server.until(lambda: server.objects(PHYSICAL_GPU))

It stores any resource, and does what gpudeck needs of Kubernetes 1.37: paged lists,
watches with bookmarks, create, server-side apply with field ownership, merge
patches, status subresources, preconditions, finalizers, evictions. It knows no schemas,
defaults, admission, RBAC or garbage collection. tests/contract/kube runs one suite
on it and on a real kube-apiserver.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

import msgspec
from aiohttp import web
from tests.support import apistore, fieldownership, ports, refusals, selecting

from gpudeck.api import resources
from gpudeck.api.resources import Resource
from gpudeck.kube import client

VERSION = {"major": "1", "minor": "37", "gitVersion": "v1.37.2"}
BUDGETS = ("policy", "poddisruptionbudgets")
"""A budget allows what its `status.disruptionsAllowed` says, as its controller would write it."""
LIMIT_SECONDS = 10.0
"""How long `until` waits before the test fails."""


@dataclass
class Fault:
    """Requests that fail: `count` of those that fit."""

    count: int
    status: int
    method: str
    path: str
    headers: dict[str, str]
    reason: str
    message: str


@dataclass
class Seen:
    """A request that came."""

    method: str
    path: str
    query: dict[str, str]
    body: Any = None


@dataclass
class Target:
    """What a URL names."""

    kind: apistore.Kind
    api_version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(eq=False)
class Stream:
    """One open watch."""

    response: web.StreamResponse
    request: web.Request
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    extra: list[bytes] = field(default_factory=list)
    end: bool = False


class ApiServer:
    """The server. `tls` is a server-side SSL context, None for plain HTTP."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.store = apistore.Store()
        self.seen: list[Seen] = []
        """All requests, oldest first."""
        self.tokens: set[str] | None = None
        """Bearer tokens that are let in; None lets everybody in."""
        self.served = {(each.group, each.plural) for each in vars(resources).values()
                       if isinstance(each, resources.Resource)} | {BUDGETS}  # fmt: skip
        """Group and plural of the kinds that are there; others answer 404, as without a CRD.
        All of `gpudeck.api.resources` at first; `put` adds."""
        self._tls, self._port = tls, port or ports.free()
        self._faults: list[Fault] = []
        self._streams: set[Stream] = set()
        self._pages: dict[str, tuple[str, list[dict[str, Any]]]] = {}
        self._numbers = itertools.count(1)
        self._gate = asyncio.Event()
        self._gate.set()
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="gpudeck-test-")
        self.store.on_change(self._wake_all)

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self._folder.cleanup()

    async def start(self) -> None:
        """Listen; after a `stop` on the same port, with the same objects."""
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, "127.0.0.1", self._port, ssl_context=self._tls, reuse_address=True
        )
        await site.start()

    async def stop(self) -> None:
        """Stop listening and cut every connection; the objects stay."""
        self.cut_streams()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def kubeconfig(self, *, token: str = "", authority: str = "") -> str:
        """Write a kubeconfig and return its path; `authority` is a CA file."""
        cluster = {"server": self.url}
        if authority:
            cluster["certificate-authority"] = authority
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path = Path(self._folder.name) / f"kubeconfig-{next(self._numbers)}"
        path.write_text(json.dumps(content))
        return str(path)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[client.Client]:
        """Give a client of this server, closed at the end."""
        async with await client.Client.connect(self.kubeconfig()) as connection:
            yield connection

    # The state of the world

    def put(self, resource: Resource, value: Mapping[str, Any] | msgspec.Struct) -> dict[str, Any]:
        """Store an object whole, status and all; returns what is stored now."""
        self.served.add((resource.group, resource.plural))
        content = json.loads(client.complete(resource, value))  # type: ignore[arg-type]
        meta = content.setdefault("metadata", {})
        if resource.namespaced:
            meta.setdefault("namespace", "default")
        key = f"{meta['namespace']}/{meta['name']}" if resource.namespaced else meta["name"]
        return self.store.put((resource.group, resource.plural), key, content)

    def remove(self, resource: Resource, key: str) -> None:
        """Delete an object as kubectl would (finalizers hold it)."""
        self.store.delete((resource.group, resource.plural), key)

    def objects(self, resource: Resource) -> dict[str, dict[str, Any]]:
        """Return all objects of a resource by "namespace/name" or "name"; do not change them."""
        return self.store.all((resource.group, resource.plural))

    def owners(self, resource: Resource, key: str) -> dict[str, set[str]]:
        """Return the dotted paths of the leaf fields that each field manager owns."""
        owned: dict[str, set[str]] = {}
        ownership = self.store.ownership((resource.group, resource.plural), key)
        for (manager, _, _), paths in ownership.of.items():
            if paths:
                owned.setdefault(manager, set()).update(map(fieldownership.dotted, paths))
        return owned

    @property
    def writes(self) -> list[Seen]:
        """The requests that were neither reads nor dry runs, oldest first."""
        return [each for each in self.seen if each.method != "GET" and not each.query.get("dryRun")]

    async def until(self, true: Callable[[], Any], *, seconds: float = LIMIT_SECONDS) -> Any:
        """Wait until `true()` is so; looked at again after every request and change.

        Returns its value. AssertionError, with the last value, after `seconds`.
        """
        value: Any = None
        try:
            async with asyncio.timeout(seconds):
                while not (value := true()):
                    async with self._changed:
                        with contextlib.suppress(TimeoutError):
                            # The predicate may also look at memory that no request changes.
                            async with asyncio.timeout(0.02):
                                await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not so within {seconds} s; it is {value!r}") from None
        return value

    # Faults

    def fail(
        self,
        count: int,
        status: int,
        *,
        method: str = "",
        path: str = "",
        retry_after: int | None = None,
        reason: str = "",
        message: str = "asked to fail",
    ) -> None:
        """Let the next `count` requests fail whose method is, and whose path holds, the given."""
        headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
        self._faults.append(Fault(count, status, method, path, headers, reason, message))

    def cut_streams(self) -> None:
        """Break every watch with a TCP reset, in the middle of whatever it sends."""
        for stream in list(self._streams):
            transport = stream.request.transport
            if transport is not None:
                transport.abort()
            stream.end = True
            stream.wake.set()

    def end_streams(self) -> None:
        """End every watch properly, as its timeout does."""
        for stream in self._streams:
            stream.end = True
            stream.wake.set()

    def expire(self) -> None:
        """Forget history: watches from before, and pages begun before, get 410."""
        self.store.expire()
        self._pages.clear()

    def garble(self, text: bytes = b'{"type":"MODIFIED","obj\n') -> None:
        """Send bytes that are no event on every watch."""
        for stream in self._streams:
            stream.extra.append(text)
            stream.wake.set()

    def bookmark(self) -> None:
        """Send a bookmark on every watch that asked for them."""
        for stream in self._streams:
            if stream.request.query.get("allowWatchBookmarks") == "true":
                stream.extra.append(self._bookmark(self._target(stream.request)))
                stream.wake.set()

    def stall(self) -> None:
        """Take requests and answer nothing, and say nothing on watches, until `resume`."""
        self._gate.clear()

    def resume(self) -> None:
        """Answer again."""
        self._gate.set()

    @property
    def open_streams(self) -> int:
        """How many watches are open."""
        return len(self._streams)

    # Requests

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        seen = Seen(request.method, request.rel_url.raw_path, dict(request.query))
        with contextlib.suppress(ValueError):
            seen.body = json.loads(body) if body else None
        self.seen.append(seen)
        await self._gate.wait()
        try:
            self._admit(request)
            self._fault(request)
            return await self._dispatch(request, seen.body)
        except apistore.RefusedError as refusal:
            return refusals.answer(refusal)
        finally:
            async with self._changed:
                self._changed.notify_all()

    def _admit(self, request: web.Request) -> None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens is not None and token not in self.tokens:
            raise apistore.RefusedError(401, "Unauthorized", "Unauthorized")

    def _fault(self, request: web.Request) -> None:
        for fault in self._faults:
            if fault.count and fault.method in ("", request.method) and fault.path in request.path:
                fault.count -= 1
                refusal = apistore.RefusedError(fault.status, fault.reason, fault.message)
                refusal.headers = fault.headers
                raise refusal

    async def _dispatch(self, request: web.Request, body: Any) -> web.StreamResponse:
        if request.path == "/version":
            return web.json_response(VERSION)
        target = self._target(request)
        if request.method == "GET":
            return await self._read(request, target)
        if request.query.get("dryRun"):
            return self._dry_run(request, target, body)
        if request.method == "POST":
            is_eviction = target.subresource == "eviction"
            return self._evict(target, body) if is_eviction else self._create(request, target, body)
        if request.method == "DELETE":
            wanted = (body or {}).get("preconditions") or {}
            uid, version = wanted.get("uid"), wanted.get("resourceVersion")
            gone = self.store.delete(target.kind, target.key, uid=uid, version=version)
            return web.json_response(gone)
        return web.json_response(self._write(request, target, body))

    def _evict(self, target: Target, body: Any) -> web.Response:
        """Delete a pod, unless a budget that chooses it allows no disruption now."""
        pod = self.store.get(target.kind, target.key)
        wanted = (body.get("deleteOptions") or {}).get("preconditions") or {}
        if wanted.get("uid") not in (None, pod["metadata"]["uid"]):
            raise apistore.RefusedError(409, "Conflict", "the UID in the precondition is another's")
        phase = pod.get("status", {}).get("phase")
        for budget in self.store.all(BUDGETS).values():
            selector = (budget["spec"].get("selector") or {}).get("matchLabels") or {}
            known = pod["metadata"].get("labels") or {}
            fits = selector.items() <= known.items() and phase == "Running"
            if budget["metadata"]["namespace"] == target.namespace and fits:
                if not budget.get("status", {}).get("disruptionsAllowed", 0):
                    return _over_budget(target, budget)
                budget["status"]["disruptionsAllowed"] -= 1
        self.store.delete(target.kind, target.key)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    def _dry_run(self, request: web.Request, target: Target, body: Any) -> web.Response:
        if request.method == "POST":
            target.name = body.setdefault("metadata", {}).get("name") or apistore.generated("dry-")
            body["metadata"]["name"] = target.name
        with self.store.rehearsal(target.kind, target.key):
            if request.method == "POST":
                return self._create(request, target, body)
            return web.json_response(self._write(request, target, body))

    async def _read(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.name:
            found = self.store.get(target.kind, target.key)
            return web.json_response(self._owned(target.kind, found))
        if request.query.get("watch") in ("true", "1"):
            return await self._watch(request, target)
        return self._list(request, target)

    def _owned(self, kind: apistore.Kind, value: dict[str, Any]) -> dict[str, Any]:
        """Add who wrote which fields: to what is read, not to events of watches."""
        meta = value["metadata"]
        key = "/".join(filter(None, (meta.get("namespace"), meta["name"])))
        fields = self.store.ownership(kind, key).managed_fields()
        return {**value, "metadata": {**meta, "managedFields": fields}}

    def _target(self, request: web.Request) -> Target:
        parts = [unquote(part) for part in request.rel_url.raw_path.split("/") if part]
        if parts[:1] == ["api"] and len(parts) >= 3:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[:1] == ["apis"] and len(parts) >= 4:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise apistore.RefusedError(404, "", "404 page not found")
        namespace = ""
        if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        if (group, rest[0]) not in self.served:
            raise apistore.RefusedError(404, "", "404 page not found")
        api_version = f"{group}/{version}" if group else version
        rest = [*rest, "", ""][:3]
        return Target((group, rest[0]), api_version, namespace, rest[1], rest[2])

    def _create(self, request: web.Request, target: Target, body: Any) -> web.Response:
        meta = body.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = apistore.generated(meta["generateName"])
        if not meta.get("name"):
            raise apistore.RefusedError(422, "Invalid", "metadata.name: Required value")
        if target.namespace:
            meta.setdefault("namespace", target.namespace)
        target.name = meta["name"]
        write = self._how(request, target)
        made = self.store.create(target.kind, target.key, body, write)
        return web.json_response(made, status=201)

    def _write(self, request: web.Request, target: Target, body: Any) -> dict[str, Any]:
        write = self._how(request, target)
        if request.method == "PUT":
            return self.store.replace(target.kind, target.key, body, write)
        kind = request.content_type
        if kind == "application/merge-patch+json":
            known = self.store.get(target.kind, target.key)
            after = apistore.merge(known, body)
            return self.store.replace(target.kind, target.key, after, write)
        if kind == "application/apply-patch+yaml":
            return self._apply(request, target, body, write)
        raise apistore.RefusedError(415, "UnsupportedMediaType", f"{kind} is not supported")

    def _apply(
        self, request: web.Request, target: Target, body: Any, write: apistore.Write
    ) -> dict[str, Any]:
        if not request.query.get("fieldManager"):
            raise apistore.RefusedError(
                400, "BadRequest", "fieldManager is required for apply patch"
            )
        if body.get("apiVersion") != target.api_version or not body.get("kind"):
            raise apistore.RefusedError(400, "BadRequest", "apiVersion and kind must be set")
        if body.get("metadata", {}).get("name", target.name) != target.name:
            raise apistore.RefusedError(400, "BadRequest", "metadata.name does not match the URL")
        if body.get("metadata", {}).get("managedFields"):
            raise apistore.RefusedError(400, "BadRequest", "metadata.managedFields must be nil")
        meta = body.setdefault("metadata", {})
        meta["name"] = target.name
        if target.namespace:
            meta["namespace"] = target.namespace
        return self.store.apply(target.kind, target.key, body, write)

    def _how(self, request: web.Request, target: Target) -> apistore.Write:
        manager = request.query.get("fieldManager") or request.headers.get("User-Agent") or ""
        force = request.query.get("force") == "true"
        return apistore.Write(manager.partition("/")[0], target.subresource, force)

    # Lists and watches

    def _list(self, request: web.Request, target: Target) -> web.Response:
        limit = int(request.query.get("limit") or 0)
        position = request.query.get("continue")
        if position:
            if position not in self._pages:
                text = "The provided continue parameter is too old"
                raise apistore.RefusedError(410, "Expired", text)
            version, items = self._pages[position]
        else:
            version = str(self.store.version)
            items = [
                self._owned(target.kind, each)
                for each in self._within(target)
                if self._choice(request)(each)
            ]
        meta: dict[str, Any] = {"resourceVersion": version}
        if limit and len(items) > limit:
            meta["continue"] = f"page-{next(self._numbers)}"
            meta["remainingItemCount"] = len(items) - limit
            self._pages[meta["continue"]] = (version, items[limit:])
            items = items[:limit]
        # Items of real lists carry no kind and apiVersion of their own.
        bare = [
            {name: part for name, part in each.items() if name not in ("kind", "apiVersion")}
            for each in items
        ]
        answer = {"kind": "List", "apiVersion": target.api_version, "metadata": meta, "items": bare}
        return web.json_response(answer)

    def _within(self, target: Target) -> list[dict[str, Any]]:
        found = self.store.all(target.kind).values()
        space = target.namespace
        return [each for each in found if not space or each["metadata"]["namespace"] == space]

    @staticmethod
    def _choice(request: web.Request) -> selecting.Test:
        query = request.query
        return selecting.compile_both(
            query.get("labelSelector", ""), query.get("fieldSelector", "")
        )

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        stream = Stream(response, request)
        self._streams.add(stream)
        seconds = float(request.query.get("timeoutSeconds") or 300)
        try:
            async with asyncio.timeout(seconds):
                await self._feed(stream, target)
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self._streams.discard(stream)
        return response

    async def _feed(self, stream: Stream, target: Target) -> None:
        query = stream.request.query
        chosen = self._choice(stream.request)
        version = int(query.get("resourceVersion") or 0)
        if version == 0:
            version = self.store.version
            for value in filter(chosen, self._within(target)):
                await stream.response.write(_line("ADDED", value))
        while not stream.end:
            if version < self.store.floor:
                await stream.response.write(
                    _line("ERROR", refusals.status(refusals.too_old(version)))
                )
                return
            fresh = [record for record in self.store.history if record.version > version]
            for record in fresh:
                version = record.version
                line = _event(record, target, chosen)
                if line is not None:
                    await self._gate.wait()
                    await stream.response.write(line)
            while stream.extra:
                await self._gate.wait()
                await stream.response.write(stream.extra.pop(0))
            if version == self.store.version and not stream.extra and not stream.end:
                stream.wake.clear()
                await stream.wake.wait()

    def _bookmark(self, target: Target) -> bytes:
        value: dict[str, Any] = {
            "kind": "Unknown",
            "apiVersion": target.api_version,
            "metadata": {"resourceVersion": str(self.store.version), "creationTimestamp": None},
        }
        if target.kind == ("", "pods"):
            value["spec"] = {"containers": None}
        return _line("BOOKMARK", value)

    def _wake_all(self) -> None:
        for stream in self._streams:
            stream.wake.set()


def _over_budget(target: Target, budget: dict[str, Any]) -> web.Response:
    said = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "reason": "TooManyRequests",
        "code": 429,
        "details": {
            "causes": [
                {
                    "reason": "DisruptionBudget",
                    "message": f"The disruption budget {budget['metadata']['name']} needs 1 "
                    "healthy pods and has 1 currently",
                }
            ]
        },
    }
    return web.json_response(said, status=429)


def _event(record: apistore.Record, target: Target, chosen: selecting.Test) -> bytes | None:
    """Return the line for one change as a watch with selectors sees it, None for nothing."""
    if record.kind != target.kind:
        return None
    if target.namespace and record.value["metadata"]["namespace"] != target.namespace:
        return None
    before = record.before is not None and chosen(record.before)
    after = record.type != "DELETED" and chosen(record.value)
    if before and after:
        return _line("MODIFIED", record.value)
    if after:
        return _line("ADDED", record.value)
    return _line("DELETED", record.value) if before else None


def _line(type_: str, value: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": value}).encode() + b"\n"
