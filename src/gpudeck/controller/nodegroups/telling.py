# SPDX-License-Identifier: Apache-2.0
"""What keeps a Node from following its group, on the Node: condition NodeGroupFollowed, Events.

Called by `reconciler` for each node. The condition is there only while something is wrong, for a
group that is followed is told by the node's labels; it is ours alone (server-side apply).
"""

from __future__ import annotations

from typing import Any

import msgspec

from gpudeck import errors
from gpudeck.api import conditions, labels
from gpudeck.api.core import Node, NodeCondition
from gpudeck.api.meta import Meta
from gpudeck.api.resources import NODE
from gpudeck.controller import events, metrics
from gpudeck.controller.nodegroups import groups
from gpudeck.kube import recording
from gpudeck.kube.client import Client


class Teller:
    """Writes the condition of Nodes."""

    def __init__(self, client: Client, report: events.Events) -> None:
        self._client = client
        self._report = report

    async def tell(self, node: Node, problem: groups.Problem | None) -> None:
        """Bring the condition about, and tell people what is new of it."""
        before, now = condition_of(node), recording.timestamp()
        after = condition(before, problem, now)
        if before == after:
            return
        said: dict[str, Any] = {}
        if after is not None:
            said["conditions"] = [{**msgspec.to_builtins(after), "lastHeartbeatTime": now}]
        name = node.metadata.name
        body = {"metadata": {"name": name, "uid": node.metadata.uid}, "status": said}
        try:
            await self._client.apply(
                NODE, body, Meta, manager=labels.MANAGER_NODE_GROUPS, subresource="status"
            )
        except errors.NotFoundError:
            return  # The Node is gone; one that is made anew comes by the watch.
        metrics.writes.labels(NODE.kind).inc()
        if problem is not None:
            self._report.refused(recording.of_node(name), problem.reason, problem.message)


def condition(
    before: NodeCondition | None, problem: groups.Problem | None, now: str
) -> NodeCondition | None:
    """Return what the condition is to be; None where nothing is wrong. Pure."""
    if problem is None:
        return None
    return NodeCondition(
        type=conditions.NODE_GROUP_FOLLOWED,
        status=conditions.FALSE,
        reason=problem.reason,
        message=problem.message,
        last_transition_time=before.last_transition_time if before else now,
    )


def condition_of(node: Node) -> NodeCondition | None:
    """Return our condition of a Node."""
    found = (node.status.conditions if node.status else None) or ()
    return next((each for each in found if each.type == conditions.NODE_GROUP_FOLLOWED), None)
