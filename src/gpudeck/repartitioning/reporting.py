# SPDX-License-Identifier: Apache-2.0
"""What became of the config, on the Node: a condition for programs, Events for people.

The condition MigConfigured is ours alone (server-side apply), so the kubelet's conditions
stay as they are. It names the field where a config is wrong.
"""

from __future__ import annotations

from typing import Any

from gpudeck import errors
from gpudeck.api import conditions, labels
from gpudeck.api.core import Node
from gpudeck.api.meta import Meta
from gpudeck.api.resources import NODE
from gpudeck.kube import recording
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue
from gpudeck.repartitioning import metrics, stepping

_KEY = "condition"
_PASSING = frozenset({"Looking", "GoingOn"})
"""Reasons that are not worth a condition: another follows at once."""
_QUIET = frozenset({"NotChosen", "ModeOpen"})
"""Reasons that are not worth an Event."""


class Reporter:
    """Tells the Node; `run` and the recorder's must run."""

    def __init__(self, api: Client, node: str, recorder: recording.Recorder) -> None:
        self._api = api
        self._node = node
        self._recorder = recorder
        self._about = recording.of_node(node)
        self._wanted: stepping.Said | None = None
        self._since = ""
        self._uid: str | None = None
        self._queue = Queue("node condition", limit_seconds=30.0)

    def show(self, said: stepping.Said, node: Node) -> None:
        """Say what holds now; `node` says what was said by an earlier process.

        Each thing is told once while it lasts.
        """
        if self._wanted is None or node.metadata.uid != self._uid:  # It may be made anew.
            self._uid = node.metadata.uid
            self._wanted = None
            self._remember(node)
        if said == self._wanted or said.reason in _PASSING:
            return
        before, self._wanted = self._wanted, said
        if before is None or said.status != before.status:
            self._since = recording.timestamp()
        metrics.configured.set(said.status == conditions.TRUE)
        if said.reason not in _QUIET:
            self._recorder.record(
                self._about,
                reason=said.reason if "Mig" in said.reason else f"Mig{said.reason}",
                message=said.message,
                warning=said.reason not in stepping.ORDINARY,
            )
        self._queue.add(_KEY)

    def warn(self, reason: str, message: str) -> None:
        """Tell people what the condition has no room for."""
        self._recorder.record(self._about, reason=reason, message=message, warning=True)

    def _remember(self, node: Node) -> None:
        """Go on from the condition that the Node has."""
        found = (node.status.conditions if node.status else None) or []
        for each in found:
            if each.type == conditions.MIG_CONFIGURED and each.last_transition_time:
                said = stepping.Said(each.status, each.reason or "", each.message or "")
                self._wanted = said
                self._since = each.last_transition_time
                metrics.configured.set(said.status == conditions.TRUE)

    async def run(self) -> None:
        """Keep the condition, for ever."""
        await self._queue.work(self._reconcile)

    async def _reconcile(self, _key: str) -> None:
        said = self._wanted
        if said is None:
            return
        condition = {
            "type": conditions.MIG_CONFIGURED,
            "status": said.status,
            "reason": said.reason,
            "message": said.message,
            "lastHeartbeatTime": recording.timestamp(),
            "lastTransitionTime": self._since,
        }
        body: dict[str, Any] = {
            "metadata": {"name": self._node},
            "status": {"conditions": [condition]},
        }
        try:
            await self._api.apply(
                NODE, body, Meta, manager=labels.MANAGER_MIG_MANAGER, subresource="status"
            )
        except errors.NotFoundError as error:
            # The Node may come later, and no other event would let us try again.
            raise errors.UnavailableError(error.message, reason=error.reason) from error
