# SPDX-License-Identifier: Apache-2.0
"""Bring each Node with cards into the mode that is wanted of it, one step after the other.

Called by the process controller, whose leader runs `lead`. A Node is decided upon as the API
server has it at that moment. Nothing is remembered between two looks that matters: killed
anywhere, the next look goes on.
"""

from __future__ import annotations

import dataclasses
import datetime

from gpudeck import errors, logs
from gpudeck.api import labels, names
from gpudeck.api.core import Node
from gpudeck.api.resources import NODE
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller.draining import eviction
from gpudeck.controller.modes import deciding, looking, unoffered, writing
from gpudeck.kube import evicting
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue
from gpudeck.kube.watching import Change

PAUSES = ((60.0, 1.0), (600.0, 5.0))
"""Until a change is so old it is looked at so often, in seconds; then each LAST_SECONDS."""
LAST_SECONDS = 15.0
_log = logs.get(__name__)


@dataclasses.dataclass(frozen=True)
class Policy:
    """What the administrator of the cluster decides about modes."""

    default: str
    changes: int
    """Nodes without a wish of their own that change at the same time."""
    slow_seconds: float


class Modes:
    """The modes of all Nodes; `nodes.run` must run in every replica, `lead` in the leader."""

    def __init__(
        self,
        client: Client,
        nodes: Cache[Node],
        looker: looking.Looker,
        writer: writing.Writer,
        *,
        policy: Policy,
    ) -> None:
        self.queue = Queue("modes", limit_seconds=30.0)
        self._client = client
        self._nodes = nodes
        self._looker = looker
        self._writer = writer
        self._policy = policy
        self._evictor = eviction.Evictor(client)
        self._changing: set[str] = set()
        """Nodes that follow a new default and are Ready, as the cache has them."""
        self._started: set[str] = set()
        """Nodes that follow a new default, of which the cache may not know yet."""
        nodes.subscribe(self._changed)

    async def lead(self) -> None:
        """Reconcile for ever."""
        await self.queue.work(self.reconcile, workers=4)

    def _changed(self, change: Change[Node]) -> None:
        node = change.new
        if node is None or not looking.is_ready(node):
            self._changing.discard(change.key)
            self._leave(change.key)  # Its pods neither end nor begin.
        elif looking.taint_of(node) is not None and not _has_wish(node):
            self._changing.add(change.key)
        else:
            self._changing.discard(change.key)
        self.queue.add(change.key)

    def card_changed(self, change: Change[PhysicalGPU]) -> None:
        """Look at a card's node if the card is offered from now on, or no longer."""
        card = change.new or change.old
        if card is not None and unoffered.of_card(change.old) != unoffered.of_card(change.new):
            self.look_at(card)

    def look_at(self, card: PhysicalGPU) -> None:
        """Look at a card's node."""
        label = (card.metadata.labels or {}).get(labels.NODE, "")
        if label in self._nodes.objects:
            self.queue.add(label)
        else:  # A long name is cut there.
            for name in self._nodes.objects:
                if names.node_label(name) == label:
                    self.queue.add(name)

    async def reconcile(self, name: str) -> float | None:
        """Take a Node as far as it goes now; returns when to look again, in seconds."""
        seen = self._nodes.objects.get(name)
        if seen is not None and self._is_done(seen):
            self._leave(name)  # Its last write may have been done without an answer.
            return None
        try:
            # The cache may lag, and keeps nothing of a Node that has no cards any more.
            node = await self._client.get(NODE, name, Node)
            return await self._advance(node)
        except errors.NotFoundError:
            self._leave(name)
            return None

    def _is_done(self, node: Node) -> bool:
        """Whether a Node says already all that it is to say."""
        known, taint = node.metadata.labels or {}, looking.taint_of(node)
        step = deciding.settled(
            known,
            taint,
            self._policy.default,
            may_start=self._may_start(node.metadata.name, known),
            is_ready=looking.is_ready(node),
            nothing=self._looker.nothing(node.metadata.name),
        )
        before = writing.condition_of(node)
        if step is None or writing.marks(node, step) or writing.stale(node, step):
            return False
        return writing.condition(before, step, "") == before

    async def _advance(self, node: Node) -> float | None:
        name, known = node.metadata.name, node.metadata.labels or {}
        seconds = _elapsed(node)
        is_slow, is_ready = seconds > self._policy.slow_seconds, looking.is_ready(node)
        step = deciding.settled(
            known,
            looking.taint_of(node),
            self._policy.default,
            may_start=self._may_start(name, known),
            is_ready=is_ready,
            nothing=self._looker.nothing(name),
        )
        if step is None:
            # A node that has just come changes nothing, and may wait for somebody else's plugin.
            changes = labels.ACTIVE_MODE in known or looking.taint_of(node) is not None
            if labels.MODE in known or not is_ready:
                self._leave(name)  # Nobody waits for it, however long it takes.
            elif changes:
                self._started.add(name)
            view = await self._looker.look(node)
            step = deciding.decide(view, self._policy.default, is_late=is_slow)
        if await self._writer.mark(node, step):
            _log.info("Mode of a node", node=name, phase=step.phase, mode=step.active)
        blocked: dict[evicting.Pod, str] = {}
        try:
            blocked = await self._evictor.evict(name, step.evict)
        finally:
            minutes = self._policy.slow_seconds / 60 if is_slow else 0.0
            told = writing.with_reasons(step, blocked, slow_minutes=minutes, is_ready=is_ready)
            await self._writer.say(node, told, is_slow=is_slow)
        if step.taint is None:  # Also of a node that waits for somebody else's plugin to go.
            self._leave(name)
        return None if step.phase.is_settled else _pause(seconds)

    def _leave(self, name: str) -> None:
        """A Node is done: it is the turn of those that wait."""
        if name in self._started:
            self._started.discard(name)
            for other, node in self._nodes.objects.items():
                said = writing.condition_of(node)
                if said is not None and said.reason == deciding.Phase.WAITING_FOR_TURN:
                    self.queue.add(other)

    def _may_start(self, name: str, known: dict[str, str]) -> bool:
        """Whether a Node that follows a new default may begin; one with a wish always may."""
        if labels.MODE in known:
            return True
        return len((self._changing | self._started) - {name}) < self._policy.changes


def _has_wish(node: Node) -> bool:
    return labels.MODE in (node.metadata.labels or {})


def _elapsed(node: Node) -> float:
    """Return for how long the node's mode has not been what is wanted, in seconds."""
    said = writing.condition_of(node)
    if said is None or said.status != "False":
        return 0.0
    try:
        since = datetime.datetime.fromisoformat(said.last_transition_time or "")
    except ValueError:
        return 0.0
    if since.tzinfo is None:
        since = since.replace(tzinfo=datetime.UTC)
    return (datetime.datetime.now(datetime.UTC) - since).total_seconds()


def _pause(seconds: float) -> float:
    return next((pause for limit, pause in PAUSES if seconds < limit), LAST_SECONDS)
