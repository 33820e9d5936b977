# SPDX-License-Identifier: Apache-2.0
"""Obey the annotation gpu.deckhouse.io/drain of Nodes, and say what stands in the way.

Called by the process controller, whose leader runs `lead`. Nothing is remembered that the
Node and its pods do not say, so a replica that takes over goes on where the other was. How
long is too long is for whoever asks to decide.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpudeck import errors
from gpudeck.api import core, labels
from gpudeck.api.core import Node, Pod
from gpudeck.api.meta import Meta
from gpudeck.api.resources import NODE, POD
from gpudeck.controller import metrics
from gpudeck.controller.draining import choosing, eviction, requests
from gpudeck.kube import evicting, recording
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue
from gpudeck.kube.watching import Change

LOOK_SECONDS = 1.0
"""How often it is looked which pods are left, while there are some."""
AGAIN_SECONDS = 30.0
"""The same while all that is left is what a Node does not tell: pods that are passed over may end,
and others come, also under the name of one that was named without its UID."""
SHOWN = 3
"""Pods that a sentence names."""


class Draining:
    """Evicts what Nodes ask for; `nodes.run` must run beside it."""

    def __init__(self, client: Client, recorder: recording.Recorder, nodes: Cache[Node]) -> None:
        self.queue = Queue("draining")
        self._client = client
        self._recorder = recorder
        self._nodes = nodes
        self._evictor = eviction.Evictor(client)
        nodes.subscribe(self._changed)

    async def lead(self) -> None:
        """Reconcile for ever."""
        await self.queue.work(self.reconcile, workers=4)

    def _changed(self, change: Change[Node]) -> None:
        before, after = _notes(change.old), _notes(change.new)
        if before != after or labels.DRAIN in after:
            self.queue.add(change.key)

    async def reconcile(self, name: str) -> float | None:
        """Ask for the evictions that a Node wants; returns when to look again, in seconds."""
        seen = self._nodes.objects.get(name)
        notes = _notes(seen)
        if not notes:
            self._evictor.forget(name)
            return None
        if labels.DRAIN not in notes:
            self._evictor.forget(name)
            await self._say(name, notes, "")
            return None
        try:
            request = requests.read(notes[labels.DRAIN])
        except errors.InvalidError as error:
            await self._say(name, notes, error.message, reason=error.reason)
            return None
        pods = await pods_of(self._client, name)
        choice = choosing.choose(name, request, pods)
        blocked = await self._evictor.evict(name, choice.evict)
        text = sentence(request, blocked, choice.passed)
        await self._say(name, notes, text, drained="" if choice.are_left else request.id)
        return pause(request, choice)

    async def _say(
        self,
        name: str,
        notes: dict[str, str],
        text: str,
        *,
        drained: str = "",
        reason: str = "DrainBlocked",
    ) -> None:
        """Write what stands in the way, and whose request is at its end; empty ones go."""
        wanted = {labels.DRAIN_BLOCKED: text, labels.DRAINED: drained}
        news = {key: new or None for key, new in wanted.items() if notes.get(key, "") != new}
        if not news:
            return
        patch = {"metadata": {"annotations": news}}
        try:
            await self._client.merge_patch(
                NODE, name, patch, Meta, manager=labels.MANAGER_CONTROLLER
            )
        except errors.NotFoundError:
            return
        metrics.writes.labels("Node").inc()
        if news.get(labels.DRAIN_BLOCKED):
            about = recording.of_node(name)
            self._recorder.record(about, reason=reason, message=text, warning=True)


def pause(request: requests.Request, choice: choosing.Choice) -> float | None:
    """Return when to look again, in seconds; None if nothing is left to do until the Node changes.

    Whoever asked may be gone for good and its annotation with nobody to remove it.
    """
    if choice.are_left:
        return LOOK_SECONDS
    may_come = request.all or any(not each.uid for each in request.pods or ())
    return AGAIN_SECONDS if choice.passed or may_come else None


async def pods_of(client: Client, node: str) -> list[Pod]:
    """Return the pods that are bound to a node."""
    found = await client.list(POD, core.Pod, field_selector=f"spec.nodeName={node}")
    return found.items


def sentence(
    request: requests.Request, blocked: dict[evicting.Pod, str], passed: Iterable[str]
) -> str:
    """Return what stands in the way of a request, empty if nothing does."""
    reasons = [f"{pod} is not evicted: {why}" for pod, why in sorted(blocked.items())]
    reasons += passed
    if not reasons:
        return ""
    more = f" So it is with {len(reasons) - SHOWN} more." if len(reasons) > SHOWN else ""
    who = request.by or "A process of the node"
    why = f" ({request.why})" if request.why else ""
    return f"{who} waits for pods to go{why}: {' '.join(reasons[:SHOWN])}{more}"


def _notes(node: Node | None) -> dict[str, str]:
    known = node.metadata.annotations if node is not None else None
    return {
        key: text
        for key, text in (known or {}).items()
        if key in (labels.DRAIN, labels.DRAIN_BLOCKED, labels.DRAINED)
    }
