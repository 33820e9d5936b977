# SPDX-License-Identifier: Apache-2.0
"""Write one PhysicalGPU for each card of the node, and say of the others what became of them.

Each object is compared with a watched copy first, so nothing is written when nothing
has changed, and an edit or deletion by somebody else is put right. Objects fail one
by one: the API server's refusal of one never stops the rest. While the API server is
away the looks at the bus go on, and the latest is written when it is back.
"""

from __future__ import annotations

import asyncio

from gpudeck import logs
from gpudeck.agent import describing, events, metrics, nodes, planning
from gpudeck.agent.scanning import Seen
from gpudeck.api import conditions, labels, names
from gpudeck.api.core import Node
from gpudeck.api.meta import ObjectMeta
from gpudeck.api.resources import PHYSICAL_GPU
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU, PhysicalGPUStatus
from gpudeck.errors import NotFoundError
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue
from gpudeck.kube.recording import timestamp
from gpudeck.kube.watching import Change

AHEAD_SECONDS = 10.0
"""How long an answer to a write counts for more than the watched copy, at most."""
_log = logs.get(__name__)


class Publisher:
    """Keeps the objects of this node's cards."""

    def __init__(self, api: Client, node: nodes.Node, report: events.Events) -> None:
        self.cache = Cache(
            api,
            PHYSICAL_GPU,
            PhysicalGPU,
            label_selector=f"{labels.NODE}={names.node_label(node.name)}",
        )
        self._api = api
        self._node = node
        self._report = report
        self._seen: Seen | None = None
        self._ahead: dict[str, tuple[float, PhysicalGPU]] = {}
        self._queue = Queue("physicalgpus", limit_seconds=30.0)

    def show(self, seen: Seen) -> None:
        """Take a complete look at the bus as the truth from now on."""
        self._seen = seen
        for name in {*seen.inventory.cards, *self.cache.objects}:
            self._queue.add(name)

    async def run(self) -> None:
        """Write for ever; `cache.run` and the Node's must run beside it."""
        await self._node.cache.synced()
        await self.cache.synced()
        self.cache.subscribe(self._changed)
        self._node.cache.subscribe(self._owner_changed)
        await self._queue.work(self._reconcile, workers=4)

    def _changed(self, change: Change[PhysicalGPU]) -> None:
        if change.new is None:
            self._ahead.pop(change.key, None)
        self._queue.add(change.key)

    def _owner_changed(self, change: Change[Node]) -> None:
        """A Node made anew is another owner; with the old one Kubernetes deletes what it owned."""
        old, new = change.old, change.new
        if new is not None and (old is None or old.metadata.uid != new.metadata.uid):
            for name in {*(self._seen.inventory.cards if self._seen else ()), *self.cache.objects}:
                self._queue.add(name)

    async def _reconcile(self, name: str) -> None:
        seen = self._seen
        known = self._known(name)
        if seen is None or (known is not None and known.metadata.deletion_timestamp):
            return
        card = seen.inventory.cards.get(name)
        if card is not None:
            metadata = describing.metadata(
                name, card, node=self._node.owner(), book=seen.book, known=known
            )
            status = describing.status(card, self._node.name, host=seen.host, book=seen.book)
            await self._carry_out(name, planning.present(metadata, status, known), known)
        elif known is not None:
            plan = planning.absent(name, seen.inventory, known, timestamp())
            await self._carry_out(name, plan, known)

    def _known(self, name: str) -> PhysicalGPU | None:
        """The newest copy: the watch may not have seen our own last write yet."""
        watched = self.cache.objects.get(name)
        until, answered = self._ahead.get(name, (0.0, None))
        if answered is None:
            return watched
        is_late = asyncio.get_running_loop().time() > until
        if is_late or (watched is not None and _version(watched) >= _version(answered)):
            del self._ahead[name]
            return watched
        return answered

    async def _carry_out(self, name: str, plan: planning.Plan, known: PhysicalGPU | None) -> None:
        if plan.is_delete:
            await self._delete(name, known)
        if plan.metadata is not None:
            made = await self._apply(PhysicalGPU(metadata=plan.metadata))
            if known is None:
                _log.info("Created the object of a card", name=name)
                self._report.card_found(made)
        if plan.status is not None:
            await self._write_status(name, plan.status, known)

    async def _write_status(
        self, name: str, status: PhysicalGPUStatus, known: PhysicalGPU | None
    ) -> None:
        before = known.status.conditions if known is not None and known.status else None
        status.conditions = conditions.merge(before, status.conditions or (), timestamp())
        body = PhysicalGPU(metadata=ObjectMeta(name=name), status=status)
        try:
            await self._apply(body, subresource="status")
        except NotFoundError:
            # Deleted meanwhile: the watch says so too, and a card that is there gets another.
            _log.debug("The object of a card is gone", name=name)
            self._ahead.pop(name, None)
            return
        if known is not None:
            self._tell(known, status)

    async def _apply(self, body: PhysicalGPU, *, subresource: str = "") -> PhysicalGPU:
        answer = await self._api.apply(
            PHYSICAL_GPU,
            body,
            PhysicalGPU,
            manager=labels.MANAGER_NODE_AGENT,
            subresource=subresource,
        )
        until = asyncio.get_running_loop().time() + AHEAD_SECONDS
        self._ahead[body.metadata.name] = (until, answer)
        metrics.writes.labels(subresource or "metadata").inc()
        return answer

    def _tell(self, known: PhysicalGPU, status: PhysicalGPUStatus) -> None:
        old = conditions.find(
            known.status.conditions if known.status else None, conditions.DISCOVERED
        )
        new = conditions.find(status.conditions, conditions.DISCOVERED)
        if new is None or (old is not None and old.status == new.status):
            return
        _log.info("A card changed", name=known.metadata.name, reason=new.reason)
        if new.status != conditions.TRUE:
            self._report.card_lost(known, new.reason, new.message)
        elif old is not None:
            self._report.card_returned(known)

    async def _delete(self, name: str, known: PhysicalGPU | None) -> None:
        uid = known.metadata.uid if known is not None else None
        try:
            await self._api.delete(PHYSICAL_GPU, name, uid=uid)
        except NotFoundError:
            return
        _log.info("Deleted the object of a card that is gone and was never held", name=name)
        metrics.writes.labels("deletion").inc()


def _version(gpu: PhysicalGPU) -> int:
    """The resource version as a number: of one object it grows (etcd; promised since 1.35)."""
    text = gpu.metadata.resource_version or ""
    return int(text) if text.isascii() and text.isdigit() else 0
