# SPDX-License-Identifier: Apache-2.0
"""Keep the label of the active mode on each Node with cards.

Called by the process controller, whose leader runs `lead`. A Node is decided upon as the API
server has it at that moment, and written on the condition that it is still so.
"""

from __future__ import annotations

from gpudeck import errors, logs
from gpudeck.api import labels
from gpudeck.api.meta import Meta, ObjectMeta
from gpudeck.api.resources import NODE
from gpudeck.controller import metrics
from gpudeck.controller.modes import deciding
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue
from gpudeck.kube.watching import Change

_KEPT = (labels.VENDOR, labels.MODE, labels.ACTIVE_MODE)
_log = logs.get(__name__)


class Modes:
    """The modes of all Nodes; `cache.run` must run in every replica, `lead` in the leader."""

    def __init__(self, client: Client, default: str) -> None:
        self.cache = Cache(client, NODE, Meta, keep=kept)
        self.queue = Queue("modes")
        self._client = client
        self._default = default
        self.cache.subscribe(self._changed)

    async def lead(self) -> None:
        """Reconcile for ever."""
        await self.queue.work(self.reconcile)

    def _changed(self, change: Change[Meta]) -> None:
        self.queue.add(change.key)

    async def reconcile(self, name: str) -> None:
        """Bring the label of one Node about."""
        seen = self.cache.objects.get(name)
        if seen is not None and self._is_settled(seen.metadata):
            return
        try:
            # The cache may lag, and keeps nothing of a Node that has no cards any more.
            node = await self._client.get(NODE, name, Meta)
            if not self._is_settled(node.metadata):
                await self._write(node.metadata)
        except errors.NotFoundError:
            return

    def _is_settled(self, meta: ObjectMeta) -> bool:
        return deciding.label(meta, self._default) == (meta.labels or {}).get(labels.ACTIVE_MODE)

    async def _write(self, meta: ObjectMeta) -> None:
        mode = deciding.label(meta, self._default)
        patch = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "labels": {labels.ACTIVE_MODE: mode},
            }
        }
        await self._client.merge_patch(
            NODE, meta.name, patch, Meta, manager=labels.MANAGER_CONTROLLER
        )
        metrics.writes.labels("Node").inc()
        _log.info("Set the mode of a node", node=meta.name, mode=mode)


def kept(node: Meta) -> Meta | None:
    """Return what is used of a Node; None if nothing of it concerns modes."""
    found = node.metadata
    known = {key: value for key, value in (found.labels or {}).items() if key in _KEPT}
    if not known.keys() & {labels.VENDOR, labels.ACTIVE_MODE}:
        return None
    return Meta(metadata=ObjectMeta(name=found.name, uid=found.uid, labels=known))
