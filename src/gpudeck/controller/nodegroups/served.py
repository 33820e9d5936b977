# SPDX-License-Identifier: Apache-2.0
"""The NodeGroups of the cluster, as long as it has that kind.

Deckhouse may be installed after gpudeck, or never. The definition is watched, and the
objects only while it is there: a watch of a kind that nobody serves would fail for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from gpudeck import logs
from gpudeck.api.meta import Meta, ObjectMeta
from gpudeck.api.nodegroups import NodeGroup
from gpudeck.api.resources import CUSTOM_RESOURCE_DEFINITION, NODE_GROUP
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.watching import Change

_log = logs.get(__name__)


class NodeGroups:
    """Follows the objects while there is a definition; `run` must run."""

    def __init__(self, client: Client, changed: Callable[[], None]) -> None:
        """`changed` is called after each change, of an object or of their being served."""
        self._client = client
        self._changed = changed
        name = f"{NODE_GROUP.plural}.{NODE_GROUP.group}"
        self._definitions = Cache(
            client,
            CUSTOM_RESOURCE_DEFINITION,
            Meta,
            field_selector=f"metadata.name={name}",
            keep=_named,
        )
        self._objects: Cache[NodeGroup] | None = None
        self._wake = asyncio.Event()
        self._known = asyncio.Event()
        self.epoch = 0
        """Counts how often it was found out whether the kind is served."""

    @property
    def objects(self) -> Collection[NodeGroup]:
        """What there is; complete once synced."""
        return self._objects.objects.values() if self._objects is not None else ()

    @property
    def is_served(self) -> bool:
        """Whether the cluster has the kind; known once synced."""
        return self._objects is not None

    @property
    def is_synced(self) -> bool:
        """Whether all is known that is served now."""
        if not self._definitions.is_synced or not self._known.is_set():
            return False
        return self._objects is None or self._objects.is_synced

    async def run(self) -> None:
        """Follow, for ever."""
        self._definitions.subscribe(self._defined)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._definitions.run(), name="definition of NodeGroup")
            await self._definitions.synced()
            while True:
                self._wake.clear()
                if self._definitions.objects:
                    await self._follow()
                else:
                    self._known.set()
                    self.epoch += 1
                    self._changed()
                    await self._wake.wait()

    def _defined(self, _: Change[Meta]) -> None:
        self._wake.set()

    async def _follow(self) -> None:
        """Follow the objects until the definition changes."""
        _log.info("NodeGroups are served")
        cache = Cache(self._client, NODE_GROUP, NodeGroup, keep=_trimmed)
        self._objects = cache
        self._known.set()
        self.epoch += 1
        cache.subscribe(lambda _: self._changed())
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(cache.run(), name="NodeGroups"),
                    group.create_task(self._tell_once_listed(cache)),
                ]
                await self._wake.wait()
                for task in tasks:
                    task.cancel()
        finally:
            self._objects = None

    async def _tell_once_listed(self, cache: Cache[NodeGroup]) -> None:
        """An empty list is news too."""
        await cache.synced()
        self._changed()


def _named(found: Meta) -> Meta:
    """The definition's coming and going alone is of interest, and that it is made anew."""
    return Meta(metadata=ObjectMeta(name=found.metadata.name, uid=found.metadata.uid))


def _trimmed(found: NodeGroup) -> NodeGroup:
    meta = found.metadata
    return NodeGroup(metadata=ObjectMeta(name=meta.name, uid=meta.uid), spec=found.spec)
