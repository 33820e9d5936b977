# SPDX-License-Identifier: Apache-2.0
"""The Node object: owner of the PhysicalGPUs, and bearer of the label with the cards' vendor.

The label is written by server-side apply. When the last card is gone, applying
without the label removes it only if it is ours: one that a person or another program
set stays (case-23). The UID in each write keeps it from making a Node that is gone.
"""

from __future__ import annotations

from gpudeck import errors, logs
from gpudeck.agent import metrics
from gpudeck.api import labels
from gpudeck.api.meta import Meta, ObjectMeta, OwnerReference
from gpudeck.api.resources import NODE
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue

_KEY = "label"
_log = logs.get(__name__)


class Node:
    """This process's Node."""

    def __init__(self, api: Client, name: str, *, seconds: float) -> None:
        self.name = name
        self._api = api
        self._seconds = seconds
        self._uid = ""
        self._vendor: str | None = None
        self._is_shown = False
        self._queue = Queue("node", limit_seconds=30.0)

    async def owner(self) -> OwnerReference:
        """The owner reference of the node's objects. UnavailableError while there is no Node."""
        uid = self._uid or (await self._read()).metadata.uid or ""
        return OwnerReference(api_version="v1", kind="Node", name=self.name, uid=uid)

    def forget(self) -> None:
        """Read the Node again before it is next used: it may have been made anew."""
        self._uid = ""

    def show(self, vendor: str | None) -> None:
        """Let the label say `vendor`; None = no label. Before the first call it is left alone."""
        if not self._is_shown or vendor != self._vendor:
            self._is_shown, self._vendor = True, vendor
            self._queue.add(_KEY)

    async def run(self) -> None:
        """Keep the label, for ever."""
        await self._queue.work(self._reconcile)

    async def _reconcile(self, _key: str) -> float:
        node = await self._read()
        current = (node.metadata.labels or {}).get(labels.VENDOR)
        if current != self._vendor:
            _log.info("Setting the node's vendor label", before=current, now=self._vendor)
            wanted = {labels.VENDOR: self._vendor} if self._vendor is not None else None
            body = Meta(metadata=ObjectMeta(name=self.name, uid=node.metadata.uid, labels=wanted))
            await self._api.apply(NODE, body, Meta, manager=labels.MANAGER_NODE_AGENT)
            metrics.writes.labels("node label").inc()
        return self._seconds

    async def _read(self) -> Meta:
        try:
            node = await self._api.get(NODE, self.name, Meta)
        except errors.NotFoundError as error:
            raise errors.UnavailableError(
                f"Node {self.name} is not there", reason="NodeNotFound"
            ) from error
        self._uid = node.metadata.uid or ""
        return node
