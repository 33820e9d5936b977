# SPDX-License-Identifier: Apache-2.0
"""The Node object: owner of the PhysicalGPUs, and bearer of the label with the cards' vendor.

The Node is watched, so a label that somebody removes or overwrites, and a Node that is
made anew, are put right at once: without the label the node has no adapter. The label
is written by server-side apply. When the last card is gone, applying without the label
removes it only if it is ours: one that a person or another program set stays (case-23). A
node whose partitions are being changed keeps it until the MIG manager, which runs by it, has
given the node back: cards that are reset together may all be gone for a moment.
The UID in each write keeps it from making a Node that is gone.
"""

from __future__ import annotations

import asyncio

from gpudeck import errors, logs
from gpudeck.agent import metrics
from gpudeck.api import core, labels
from gpudeck.api.meta import Meta, ObjectMeta, OwnerReference
from gpudeck.api.resources import NODE
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue
from gpudeck.kube.watching import Change

_KEY = "label"
WRITE_SECONDS = 1.0
"""Shortest time between two writes, lest one who also keeps the label gets a storm as answer."""
_log = logs.get(__name__)


class Node:
    """This process's Node; `cache.run` must run beside it."""

    def __init__(self, api: Client, name: str) -> None:
        self.name = name
        self.cache = Cache(
            api, NODE, core.Node, field_selector=f"metadata.name={name}", keep=_trimmed
        )
        """The Node by its name, with its UID, the vendor label and one taint only."""
        self._api = api
        self._vendor: str | None = None
        self._is_shown = False
        self._not_before = 0.0
        self._queue = Queue("node", limit_seconds=30.0)

    def owner(self) -> OwnerReference:
        """The owner reference of the node's objects. UnavailableError while there is no Node."""
        node = self.cache.objects.get(self.name)
        if node is None:
            raise errors.UnavailableError(f"Node {self.name} is not there", reason="NodeNotFound")
        uid = node.metadata.uid or ""
        return OwnerReference(api_version="v1", kind="Node", name=self.name, uid=uid)

    def show(self, vendor: str | None) -> None:
        """Let the label say `vendor`; None = no label. Before the first call it is left alone."""
        if not self._is_shown or vendor != self._vendor:
            self._is_shown, self._vendor = True, vendor
            self._queue.add(_KEY)

    async def run(self) -> None:
        """Keep the label, for ever."""
        await self.cache.synced()
        self.cache.subscribe(self._changed)
        await self._queue.work(self._reconcile)

    def _changed(self, _change: Change[core.Node]) -> None:
        self._queue.add(_KEY)

    async def _reconcile(self, _key: str) -> float | None:
        node = self.cache.objects.get(self.name)
        if node is None or not self._is_shown:
            return None  # The watch tells when there is a Node, `show` what it is to say.
        current = (node.metadata.labels or {}).get(labels.VENDOR)
        if current == self._vendor:
            return None
        if self._vendor is None and node.spec is not None and node.spec.taints:
            return None  # The watch tells when the taint goes.
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before:
            return self._not_before - loop.time()
        _log.info("Setting the node's vendor label", before=current, now=self._vendor)
        wanted = {labels.VENDOR: self._vendor} if self._vendor is not None else None
        body = Meta(metadata=ObjectMeta(name=self.name, uid=node.metadata.uid, labels=wanted))
        await self._api.apply(NODE, body, Meta, manager=labels.MANAGER_NODE_AGENT)
        self._not_before = loop.time() + WRITE_SECONDS
        metrics.writes.labels("node label").inc()
        return None


def _trimmed(node: core.Node) -> core.Node:
    """What is used of a Node, so that the kubelet's reports of its state wake nobody."""
    found = node.metadata
    vendor = (found.labels or {}).get(labels.VENDOR)
    kept = {labels.VENDOR: vendor} if vendor is not None else None
    taints = (node.spec.taints if node.spec else None) or ()
    return core.Node(
        metadata=ObjectMeta(name=found.name, uid=found.uid, labels=kept),
        spec=core.NodeSpec(taints=[each for each in taints if each.key == labels.MIG_TAINT]),
    )
