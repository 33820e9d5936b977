# SPDX-License-Identifier: Apache-2.0
"""Typed calls to the API server: get, list, create, apply, merge patch, delete.

Objects come back as the msgspec struct that the caller names and are typed only
as far as it reads them, so nothing is ever written back whole: writes are
server-side apply with our own field manager, merge patches, or creations. No
call is repeated here (but for a 401 or a connection closed while idle): errors
say whether repeating may help, and `queueing` repeats.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from urllib.parse import quote

import msgspec

from gpudeck import errors, nesting
from gpudeck.api.meta import Meta, Wire
from gpudeck.api.resources import Resource
from gpudeck.kube import configuration, decoding
from gpudeck.kube.requests import JSON, REQUEST_SECONDS, Request

if TYPE_CHECKING:
    from gpudeck.kube.transport import Transport

T = TypeVar("T")
_TRANSPORT = "gpudeck.kube.transport"
PAGE = 500
"""Objects a list page, as client-go's pager."""


class Listed(msgspec.Struct, Generic[T]):
    """What a list gave, and the resource version from which a watch may go on."""

    items: list[T]
    resource_version: str


class Page(msgspec.Struct):
    """One page of a list, its objects not decoded yet."""

    items: list[msgspec.Raw]
    resource_version: str
    is_anew: bool = False
    """The list begins anew with it: what the pages before it had no longer counts."""


class _ListMeta(Wire):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _List(Wire):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


_lists = msgspec.json.Decoder(_List)
_metas = msgspec.json.Decoder(Meta)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Client:
    """A connection to one API server, safe to share by all tasks of a loop."""

    def __init__(
        self, access: configuration.Access, *, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        self.namespace = access.namespace
        """The namespace of the pod, or of the kubeconfig's context."""
        self.server = access.server
        self._access = access
        self._request_seconds = request_seconds
        self._transport: Transport | None = None
        self._loading = asyncio.Lock()

    @classmethod
    async def connect(
        cls,
        kubeconfig: str = "",
        *,
        context: str = "",
        request_seconds: float = REQUEST_SECONDS,
    ) -> Client:
        """Return a client for kubeconfig file(s), or for the pod's service account if "".

        A request may take `request_seconds`, 0 is without a limit; a watch has none.
        Nothing is sent yet. InvalidError if the configuration is missing or bad.
        """
        if kubeconfig:
            access = configuration.load(kubeconfig, context)
        else:
            access = configuration.in_cluster()
        return cls(access, request_seconds=request_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections, also those of running watches."""
        if self._transport is not None:
            await self._transport.close()

    async def transport(self) -> Transport:
        """What sends; loaded when it is first asked for.

        The HTTP client is two fifths of what a process of the node imports, and what the kubelet
        waits for at the start needs none.
        """
        if self._transport is None:
            async with self._loading:
                # In a thread, for it takes a tenth of a second.
                module = await asyncio.to_thread(importlib.import_module, _TRANSPORT)
                self._transport = self._transport or module.Transport(self._access)
        return self._transport

    async def get(
        self,
        resource: Resource,
        name: str,
        type_: type[T],
        *,
        namespace: str | None = None,
    ) -> T:
        """Return one object; NotFoundError if it is not there."""
        return await self._typed("GET", path_of(resource, namespace, name), type_)

    async def list(
        self,
        resource: Resource,
        type_: type[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listed[T]:
        """Return all objects, page by page; without a namespace those of all namespaces."""
        items: list[T] = []
        version = ""
        decoder = msgspec.json.Decoder(type_)
        path = path_of(resource, namespace)
        async for page in self.pages(path, selectors(label_selector, field_selector)):
            if page.is_anew:
                items.clear()
            items.extend(_decoded(decoder, raw, f"GET {path}") for raw in page.items)
            version = page.resource_version
        return Listed(items, version)

    async def pages(
        self, path: str, query: Mapping[str, str], *, size: int = 0
    ) -> AsyncIterator[Page]:
        """Give the pages of a list; a page, of `size` objects or PAGE, is in memory as a whole.

        If its snapshot expires, all of it comes again as one page, newer than those before it.
        """
        position: str | None = None
        is_anew = False
        limit: dict[str, str] = {"limit": str(size or PAGE)}
        while True:
            more = {"continue": position} if position else {}
            try:
                body = await self._send("GET", path, query={**query, **limit, **more})
            except errors.ExpiredError:
                if position is None:
                    raise
                position, limit, is_anew = None, {}, True
                continue
            answer = _decoded(_lists, body, f"GET {path}")
            yield Page(answer.items or [], answer.metadata.resource_version, is_anew)
            is_anew = False
            position = answer.metadata.continue_
            if not position:
                return

    async def create(
        self,
        resource: Resource,
        body: Wire | Mapping[str, Any],
        type_: type[T],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Create an object; AlreadyExistsError if one of the name is there.

        A dry run goes through admission and validation, and keeps nothing.
        """
        content = complete(resource, body)
        where = namespace or nesting.decode(_metas, content).metadata.namespace
        query = {"dryRun": "All"} if dry_run else {}
        return await self._typed("POST", path_of(resource, where), type_, body=content, query=query)

    async def apply(
        self,
        resource: Resource,
        body: Wire | Mapping[str, Any],
        type_: type[T],
        *,
        manager: str,
        subresource: str = "",
        force: bool = True,
    ) -> T:
        """Apply the fields of `body` as `manager`; fields that it owned and left out go.

        The object is created if it is not there (not by a subresource: NotFoundError).
        A resourceVersion in the body is a precondition: ConflictError if it is another.
        """
        content = complete(resource, body)
        meta = nesting.decode(_metas, content).metadata
        path = path_of(resource, meta.namespace, meta.name, subresource)
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        kind = "application/apply-patch+yaml"
        return await self._typed("PATCH", path, type_, body=content, query=query, kind=kind)

    async def rehearse(
        self, resource: Resource, body: Wire | Mapping[str, Any], type_: type[T], *, manager: str
    ) -> T:
        """Return the object as `apply` would leave it, and change nothing (a dry run).

        Tells what the API server keeps of the fields and what it refuses, without a version.
        """
        content = complete(resource, body)
        meta = nesting.decode(_metas, content).metadata
        path = path_of(resource, meta.namespace, meta.name)
        query = {"fieldManager": manager, "force": "true", "dryRun": "All"}
        kind = "application/apply-patch+yaml"
        return await self._typed("PATCH", path, type_, body=content, query=query, kind=kind)

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        type_: type[T],
        *,
        namespace: str | None = None,
        subresource: str = "",
        manager: str = "",
    ) -> T:
        """Change the fields of `patch` (None removes one) and return the object."""
        path = path_of(resource, namespace, name, subresource)
        query = {"fieldManager": manager} if manager else {}
        content = msgspec.json.encode(patch)
        kind = "application/merge-patch+json"
        return await self._typed("PATCH", path, type_, body=content, query=query, kind=kind)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Ask for an object's deletion; NotFoundError if it is gone, ConflictError if the
        object of that name is not the one of `uid` and `resource_version`."""
        wanted = {"uid": uid, "resourceVersion": resource_version}
        given = {field: value for field, value in wanted.items() if value is not None}
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if given:
            options["preconditions"] = given
        await self._send(
            "DELETE",
            path_of(resource, namespace, name),
            body=msgspec.json.encode(options),
        )

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send any request and return the answer's body (`/version`, `/apis`, …)."""
        return await self._send(method, path, body=body, query=query)

    async def _typed(
        self,
        method: str,
        path: str,
        type_: type[T],
        *,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        kind: str = JSON,
    ) -> T:
        answer = await self._send(method, path, body=body, query=query, kind=kind)
        return _decoded(msgspec.json.Decoder(type_), answer, f"{method} {path}")

    async def _send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        kind: str = JSON,
    ) -> bytes:
        transport = await self.transport()
        return await transport.send(
            Request(method, path, query or {}, body, kind), seconds=self._request_seconds
        )


def path_of(
    resource: Resource,
    namespace: str | None = None,
    name: str = "",
    subresource: str = "",
) -> str:
    """Return the quoted path of a collection, an object or its subresource."""
    path = resource.path(
        quote(namespace, safe="") if namespace else None,
        quote(name, safe="") if name else None,
    )
    return f"{path}/{subresource}" if subresource else path


def selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    """Return the query of a list or watch; empty selectors are left out."""
    query = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in query.items() if value}


def complete(resource: Resource, body: Wire | Mapping[str, Any]) -> bytes:
    """Encode an object with the apiVersion and kind of its resource."""
    fields = nesting.decode(_fields, msgspec.json.encode(body))
    fields["apiVersion"] = msgspec.Raw(msgspec.json.encode(resource.api_version))
    fields["kind"] = msgspec.Raw(msgspec.json.encode(resource.kind))
    return msgspec.json.encode(fields)


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw, what: str) -> T:
    try:
        return decoding.decode(decoder, body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.UnsupportedError(
            f"{what}: the answer is not of the expected form: {error}",
            reason="AnswerUnreadable",
        ) from error
