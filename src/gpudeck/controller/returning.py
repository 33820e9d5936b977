# SPDX-License-Identifier: Apache-2.0
"""Give nodes back that mig-manager has left in the middle of a change and that has no successor.

Called by the process controller, whose leader runs `lead`, where the chart deploys no
mig-manager; else the next one goes on by itself, and nothing here acts. What belongs to a change
is told by the change's own marks on the Node. Partitions of cards stay as they are.
"""

from __future__ import annotations

from gpudeck import errors, logs
from gpudeck.api import conditions, labels
from gpudeck.api.core import Node, OwnedNode
from gpudeck.api.meta import Meta
from gpudeck.api.resources import NODE
from gpudeck.controller import metrics
from gpudeck.controller.draining import reconciler as draining
from gpudeck.kube import recording
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue
from gpudeck.kube.watching import Change
from gpudeck.mig import nodes as marks

REASON = "MigChangeLeft"
MESSAGE = (
    "nvidia-mig-manager is not deployed any more (migManager.enabled: false), and had not finished "
    "a change of partitions: the node is in service again, and its cards have the partitions that "
    "were made till then"
)
LOOK_SECONDS = 5.0
"""How often it is looked whether the last pod of mig-manager has ended."""
_MIG_MANAGER = "nvidia-mig-manager"
"""Component of its pods."""
_log = logs.get(__name__)


class Returning:
    """Gives Nodes back; `nodes.run` must run beside it."""

    def __init__(
        self, client: Client, recorder: recording.Recorder, nodes: Cache[Node], namespace: str
    ) -> None:
        """`namespace` is where mig-manager was."""
        self.queue = Queue("returning")
        self._client = client
        self._recorder = recorder
        self._namespace = namespace
        nodes.subscribe(self._changed)

    async def lead(self) -> None:
        """Reconcile for ever."""
        await self.queue.work(self.reconcile)

    def _changed(self, change: Change[Node]) -> None:
        if change.new is not None and _is_marked(change.new):
            self.queue.add(change.key)

    async def reconcile(self, name: str) -> float | None:
        """Give a Node back, if it has to be; returns when to look again, in seconds."""
        try:
            node = await self._client.get(NODE, name, OwnedNode)
            if not marks.is_taken(node):
                return None
            if await self._is_attended(name):
                return LOOK_SECONDS
            await self._give_back(node)
        except errors.NotFoundError:
            return None
        return None

    async def _is_attended(self, name: str) -> bool:
        return any(
            each.metadata.namespace == self._namespace
            and (each.metadata.labels or {}).get(labels.COMPONENT) == _MIG_MANAGER
            for each in await draining.pods_of(self._client, name)
        )

    async def _give_back(self, node: OwnedNode) -> None:
        """Take the marks off; first what it has said, for without marks nobody comes again."""
        name = node.metadata.name
        said = (node.status.conditions if node.status else None) or ()
        if any(each.type == conditions.MIG_CONFIGURED for each in said):
            body = {"metadata": {"name": name, "uid": node.metadata.uid}, "status": {}}
            manager = labels.MANAGER_MIG_MANAGER
            applied = await self._client.apply(
                NODE, body, OwnedNode, manager=manager, subresource="status"
            )
            metrics.writes.labels(NODE.kind).inc()
            node = applied
        patch = marks.patch(node, marks.Wish())
        if patch is None:
            return
        await self._client.merge_patch(NODE, name, patch, Meta, manager=labels.MANAGER_CONTROLLER)
        metrics.writes.labels(NODE.kind).inc()
        _log.info("Node given back that mig-manager had left", node=name)
        self._recorder.record(recording.of_node(name), reason=REASON, message=MESSAGE, warning=True)


def _is_marked(node: Node) -> bool:
    taints = (node.spec.taints if node.spec else None) or ()
    return labels.MIG_CHANGE in (node.metadata.annotations or {}) or any(
        each.key == labels.MIG_TAINT for each in taints
    )
