# SPDX-License-Identifier: Apache-2.0
"""What the controller's caches keep of each object: what it reads, and nothing else.

Pure. At 40,000 cards each field that nobody reads costs megabytes, and a change of
it would cost a reconciliation. Strings that many objects share are interned.
"""

from __future__ import annotations

import functools
import sys

from gpudeck.api import conditions, labels
from gpudeck.api.core import Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodSpec
from gpudeck.api.meta import Condition, ObjectMeta
from gpudeck.api.resource import (
    AllocatedDevice,
    AllocatedDevices,
    Allocation,
    ClaimStatus,
    Consumer,
    ResourceClaim,
)
from gpudeck.api.v1alpha1.physicalgpu import (
    Capabilities,
    CurrentState,
    Partition,
    Partitioning,
    PhysicalGPU,
    PhysicalGPUStatus,
)
from gpudeck.controller import models

_OURS = f"{labels.GROUP}/"
_KEPT = (conditions.MODE_ACTIVE, conditions.NODE_GROUP_FOLLOWED)
"""Conditions of Nodes that the controller writes itself."""
_SAID = (*_KEPT, conditions.PLUGIN_CONFIGURED, conditions.MIG_CONFIGURED)


def gpu(found: PhysicalGPU) -> PhysicalGPU:
    """Return the card without its host's facts and resource version."""
    meta, status = found.metadata, found.status
    known = {
        name: sys.intern(value)
        for name, value in (meta.labels or {}).items()
        if name in (labels.VENDOR, labels.NODE)
    }
    kept = PhysicalGPU(
        metadata=ObjectMeta(
            name=meta.name,
            uid=meta.uid,
            labels=known or None,
            deletion_timestamp=meta.deletion_timestamp,
        )
    )
    if status is not None:
        kept.status = PhysicalGPUStatus(
            capabilities=_capabilities(status.capabilities),
            current_state=_current_state(status.current_state),
            occupancy=status.occupancy,
            phase=status.phase,
            lost_since=status.lost_since,
            conditions=[_condition(each) for each in status.conditions or ()] or None,
        )
    return kept


def _capabilities(found: Capabilities | None) -> Capabilities | None:
    if found is None:
        return None
    return Capabilities(
        vendor=_interned(found.vendor),
        product_name=_interned(found.product_name),
        architecture=_interned(found.architecture),
        compute_capability=_interned(found.compute_capability),
        memory_mib=found.memory_mib,
        partition_support=models.shared(found.partition_support),
        share_strategies=_strategies(tuple(found.share_strategies or ())),
    )


@functools.lru_cache(maxsize=64)
def _strategies(found: tuple[str, ...]) -> list[str] | None:
    """The list that all cards of these strategies have in common."""
    return list(found) or None


def _current_state(found: CurrentState | None) -> CurrentState | None:
    if found is None:
        return None
    return CurrentState(
        driver_version=_interned(found.driver_version), partitioning=_partitioning(found)
    )


def _partitioning(found: CurrentState) -> Partitioning | None:
    """How the card is cut: that of cards without partitions is one object a mode."""
    cut = found.partitioning
    if cut is None:
        return None
    if not cut.partitions:
        return _uncut(cut.mode)
    return Partitioning(
        mode=sys.intern(cut.mode),
        partitions=[
            Partition(profile=sys.intern(each.profile), placement=each.placement)
            for each in cut.partitions
        ],
    )


@functools.lru_cache(maxsize=8)
def _uncut(mode: str) -> Partitioning:
    return Partitioning(mode=mode)


def _condition(found: Condition) -> Condition:
    return Condition(
        type=sys.intern(found.type),
        status=sys.intern(found.status),
        reason=sys.intern(found.reason),
        message=sys.intern(found.message),
        last_transition_time=found.last_transition_time,
    )


def _interned(text: str | None) -> str | None:
    return None if text is None else sys.intern(text)


def node(found: Node) -> Node | None:
    """Return a Node's labels and what else gpudeck says on it; None if it has nothing of ours."""
    meta = found.metadata
    notes = {name: text for name, text in (meta.annotations or {}).items() if _is_ours(name)}
    taints = [
        each
        for each in (found.spec.taints if found.spec else None) or ()
        if each.key in (labels.MODE_CHANGE, labels.MIG_TAINT)
    ]
    all_said = (found.status.conditions if found.status else None) or ()
    said = [
        # Of the others' only whether there is one.
        each if each.type in _KEPT else NodeCondition(type=each.type)
        for each in all_said
        if each.type in _SAID
    ]
    if not (notes or taints or said or any(map(_is_ours, meta.labels or ()))):
        return None
    said += [  # Its time and words are nobody's here.
        NodeCondition(type=each.type, status=sys.intern(each.status))
        for each in all_said
        if each.type == conditions.READY
    ]
    known = {sys.intern(name): sys.intern(text) for name, text in (meta.labels or {}).items()}
    return Node(
        metadata=ObjectMeta(
            name=meta.name, uid=meta.uid, labels=known or None, annotations=notes or None
        ),
        spec=NodeSpec(taints=taints) if taints else None,
        status=NodeStatus(conditions=said) if said else None,
    )


def _is_ours(name: str) -> bool:
    return name.startswith(_OURS)


def adapter_pod(found: Pod) -> Pod | None:
    """Return the pod with its node if it is Ready."""
    status, node = found.status, found.spec.node_name if found.spec else None
    ready = any(
        each.type == conditions.READY and each.status == conditions.TRUE
        for each in (status.conditions if status else None) or ()
    )
    if not ready or not node:
        return None
    meta = found.metadata
    return Pod(
        metadata=ObjectMeta(name=meta.name, namespace=meta.namespace), spec=PodSpec(node_name=node)
    )


def claim(found: ResourceClaim) -> ResourceClaim | None:
    """Return the claim if it holds devices of ours, with these and its pods only.

    Administrative access holds nothing: the scheduler gives the device out besides.
    """
    status = found.status
    devices = status.allocation.devices if status and status.allocation else None
    results = [
        AllocatedDevice(
            pool=each.pool,
            device=each.device,
            share_id=each.share_id,
            consumed_capacity=each.consumed_capacity,
        )
        for each in (devices.results if devices else None) or ()
        if each.driver == labels.DRIVER and not each.admin_access
    ]
    if status is None or not results:
        return None
    pods = [
        Consumer(resource="pods", name=each.name, uid=each.uid)
        for each in status.reserved_for or ()
        if each.resource == "pods" and not each.api_group
    ]
    meta = found.metadata
    return ResourceClaim(
        metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid),
        status=ClaimStatus(
            allocation=Allocation(devices=AllocatedDevices(results=results)),
            reserved_for=pods or None,
        ),
    )
