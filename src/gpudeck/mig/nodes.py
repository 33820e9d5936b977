# SPDX-License-Identifier: Apache-2.0
"""What a Node says that matters to its partitions, and what is to be written to it. Pure.

Called by mig-manager, and by who gives a Node back that it has left. Of a Node it changes the
state label, the labels that pause workloads, one taint, whether it is cordoned, and three
annotations; everything else is other people's. A workload's label is only given back while it
still says that it is paused, so a label that a person has set meanwhile stays; and only who has
cordoned the node uncordons it. Who that was the API server knows, so it is known also where
somebody has removed the record of the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gpudeck.api import labels
from gpudeck.api.core import OwnedNode, Taint
from gpudeck.mig import progress

PAUSED = labels.PAUSED_FOR_MIG
TRUE = "true"
OURS = ("device-plugin", "gpu-feature-discovery")
"""They run where their label is not there, too."""
DEPLOYED = (*OURS, "dcgm", "dcgm-exporter", "nvsm", "client")
"""Workloads that have cards open, as their labels name them."""
_CONTAINERS = {
    "device-plugin": ("nvidia-device-plugin-ctr", "nvidia-device-plugin"),
    "gpu-feature-discovery": ("gpu-feature-discovery-ctr", "gpu-feature-discovery"),
    "dcgm": ("nvidia-dcgm", "nvidia-dcgm-ctr"),
    "dcgm-exporter": ("exporter", "nvidia-dcgm-exporter"),
    "nvsm": ("nvsm",),
    "client": (),  # Anybody's own; what their containers are called, nobody knows.
}
"""Names of the containers of each, by which the kubelet tells whether they have ended."""
CLIENT = f"{labels.DEPLOY}client"
PLUGIN = f"{labels.DEPLOY}device-plugin"
DOMAIN = "nvidia.com/"
"""Of what the device plugin offers."""
BY = "mig-manager"
TAINT = Taint(key=labels.MIG_TAINT, value=TRUE, effect="NoSchedule")
MOST_PODS = 200
"""Asked to go at a time; the others follow when some have gone."""


_READ = frozenset(
    {
        labels.MIG_CONFIG,
        labels.MIG_STATE,
        labels.MIG_CHANGE,
        labels.ACTIVE_MODE,
        labels.DRAIN,
        labels.DRAIN_BLOCKED,
        labels.DRAINED,
        labels.DISRUPTION_REQUIRED,
        labels.DISRUPTION_APPROVED,
    }
)


class Pod(msgspec.Struct, frozen=True, order=True):
    """A pod as the kubelet names it."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a Node."""

    name: str = ""
    uid: str = ""
    config: str = ""
    state: str = ""
    mode: str = ""
    """device-plugin, dra, or empty while the controller has not said."""
    deploy: Mapping[str, str] = {}
    """The labels of `DEPLOYED` that are there, by full name."""
    record: progress.Record | None = None
    drain: str = ""
    blocked: str = ""
    """Why pods that are asked to go do not."""
    drained: str = ""
    """Which request the controller has seen to its end."""
    is_cordoned: bool = False
    is_cordoned_by_us: bool = False
    offers: bool = False
    """The kubelet says that there are cards or parts of them for pods."""
    changes_mode: bool = False
    """The controller is changing how its cards are handed out, and this mode has not begun."""
    asks_reboot: bool = False
    we_ask_reboot: bool = False
    may_reboot: bool = False


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the Node is to say of it. Without a record the node is in service."""

    record: progress.Record | None = None
    state: str = ""
    drain: tuple[Pod, ...] = ()
    empty: str = ""
    """All pods are to go; the name of that request."""
    why: str = ""
    """Why these pods are to go."""


def _is_of_another_mode(taint: Taint, known: Mapping[str, str]) -> bool:
    """Whether the controller changes the mode; not where it only waits until cards are offered.

    Cards in MIG mode without a partition are not, so then it waits for this process.
    """
    begins = taint.value == known.get(labels.ACTIVE_MODE) == labels.MODE_DEVICE_PLUGIN
    return taint.key == labels.MODE_CHANGE and not begins


def wish(record: progress.Record, **more: Any) -> Wish:
    """What belongs to a record."""
    return Wish(record=record, state=record.state, **more)


def is_read_taint(taint: Taint) -> bool:
    """Whether a taint is looked at."""
    return taint.key in (TAINT.key, labels.MODE_CHANGE)


def is_read(name: str) -> bool:
    """Whether a label or an annotation of that name is looked at."""
    return name in _READ or name.startswith(labels.DEPLOY)


def seen(node: OwnedNode) -> Seen:
    """Read a Node."""
    meta = node.metadata
    found, notes = meta.labels or {}, meta.annotations or {}
    deploy = {labels.DEPLOY + each for each in DEPLOYED}
    taints = (node.spec.taints if node.spec else None) or []
    return Seen(
        name=meta.name,
        uid=meta.uid or "",
        config=found.get(labels.MIG_CONFIG, ""),
        state=found.get(labels.MIG_STATE, ""),
        mode=found.get(labels.ACTIVE_MODE, ""),
        deploy={name: value for name, value in found.items() if name in deploy},
        record=progress.decode(notes.get(labels.MIG_CHANGE, "")),
        drain=_own_drain(notes),
        blocked=notes.get(labels.DRAIN_BLOCKED, ""),
        drained=notes.get(labels.DRAINED, ""),
        is_cordoned=node.spec is not None and bool(node.spec.unschedulable),
        is_cordoned_by_us=labels.MANAGER_MIG_MANAGER in node.cordoned_by(),
        offers=any(
            name.startswith(DOMAIN) and amount != "0"
            for name, amount in ((node.status and node.status.allocatable) or {}).items()
        ),
        changes_mode=any(_is_of_another_mode(each, found) for each in taints),
        asks_reboot=labels.DISRUPTION_REQUIRED in notes,
        we_ask_reboot=notes.get(labels.DISRUPTION_REQUIRED) == BY,
        may_reboot=labels.DISRUPTION_APPROVED in notes,
    )


def _own_drain(notes: Mapping[str, str]) -> str:
    text = notes.get(labels.DRAIN, "")
    try:
        found = msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, RecursionError):
        return ""
    return text if isinstance(found, dict) and found.get("by") == BY else ""


def is_taken(node: OwnedNode) -> bool:
    """Whether a change has something of a Node that is to be given back.

    Of one that has ended nothing is left but its record and the state.
    """
    now = seen(node)
    taints = (node.spec.taints if node.spec else None) or []
    return (
        now.is_cordoned_by_us
        or any(each.key == TAINT.key for each in taints)
        or (now.record is not None and now.record.phase is not progress.Phase.DONE)
    )


def pauses(deploy: Mapping[str, str]) -> dict[str, str]:
    """Return the labels to change so that workloads go, with what they say now."""
    found = {}
    for each in DEPLOYED:
        name = labels.DEPLOY + each
        value = deploy.get(name, "" if each in OURS else None)
        if value in ("", TRUE):
            found[name] = value
    return found


def containers(paused: Iterable[str]) -> frozenset[str]:
    """Names of the containers that go when these labels are changed."""
    found = (_CONTAINERS.get(each.removeprefix(labels.DEPLOY), ()) for each in paused)
    return frozenset(name for names in found for name in names)


def patch(node: OwnedNode, wanted: Wish) -> dict[str, Any] | None:
    """Return the merge patch that lets a Node say what is wanted; None where it does.

    It holds only for the version of the Node that it was made from: it says so.
    """
    now = seen(node)
    given = _deploy(now, wanted) | _state(now, wanted)
    notes = _notes(node.metadata.annotations or {}, now, wanted)
    spec = _taints(node, wanted) | _cordon(now, wanted)
    if not given and not notes and not spec:
        return None
    meta = {"resourceVersion": node.metadata.resource_version}
    body: dict[str, Any] = {"metadata": {**meta, "labels": given, "annotations": notes}}
    if spec:
        body["spec"] = spec
    return body


def _state(now: Seen, wanted: Wish) -> dict[str, str | None]:
    return {labels.MIG_STATE: str(wanted.state) or None} if wanted.state != now.state else {}


def _deploy(now: Seen, wanted: Wish) -> dict[str, str | None]:
    before = now.record.paused if now.record else {}
    after = wanted.record.paused if wanted.record else {}
    changes: dict[str, str | None] = {}
    for each in DEPLOYED:
        name = labels.DEPLOY + each
        value = now.deploy.get(name, "")
        if name in after:
            if value in ("", TRUE):
                changes[name] = PAUSED
        elif value == PAUSED:
            # Of a label whose record was lost only this much is sure: the workload did run.
            changes[name] = before.get(name, TRUE) or None
    return changes


def _notes(before: Mapping[str, str], now: Seen, wanted: Wish) -> dict[str, str | None]:
    record = progress.encode(wanted.record) if wanted.record else None
    changes: dict[str, str | None] = {}
    if before.get(labels.MIG_CHANGE) != record:
        changes[labels.MIG_CHANGE] = record
    drain = _drain(wanted)
    if drain is not None and before.get(labels.DRAIN) != drain:
        changes[labels.DRAIN] = drain
    elif drain is None and now.drain:
        changes[labels.DRAIN] = None
    return changes | _leave(now, wanted)


def _leave(now: Seen, wanted: Wish) -> dict[str, str | None]:
    """Annotations by which a reboot waits for leave; others of the node ask for it too."""
    record = wanted.record
    asks = record is not None and (record.asked or record.phase is progress.Phase.APPROVING)
    if asks and not now.asks_reboot and not now.may_reboot:
        return {labels.DISRUPTION_REQUIRED: BY}
    if asks or not (now.we_ask_reboot or (now.record is not None and now.record.asked)):
        return {}
    there = {
        labels.DISRUPTION_REQUIRED: now.asks_reboot,
        labels.DISRUPTION_APPROVED: now.may_reboot,
    }
    return {name: None for name, is_there in there.items() if is_there}


def _drain(wanted: Wish) -> str | None:
    request: dict[str, Any] = {"by": BY, "why": wanted.why}
    if wanted.empty:
        request |= {"all": True, "id": wanted.empty}
    elif wanted.drain:
        request["pods"] = [
            {"namespace": each.namespace, "name": each.name} for each in wanted.drain[:MOST_PODS]
        ]
    else:
        return None
    return msgspec.json.encode(request).decode()


def _cordon(now: Seen, wanted: Wish) -> dict[str, Any]:
    """The node is cordoned when a change begins; who uncordons it meanwhile means it."""
    was, shall = _is_out(now.record), _is_out(wanted.record)
    if shall and not was and not now.is_cordoned:
        return {"unschedulable": True}
    return {"unschedulable": None} if not shall and now.is_cordoned_by_us else {}


def _is_out(record: progress.Record | None) -> bool:
    return record is not None and record.is_under_way


def _taints(node: OwnedNode, wanted: Wish) -> dict[str, Any]:
    """All taints of the Node where ours comes or goes, for a patch replaces the list."""
    found = (node.spec.taints if node.spec else None) or []
    ours = [TAINT] if _is_out(wanted.record) else []
    if [each for each in found if each.key == TAINT.key] == ours:
        return {}
    others = [each for each in found if each.key != TAINT.key]
    return {"taints": [msgspec.to_builtins(each) for each in (*others, *ours)]}
