# SPDX-License-Identifier: Apache-2.0
"""Write on a Node how far its mode is: label and taint, the condition GPUModeActive, Events.

Called by `reconciler`. Label and taint are one write, on the condition that the Node is still
as it was read; the condition is ours alone (server-side apply), so the kubelet's stay as they are.
The condition of a device plugin goes with its mode, for the plugin may have been killed; and what
the MIG manager has said goes with the last card, for it does not run there any more.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gpudeck.api import conditions, labels
from gpudeck.api.core import Node, NodeCondition, Taint
from gpudeck.api.meta import Meta
from gpudeck.api.resources import NODE
from gpudeck.controller import metrics
from gpudeck.controller.modes import deciding, looking
from gpudeck.controller.modes.deciding import Phase
from gpudeck.kube import recording
from gpudeck.kube.client import Client

SLOW = "ModeChangeSlow"
CHANGED = "ModeChanged"
_WARNINGS = (Phase.UNKNOWN,)
_QUIET = (Phase.NO_CARDS, Phase.WAITING_FOR_TURN, Phase.WAITING_FOR_NODE)
"""What is not told: another default has hundreds of nodes wait at once."""


class Writer:
    """Writes on Nodes."""

    def __init__(self, client: Client, recorder: recording.Recorder) -> None:
        self._client = client
        self._recorder = recorder

    async def mark(self, node: Node, step: deciding.Step) -> bool:
        """Bring label and taint about; returns whether anything was to be written.

        Raises ConflictError if the Node is not as it was read.
        """
        patch = marks(node, step)
        if not patch:
            return False
        meta = node.metadata
        patch.setdefault("metadata", {}).update(uid=meta.uid, resourceVersion=meta.resource_version)
        await self._client.merge_patch(
            NODE, meta.name, patch, Meta, manager=labels.MANAGER_CONTROLLER
        )
        metrics.writes.labels("Node").inc()
        return True

    async def say(self, node: Node, step: deciding.Step, *, is_slow: bool) -> None:
        """Bring the condition about, and tell people when its reason changes."""
        before = condition_of(node)
        now = recording.timestamp()
        after = condition(before, step, now)
        name = node.metadata.name
        for manager in stale(node, step):
            await self._apply(name, {}, manager=manager)
        if before == after:
            return
        said: dict[str, Any] = {"conditions": []}
        if after is not None:
            said["conditions"] = [{**msgspec.to_builtins(after), "lastHeartbeatTime": now}]
        await self._apply(name, said, manager=labels.MANAGER_CONTROLLER)
        self._tell(name, before, step)
        if is_slow and not step.phase.is_settled:
            self._record(name, SLOW, f"The mode has been changing for long. {step.message}")

    async def _apply(self, name: str, status: dict[str, Any], *, manager: str) -> None:
        body = {"metadata": {"name": name}, "status": status}
        await self._client.apply(NODE, body, Meta, manager=manager, subresource="status")
        metrics.writes.labels("Node").inc()

    def _tell(self, name: str, before: NodeCondition | None, step: deciding.Step) -> None:
        was = before.reason if before is not None else None
        if step.phase in _QUIET or was == step.phase:
            return
        if step.phase is not Phase.ACTIVE:
            self._record(name, step.phase, step.message)
        elif before is not None and was not in _QUIET:  # A node that has just come is no news.
            is_same = before.status == conditions.TRUE
            self._record(name, Phase.ACTIVE if is_same else CHANGED, step.message)

    def _record(self, name: str, reason: str, message: str) -> None:
        about = recording.of_node(name)
        is_warning = reason == SLOW or reason in _WARNINGS
        self._recorder.record(about, reason=str(reason), message=message, warning=is_warning)


def marks(node: Node, step: deciding.Step) -> dict[str, Any]:
    """Return the merge patch that brings label and taint about, empty if they are so. Pure."""
    patch: dict[str, Any] = {}
    meta = _of_mig(node) if step.phase is Phase.NO_CARDS else {}
    if (node.metadata.labels or {}).get(labels.ACTIVE_MODE) != step.active:
        meta.setdefault("labels", {})[labels.ACTIVE_MODE] = step.active
    if meta:
        patch["metadata"] = meta
    if looking.taint_of(node) != step.taint:
        known = (node.spec.taints if node.spec else None) or []
        taints = [each for each in known if each.key != labels.MODE_CHANGE]
        if step.taint is not None:
            taint = Taint(key=labels.MODE_CHANGE, value=step.taint, effect="NoSchedule")
            taints.append(taint)
        patch["spec"] = {"taints": taints}
    return patch


def condition(before: NodeCondition | None, step: deciding.Step, now: str) -> NodeCondition | None:
    """Return what the condition is to be; None for a node without cards. Pure."""
    if step.phase is Phase.NO_CARDS:
        return None
    status = conditions.TRUE if step.phase.is_settled else conditions.FALSE
    is_same = before is not None and before.status == status
    return NodeCondition(
        type=conditions.MODE_ACTIVE,
        status=status,
        reason=str(step.phase),
        message=step.message,
        last_transition_time=before.last_transition_time if before and is_same else now,
    )


def stale(node: Node, step: deciding.Step) -> list[str]:
    """The field managers that are done with the node and have left a condition. Pure."""
    over = {}
    if step.active == labels.MODE_DRA or step.phase is Phase.NO_CARDS:
        over[conditions.PLUGIN_CONFIGURED] = labels.MANAGER_DEVICE_PLUGIN
    if step.phase is Phase.NO_CARDS:
        over[conditions.MIG_CONFIGURED] = labels.MANAGER_MIG_MANAGER
    found = (node.status.conditions if node.status else None) or ()
    return [over[each.type] for each in found if each.type in over]


def _of_mig(node: Node) -> dict[str, Any]:
    """What the MIG manager has said of cards that are gone, as a patch that removes it.

    Not in the middle of a change: there it is what the node is given back by.
    """
    meta, taints = node.metadata, (node.spec.taints if node.spec else None) or ()
    if any(each.key == labels.MIG_TAINT for each in taints):
        return {}
    return {
        place: {name: None}
        for place, known, name in (
            ("labels", meta.labels, labels.MIG_STATE),
            ("annotations", meta.annotations, labels.MIG_CHANGE),
        )
        if name in (known or {})
    }


def condition_of(node: Node) -> NodeCondition | None:
    """Return our condition of a Node."""
    found = (node.status.conditions if node.status else None) or ()
    return next((each for each in found if each.type == conditions.MODE_ACTIVE), None)


def with_reasons(
    step: deciding.Step, blocked: dict[Any, str], *, slow_minutes: float, is_ready: bool = True
) -> deciding.Step:
    """Return the step with what stands in its way in its sentence. Pure."""
    message = step.message
    reasons = [f"{pod} is not evicted: {why}" for pod, why in sorted(blocked.items())]
    if reasons:
        more = f" So it is with {len(reasons) - 1} more." if len(reasons) > 1 else ""
        message += f" {reasons[0]}{more}"
    if not is_ready and not step.phase.is_settled:
        message += " It goes on once the node is Ready, and no other node waits for it."
    if slow_minutes and not step.phase.is_settled:
        message += f" It has taken more than {slow_minutes:g} min; nothing is forced."
    return msgspec.structs.replace(step, message=message)
