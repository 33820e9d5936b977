# SPDX-License-Identifier: Apache-2.0
"""Devices and counters to ResourceSlices, and what to write to get there.

Pure; `publishing` carries plans out. Order and names are stable, slices are numbered, so
an unchanged node is never written and first-fit allocation takes the same device
everywhere. The rules of pools (one generation and count in all slices, obsolete ones
deleted first; counters in slices of their own) and the limits are those of
resource.k8s.io/v1 in Kubernetes 1.37.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from gpudeck.api import labels, names, quantities, resource
from gpudeck.api.meta import ObjectMeta, OwnerReference, Wire

DEVICES_PER_SLICE = 128
RICH_DEVICES_PER_SLICE = 64
"""The limit once any device of the slice has a taint or consumes counters."""
COUNTER_SETS_PER_SLICE = 8
_NAME_LENGTH = 253


class Plan(msgspec.Struct):
    """What to do, deletions first; `generation` is that of the pool afterwards."""

    delete: list[resource.ResourceSlice]
    apply: list[resource.ResourceSlice]
    generation: int


def plan(
    existing: Sequence[resource.ResourceSlice],
    wanted: Sequence[resource.Device],
    counters: Sequence[resource.CounterSet] = (),
    *,
    owner: OwnerReference,
    last_generation: int = 0,
) -> Plan:
    """Say how `existing` (all slices of ours on the node `owner`) becomes `wanted`.

    One changed slice keeps the pool's generation; more, or another number of slices,
    take the next one, so that no reader mixes old with new. A slice that no apply of ours
    can put right is deleted and made anew.
    """
    parts = _parts(wanted, counters)
    by_name = {each.metadata.name: each for each in existing}
    target_names = [slice_name(owner.name, index) for index in range(len(parts))]
    known = dict(zip(target_names, parts, strict=True))
    delete = [
        each
        for each in existing
        if each.metadata.name not in known
        or _is_beyond_repair(each, owner)
        # Counters of another field manager: an apply without any would leave them.
        or (each.spec.shared_counters and not known[each.metadata.name].counters)
    ]
    for each in delete:
        by_name.pop(each.metadata.name, None)
    current = max([last_generation, *(each.spec.pool.generation for each in existing)])
    target = _targets(target_names, parts, owner, current or 1)
    changed = [each for each in target if not same(by_name.get(each.metadata.name), each)]
    added = any(name not in by_name for name in target_names)
    if current and (len(changed) > 1 or added or delete):
        current += 1
        target = _targets(target_names, parts, owner, current)
        changed = target
    return Plan(delete=delete, apply=changed, generation=current or 1)


def _is_beyond_repair(each: resource.ResourceSlice, owner: OwnerReference) -> bool:
    """Whether it has what the API never changes otherwise, or what only its owner can remove."""
    spec = each.spec
    fixed = spec.driver, spec.node_name, spec.pool.name
    owners = [other.uid for other in each.metadata.owner_references or ()]
    return (
        fixed != (labels.DRIVER, owner.name, names.pool_name(owner.name))
        or bool(_undecoded(spec))
        or (owner.uid in owners and len(owners) > 1)
    )


def slice_name(node: str, index: int) -> str:
    """The name of a node's slice number `index`; allocators go through slices by name."""
    name = f"{index:05x}-{labels.DRIVER}-{node}"
    if len(name) <= _NAME_LENGTH:
        return name
    digest = hashlib.sha256(node.encode()).hexdigest()[:8]
    return name[: _NAME_LENGTH - 9].rstrip(".-") + "-" + digest


class _Part(msgspec.Struct, frozen=True):
    """What one slice holds: devices or counters, never both."""

    devices: Sequence[resource.Device] = ()
    counters: Sequence[resource.CounterSet] = ()


def _parts(
    wanted: Sequence[resource.Device], counters: Sequence[resource.CounterSet]
) -> list[_Part]:
    is_rich = any(device.taints or device.consumes_counters for device in wanted)
    size, sets = RICH_DEVICES_PER_SLICE if is_rich else DEVICES_PER_SLICE, COUNTER_SETS_PER_SLICE
    # A pool without devices has one empty slice: it says that the driver is there.
    found = [
        _Part(devices=wanted[start : start + size]) for start in range(0, max(len(wanted), 1), size)
    ]
    found += [
        _Part(counters=counters[start : start + sets]) for start in range(0, len(counters), sets)
    ]
    return found


def _targets(
    target_names: Sequence[str],
    parts: Sequence[_Part],
    owner: OwnerReference,
    generation: int,
) -> list[resource.ResourceSlice]:
    pool = resource.Pool(
        name=names.pool_name(owner.name), generation=generation, resource_slice_count=len(parts)
    )
    return [
        resource.ResourceSlice(
            metadata=ObjectMeta(name=name, owner_references=[owner]),
            spec=resource.SliceSpec(
                driver=labels.DRIVER,
                pool=pool,
                node_name=owner.name,
                devices=list(part.devices) or None,
                shared_counters=list(part.counters) or None,
            ),
        )
        for name, part in zip(target_names, parts, strict=True)
    ]


def same(kept: resource.ResourceSlice | None, sent: resource.ResourceSlice) -> bool:
    """Whether the server's slice says what we want it to say."""
    return kept is not None and not differences(sent, kept)


def differences(sent: resource.ResourceSlice, kept: resource.ResourceSlice) -> list[str]:
    """Paths of the fields in which `kept` is not what was sent.

    Quantities are compared by value and names without a domain belong to the driver's.
    """
    found = []
    ours, theirs = sent.spec, kept.spec
    for name in ("driver", "pool", "node_name"):
        if getattr(ours, name) != getattr(theirs, name):
            found.append(f"spec.{name}")
    found += [f"spec.{name}" for name in _odd(ours, theirs)]
    if _owners(sent) != _owners(kept):
        found.append("metadata.ownerReferences")
    if _sets(ours.shared_counters) != _sets(theirs.shared_counters):
        found.append("spec.sharedCounters")
    sent_devices, kept_devices = ours.devices or [], theirs.devices or []
    if [each.name for each in sent_devices] != [each.name for each in kept_devices]:
        return [*found, "spec.devices"]
    for mine, other in zip(sent_devices, kept_devices, strict=True):
        found += [f"spec.devices[{mine.name}].{name}" for name in _device_differences(mine, other)]
    return found


def _device_differences(sent: resource.Device, kept: resource.Device) -> list[str]:
    found = []
    if _qualified(sent.attributes) != _qualified(kept.attributes):
        found.append("attributes")
    if _amounts(sent) != _amounts(kept):
        found.append("capacity")
    if _marks(sent) != _marks(kept):
        found.append("taints")
    if bool(sent.allow_multiple_allocations) != bool(kept.allow_multiple_allocations):
        found.append("allowMultipleAllocations")
    if _consumed(sent) != _consumed(kept):
        found.append("consumesCounters")
    return found + _odd(sent, kept)


def _odd(sent: Wire, kept: Wire) -> list[str]:
    """The names, as the API has them, of undecoded fields that differ."""
    ours, theirs = _undecoded(sent), _undecoded(kept)
    return sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name))


def _undecoded(each: Wire) -> dict[str, bytes]:
    """The fields that gpudeck does not set and keeps as they came."""
    found = {}
    for name, encoded in zip(each.__struct_fields__, each.__struct_encode_fields__, strict=True):
        value = getattr(each, name)
        if isinstance(value, msgspec.Raw):
            found[encoded] = bytes(value)
    return found


def _owners(each: resource.ResourceSlice) -> list[tuple[str, str]]:
    return [(owner.kind, owner.uid) for owner in each.metadata.owner_references or ()]


def _qualified(
    found: Mapping[str, resource.Attribute] | None,
) -> dict[str, resource.Attribute]:
    prefix = f"{labels.DRIVER}/"
    return {name.removeprefix(prefix): value for name, value in (found or {}).items()}


def _amounts(device: resource.Device) -> dict[str, tuple[object, ...]]:
    prefix = f"{labels.DRIVER}/"
    return {
        name.removeprefix(prefix): (quantities.parse(each.value), _policy(each.request_policy))
        for name, each in (device.capacity or {}).items()
    }


def _policy(policy: resource.RequestPolicy | None) -> tuple[object, ...]:
    if policy is None:
        return ()
    span = policy.valid_range
    texts = (policy.default, *((span.min, span.max, span.step) if span else ()))
    values = tuple(quantities.parse(each) for each in policy.valid_values or ())
    return (*(None if text is None else quantities.parse(text) for text in texts), values)


def _sets(found: Sequence[resource.CounterSet] | None) -> list[tuple[str, dict[str, int]]]:
    return [(each.name, _numbers(each.counters)) for each in found or ()]


def _consumed(device: resource.Device) -> list[tuple[str, dict[str, int]]]:
    return [(each.counter_set, _numbers(each.counters)) for each in device.consumes_counters or ()]


def _numbers(counters: Mapping[str, resource.Counter]) -> dict[str, int]:
    return {name: quantities.parse(each.value) for name, each in counters.items()}


def _marks(device: resource.Device) -> list[tuple[str, str | None, str]]:
    return [(taint.key, taint.value, taint.effect) for taint in device.taints or ()]
