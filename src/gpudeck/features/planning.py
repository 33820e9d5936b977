# SPDX-License-Identifier: Apache-2.0
"""What to write to a Node so that it has what it should. Pure; `master` carries it out, and
`cli.cleanup` that of a Node that should have nothing.

Annotations of the Node say which of its labels, annotations, taints and extended resources
came from features. Only those are ever removed; all others are other people's. The spelling is
node-feature-discovery's, so a cluster can be taken over from it.

A label and the annotation that says whose it is are written by one patch. Extended resources
stand in the status, which is written apart: their annotation is written before they come, and
shortened after they have gone, so a kill between the two leaves nothing without an owner.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from gpudeck.api import labels, quantities
from gpudeck.api.core import Node, NodeSpec, NodeStatus, Taint
from gpudeck.features.deciding import Wanted
from gpudeck.features.rules.evaluating import Refusal

_PREFIX = f"{labels.FEATURE_NAMESPACE}/"
_encoder = msgspec.json.Encoder(order="deterministic")


class Plan(msgspec.Struct):
    """Merge patches, in the order of their fields; None where nothing is to be written."""

    first: dict[str, Any] | None = None
    """Of the Node: labels, annotations and taints."""
    status: dict[str, Any] | None = None
    """Of its status: extended resources."""
    last: dict[str, Any] | None = None
    """Of the Node: which extended resources are still its own from features."""
    needs_version: bool = False
    """Whether `first` replaces a list, and must carry the version that it was made from."""


def plan(node: Node, wanted: Wanted, version: str) -> Plan:
    """Return the patches. `version` is the master's own, for the annotation."""
    before = node.metadata.annotations or {}
    taints = _taints(node, wanted)
    resources = _owned(before, labels.FEATURES_RESOURCES)
    capacity = (node.status.capacity if node.status else None) or {}
    stale = {name for name in resources - set(wanted.extended_resources) if name in capacity}
    owned = {
        labels.FEATURES_LABELS: _joined(wanted.labels),
        labels.FEATURES_ANNOTATIONS: _joined(wanted.annotations),
        labels.FEATURES_TAINTS: ",".join(map(_text, wanted.taints)),
        labels.FEATURES_RESOURCES: _joined({*wanted.extended_resources, *stale}),
    }
    owned[labels.FEATURES_MASTER_VERSION] = version if any(owned.values()) else ""
    metadata = {
        "labels": _changes(
            node.metadata.labels or {}, wanted.labels, _owned(before, labels.FEATURES_LABELS)
        ),
        "annotations": {
            **_changes(before, wanted.annotations, _owned(before, labels.FEATURES_ANNOTATIONS)),
            **_bookkeeping(before, owned),
        },
    }
    first: dict[str, Any] = {
        "metadata": {name: changes for name, changes in metadata.items() if changes}
    }
    if taints is not None:
        first["spec"] = {"taints": taints}
    return Plan(
        first=first if first["metadata"] or taints is not None else None,
        status=_status(capacity, wanted.extended_resources, stale),
        last=_shortened(owned[labels.FEATURES_RESOURCES], wanted) if stale else None,
        needs_version=taints is not None,
    )


def bound(node: Node, plan: Plan) -> Iterator[tuple[dict[str, Any], str]]:
    """The patches in their order, each for the Node that they were made of, and its subresource."""
    for patch, part in ((plan.first, ""), (plan.status, "status"), (plan.last, "")):
        if patch is None:
            continue
        metadata = {**patch.get("metadata", {}), "uid": node.metadata.uid}
        if patch is plan.first and plan.needs_version:
            metadata["resourceVersion"] = node.metadata.resource_version
        yield {**patch, "metadata": metadata}, part


def applied(node: Node, plan: Plan) -> Node:
    """The Node once all patches are written, as far as they and the API server spell alike."""
    meta, spec, status = node.metadata, node.spec, node.status
    labelled, noted = dict(meta.labels or {}), dict(meta.annotations or {})
    capacity = dict((status.capacity if status else None) or {})
    for patch in (plan.first, plan.status, plan.last):
        body = patch or {}
        changed = body.get("metadata", {})
        _patch(labelled, changed.get("labels", {}))
        _patch(noted, changed.get("annotations", {}))
        _patch(capacity, body.get("status", {}).get("capacity", {}))
        if "spec" in body:
            spec = msgspec.convert(body["spec"], NodeSpec)
    new = msgspec.structs.replace(meta, labels=labelled, annotations=noted)
    return Node(metadata=new, spec=spec, status=NodeStatus(capacity=capacity))


def fingerprint(node: Node) -> bytes:
    """The same for two looks at a Node that a plan is made from alike."""
    meta = node.metadata
    parts = (
        meta.uid,
        meta.labels or {},
        meta.annotations or {},
        (node.spec.taints if node.spec else None) or [],
        (node.status.capacity if node.status else None) or {},
    )
    return hashlib.blake2b(_encoder.encode(parts), digest_size=12).digest()


def _patch(values: dict[str, str], changes: Mapping[str, str | None]) -> None:
    """What a merge patch does: None removes."""
    for name, value in changes.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value


def patient(node: Node, wanted: Wanted) -> Wanted:
    """The same, with all that the Node has from features already: nothing of it is removed."""
    before = node.metadata.annotations or {}
    capacity = (node.status.capacity if node.status else None) or {}
    taints = _owned_taints(node, before)
    keys = {(each.key, each.effect) for each in wanted.taints}
    return Wanted(
        labels={
            **_held(node.metadata.labels or {}, _owned(before, labels.FEATURES_LABELS)),
            **wanted.labels,
        },
        annotations={
            **_held(before, _owned(before, labels.FEATURES_ANNOTATIONS)),
            **wanted.annotations,
        },
        taints=[
            *(each for each in taints if (each.key, each.effect) not in keys),
            *wanted.taints,
        ],
        extended_resources={
            **_held(capacity, _owned(before, labels.FEATURES_RESOURCES)),
            **wanted.extended_resources,
        },
        refused=wanted.refused,
    )


def respecting(node: Node, wanted: Wanted) -> Wanted:
    """The same without what the Node has from others; that is reported. Taints are not asked."""
    before = node.metadata.annotations or {}
    capacity = (node.status.capacity if node.status else None) or {}
    refused = list(wanted.refused)

    def free(
        kind: str, asked: Mapping[str, str], now: Mapping[str, str], owned: Collection[str]
    ) -> dict[str, str]:
        taken = {name for name in asked if name in now and name not in owned}
        refused.extend(
            Refusal(
                "",
                f"{kind} {name}: {asked[name]!r} is not written; allowed: a name that the Node "
                "does not have from others, since allowOverwrite is false",
            )
            for name in sorted(taken)
        )
        return {name: value for name, value in asked.items() if name not in taken}

    labelled = _owned(before, labels.FEATURES_LABELS)
    noted = _owned(before, labels.FEATURES_ANNOTATIONS)
    counted = _owned(before, labels.FEATURES_RESOURCES)
    return Wanted(
        labels=free("label", wanted.labels, node.metadata.labels or {}, labelled),
        annotations=free("annotation", wanted.annotations, before, noted),
        taints=wanted.taints,
        extended_resources=free("extended resource", wanted.extended_resources, capacity, counted),
        refused=refused,
    )


def _held(now: Mapping[str, str], owned: Collection[str]) -> dict[str, str]:
    return {name: now[name] for name in owned if name in now}


def _owned_taints(node: Node, annotations: Mapping[str, str]) -> list[Taint]:
    owned = set((annotations.get(labels.FEATURES_TAINTS) or "").split(","))
    now = (node.spec.taints if node.spec else None) or []
    return [each for each in now if _text(each) in owned]


def _owned(annotations: Mapping[str, str], name: str) -> set[str]:
    """The full names that an annotation lists; those of the own namespace stand without it."""
    found = (each.strip() for each in (annotations.get(name) or "").split(","))
    return {each if "/" in each else _PREFIX + each for each in found if each}


def _joined(found: Collection[str]) -> str:
    return ",".join(sorted(each.removeprefix(_PREFIX) for each in found))


def _changes(
    now: Mapping[str, str], wanted: Mapping[str, str], owned: Collection[str]
) -> dict[str, str | None]:
    gone = {name: None for name in sorted(owned) if name in now and name not in wanted}
    # A workload that stands back for a change of partitions does so whatever a rule says.
    return {
        **gone,
        **{
            name: value
            for name, value in wanted.items()
            if now.get(name) not in (value, labels.PAUSED_FOR_MIG)
        },
    }


def _bookkeeping(now: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """An annotation that would be empty is removed, if it is there."""
    found: dict[str, str | None] = {}
    for name, value in wanted.items():
        if value and now.get(name) != value:
            found[name] = value
        elif not value and name in now:
            found[name] = None
    return found


def _status(
    capacity: Mapping[str, str], wanted: Mapping[str, str], stale: Collection[str]
) -> dict[str, Any] | None:
    added = {
        name: value for name, value in wanted.items() if not _is_equal(capacity.get(name), value)
    }
    gone = dict.fromkeys(sorted(stale))
    if not added and not gone:
        return None
    status: dict[str, Any] = {"capacity": {**gone, **added}}
    # The kubelet copies what is new from capacity to allocatable, and removes nothing there.
    return {"status": {**status, "allocatable": gone} if gone else status}


def _is_equal(now: str | None, wanted: str) -> bool:
    """The API server spells amounts in its own way: 8000 comes back as 8k."""
    return now is not None and quantities.parse(now) == quantities.parse(wanted)


def _shortened(written: str, wanted: Wanted) -> dict[str, Any] | None:
    text = _joined(wanted.extended_resources)
    if text == written:
        return None
    return {"metadata": {"annotations": {labels.FEATURES_RESOURCES: text or None}}}


def _taints(node: Node, wanted: Wanted) -> list[dict[str, str]] | None:
    """The whole new list of taints, None if it is right as it is."""
    now = (node.spec.taints if node.spec else None) or []
    owned = _owned_taints(node, node.metadata.annotations or {})
    keys = {(each.key, each.effect) for each in wanted.taints}
    foreign = [each for each in now if each not in owned and (each.key, each.effect) not in keys]
    new = [*foreign, *wanted.taints]
    if sorted(map(_text, now)) == sorted(map(_text, new)):
        return None
    return [msgspec.to_builtins(each) for each in new]


def _text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
