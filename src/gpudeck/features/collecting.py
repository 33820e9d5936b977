# SPDX-License-Identifier: Apache-2.0
"""The role gc: deletes NodeFeatures of Nodes that are gone.

Those that the worker writes are owned by their Node and go with it; this is for those of other
programs. Before a NodeFeature is deleted the API server is asked for the Node itself, so a
cache that lags, or was never filled, deletes nothing.
"""

from __future__ import annotations

import asyncio

from gpudeck import errors, logs
from gpudeck.api import labels, names
from gpudeck.api.meta import Meta, ObjectMeta
from gpudeck.api.resources import NODE, NODE_FEATURE
from gpudeck.features import metrics
from gpudeck.features.settings import Settings
from gpudeck.host import certificates
from gpudeck.kube import serving
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue
from gpudeck.kube.watching import Change

_log = logs.get(__name__)


class Collector:
    """Follows Nodes and the metadata of NodeFeatures."""

    def __init__(self, given: Settings, api: Client) -> None:
        self._settings = given
        self._api = api
        self._nodes = Cache(api, NODE, Meta, keep=_name)
        self._features = Cache(api, NODE_FEATURE, Meta, keep=_name, page=given.page_size)
        self._labels: set[str] = set()
        """What labels say of the names of all Nodes."""
        self._of: dict[str, set[str]] = {}
        """Keys of NodeFeatures by that."""
        self._queue = Queue("gc")

    async def run(self) -> None:
        """Run every part until one of them fails."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run(), name="nodes")
            group.create_task(self._features.run(), name="nodefeatures")
            group.create_task(self._collect(), name="collecting")
            group.create_task(
                serving.serve(
                    self._settings,
                    self._api,
                    text=metrics.text,
                    certificate=certificates.self_signed,
                ),
                name="serving",
            )

    async def _collect(self) -> None:
        await self._nodes.synced()
        await self._features.synced()
        self._nodes.subscribe(self._node_changed)
        self._features.subscribe(self._feature_changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.work(self._reconcile))
            group.create_task(self._sweep())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.collect_seconds)
            for key in self._features.objects:
                self._queue.add(key)

    def _node_changed(self, change: Change[Meta]) -> None:
        label = names.node_label(change.key)
        if change.new is not None:
            self._labels.add(label)
            return
        self._labels.discard(label)
        for key in self._of.get(label, ()):
            self._queue.add(key)

    def _feature_changed(self, change: Change[Meta]) -> None:
        for found, is_there in ((change.old, False), (change.new, True)):
            node = _node_of(found) if found is not None else None
            if not node:
                continue  # Without the label it speaks of no node, and is none of ours.
            keys = self._of.setdefault(node, set())
            (keys.add if is_there else keys.discard)(change.key)
            if not keys:
                del self._of[node]
        if change.new is not None:
            self._queue.add(change.key)

    async def _reconcile(self, key: str) -> None:
        # Most are right as they are, and others must have a turn between them.
        await asyncio.sleep(0)
        found = self._features.objects.get(key)
        node = _node_of(found) if found is not None else None
        if found is None or not node or node in self._labels:
            return
        if await self._exists(node):
            return
        try:
            await self._api.delete(
                NODE_FEATURE,
                found.metadata.name,
                namespace=found.metadata.namespace,
                uid=found.metadata.uid,
            )
        except errors.NotFoundError:
            return
        metrics.deleted.inc()
        _log.info("Deleted the features of a node that is gone", node=node, name=key)

    async def _exists(self, node: str) -> bool:
        if len(node) == names.LABEL_VALUE_LENGTH:  # Perhaps cut: then no Node has that name.
            nodes = await self._api.list(NODE, Meta)
            return any(names.node_label(each.metadata.name) == node for each in nodes.items)
        try:
            await self._api.get(NODE, node, Meta)
        except errors.NotFoundError:
            return False
        return True


def _name(found: Meta) -> Meta:
    """What is used of a NodeFeature or a Node, which may be large."""
    meta = found.metadata
    node = (meta.labels or {}).get(labels.FEATURES_NODE)
    return Meta(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            labels={labels.FEATURES_NODE: node} if node is not None else None,
        )
    )


def _node_of(found: Meta) -> str | None:
    return (found.metadata.labels or {}).get(labels.FEATURES_NODE)
