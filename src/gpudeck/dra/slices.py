# SPDX-License-Identifier: Apache-2.0
"""Cards to devices, devices to ResourceSlices, and what to write to get there.

Pure; `publishing` carries plans out. Order and names are stable: devices by PCI
address, slices numbered, so an unchanged node is never written and first-fit
allocation takes the same card everywhere. The rules of pools (one generation and
count in all slices, obsolete ones deleted first) and the limits are those of
resource.k8s.io/v1 in Kubernetes 1.37.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import attributes, labels, names, quantities, resource, versions
from gpudeck.api.meta import ObjectMeta, OwnerReference, Wire
from gpudeck.devices.identities import PciAddress

DEVICES_PER_SLICE = 128
TAINTED_DEVICES_PER_SLICE = 64
"""The limit once any device of the slice has a taint."""
_NAME_LENGTH = 253


class Refusal(msgspec.Struct, frozen=True):
    """Why a card is not offered, as the reason and message of its condition Published."""

    reason: str
    message: str


def refusal(card: adapter_pb2.Card) -> Refusal | None:
    """Why `card` may not be published as a whole card; None if it may."""
    if not card.driver.ready:
        reason = card.driver.reason or "DriverNotReady"
        return Refusal(reason, card.driver.message or "The card's driver is not ready.")
    if card.partitioning.mode == adapter_pb2.PARTITIONING_MODE_ENABLED:
        return Refusal(
            "CardPartitioned",
            "The card is in partitioning mode, so it cannot be used whole; turn the mode off.",
        )
    return None


def devices(
    cards: Iterable[adapter_pb2.Card],
    *,
    vendor: str,
    before: Mapping[str, resource.Device] | None = None,
    taints_kept: bool = True,
) -> list[resource.Device]:
    """The devices to offer, by PCI address.

    An unhealthy card carries a taint; a card of unknown health keeps the taint, or the
    lack of one, of `before` (the devices published now). Where the server drops taints
    (`taints_kept` False) a card that should carry one is left out instead.
    """
    offered = []
    for card in sorted(cards, key=lambda each: PciAddress.parse(each.pci_address)):
        if refusal(card) is not None:
            continue
        device = _device(card, vendor)
        device.taints = _taints(card.health, (before or {}).get(device.name))
        if taints_kept or not device.taints:
            offered.append(device)
    return offered


def is_tainted(device: resource.Device) -> bool:
    """Whether the device carries our taint of unhealthy cards."""
    return any(taint.key == attributes.UNHEALTHY_TAINT for taint in device.taints or ())


def _device(card: adapter_pb2.Card, vendor: str) -> resource.Device:
    address = PciAddress.parse(card.pci_address)
    texts = {
        attributes.TYPE: attributes.TYPE_GPU,
        attributes.DEVICE_TYPE: attributes.DEVICE_TYPE_PHYSICAL,
        attributes.VENDOR: vendor,
        attributes.PRODUCT_NAME: card.product_name,
        attributes.DEVICE: names.device_label(card.product_name),
        attributes.UUID: card.uuid,
        attributes.GPU_UUID: card.uuid,
        attributes.ARCHITECTURE: card.architecture,
        attributes.PCI_BUS_ID: str(address),
        attributes.PCIE_ROOT: card.pcie_root,
    }
    found = {
        name: resource.Attribute(string=names.attribute_text(text))
        for name, text in texts.items()
        if text.strip()
    }
    for name, text in _versions(card).items():
        if (version := versions.normalise(text)) is not None:
            found[name] = resource.Attribute(version=version)
    if card.HasField("numa_node"):
        found[attributes.NUMA_NODE] = resource.Attribute(int_=card.numa_node)
    return resource.Device(
        name=names.gpu_device_name(address), attributes=found, capacity=_capacity(card)
    )


def _versions(card: adapter_pb2.Card) -> dict[str, str]:
    found = {attributes.DRIVER_VERSION: card.driver.version}
    if card.compute_api == "CUDA":
        found[attributes.COMPUTE_CAPABILITY] = card.compute_capability
        found[attributes.CUDA_DRIVER_VERSION] = card.api_driver_version
    return found


def _capacity(card: adapter_pb2.Card) -> dict[str, resource.Capacity] | None:
    if not card.HasField("memory_bytes"):
        return None  # A made-up number would match selectors by accident.
    return {attributes.MEMORY: resource.Capacity(value=quantities.render(card.memory_bytes))}


def _taints(
    health: adapter_pb2.Health, before: resource.Device | None
) -> list[resource.DeviceTaint] | None:
    known = [
        taint
        for taint in (before.taints if before is not None else None) or ()
        if taint.key == attributes.UNHEALTHY_TAINT
    ]
    if health.verdict == adapter_pb2.VERDICT_UNKNOWN:
        return known or None
    if health.verdict == adapter_pb2.VERDICT_HEALTHY:
        return None
    value = names.label_value(health.reason)
    # The server stamps a taint without a time anew, which would restart toleration periods.
    time_added = next((taint.time_added for taint in known if taint.value == value), None)
    return [
        resource.DeviceTaint(
            key=attributes.UNHEALTHY_TAINT,
            value=value,
            effect="NoSchedule",
            time_added=time_added,
        )
    ]


class Plan(msgspec.Struct):
    """What to do, deletions first; `generation` is that of the pool afterwards."""

    delete: list[resource.ResourceSlice]
    apply: list[resource.ResourceSlice]
    generation: int


def plan(
    existing: Sequence[resource.ResourceSlice],
    wanted: Sequence[resource.Device],
    *,
    owner: OwnerReference,
    last_generation: int = 0,
) -> Plan:
    """Say how `existing` (all slices of ours on the node `owner`) becomes `wanted`.

    One changed slice keeps the pool's generation; more, or another number of slices,
    take the next one, so that no reader mixes old with new. A slice that no apply of ours
    can put right is deleted and made anew.
    """
    parts = _parts(wanted)
    by_name = {each.metadata.name: each for each in existing}
    target_names = [slice_name(owner.name, index) for index in range(len(parts))]
    delete = [
        each
        for each in existing
        if each.metadata.name not in target_names or _is_beyond_repair(each, owner)
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


def _parts(wanted: Sequence[resource.Device]) -> list[Sequence[resource.Device]]:
    size = TAINTED_DEVICES_PER_SLICE if any(map(is_tainted, wanted)) else DEVICES_PER_SLICE
    # A pool without devices has one empty slice: it says that the driver is there.
    return [wanted[start : start + size] for start in range(0, max(len(wanted), 1), size)]


def _targets(
    target_names: Sequence[str],
    parts: Sequence[Sequence[resource.Device]],
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
                driver=labels.DRIVER, pool=pool, node_name=owner.name, devices=list(part) or None
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


def _amounts(device: resource.Device) -> dict[str, tuple[int, dict[str, bytes]]]:
    prefix = f"{labels.DRIVER}/"
    return {
        name.removeprefix(prefix): (quantities.parse(each.value), _undecoded(each))
        for name, each in (device.capacity or {}).items()
    }


def _marks(device: resource.Device) -> list[tuple[str, str | None, str]]:
    return [(taint.key, taint.value, taint.effect) for taint in device.taints or ()]
