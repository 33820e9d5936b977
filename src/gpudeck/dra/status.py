# SPDX-License-Identifier: Apache-2.0
"""What the adapter and the plugin say about a card, as fields of its PhysicalGPU's status.

Pure; `reporting` writes it. Two field managers write through this process: the
adapter's fields (it has no access to the API itself) and the plugin's own condition
Published. Whether something is to be written is decided by comparing with the object,
so an unchanged card costs nothing.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Mapping

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import attributes, conditions, names, resource
from gpudeck.api.meta import Condition
from gpudeck.api.v1alpha1 import gpuclass, physicalgpu
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import offering

_MODES = {
    adapter_pb2.PARTITIONING_MODE_NOT_AVAILABLE: "NotAvailable",
    adapter_pb2.PARTITIONING_MODE_DISABLED: "Disabled",
    adapter_pb2.PARTITIONING_MODE_ENABLED: "Enabled",
}
_VERDICTS = {
    adapter_pb2.VERDICT_HEALTHY: conditions.TRUE,
    adapter_pb2.VERDICT_UNHEALTHY: conditions.FALSE,
    adapter_pb2.VERDICT_UNKNOWN: conditions.UNKNOWN,
}
_MEBIBYTE = 1024 * 1024
_ABSENT_REASON = "CardNotSeen"
_ABSENT_MESSAGE = "The adapter on the card's node does not see the card."
_AWAY_REASON = "AdapterUnavailable"
_AWAY_MESSAGE = "The adapter on the card's node does not answer, so nothing is known of the card."
_WITHHELD = "Withheld"


def adapter_status(card: adapter_pb2.Card, vendor: str) -> physicalgpu.PhysicalGPUStatus:
    """The fields of the manager gpudeck-adapter."""
    return physicalgpu.PhysicalGPUStatus(
        capabilities=_capabilities(card, vendor),
        current_state=physicalgpu.CurrentState(
            driver_version=card.driver.version or None,
            uuid=card.uuid or None,
            partitioning=_partitioning(card.partitioning),
        ),
        conditions=[_driver_ready(card.driver), _healthy(card.health)],
    )


def absent_status(known: physicalgpu.PhysicalGPUStatus | None) -> physicalgpu.PhysicalGPUStatus:
    """The adapter's fields for a card that it no longer sees: what was known, and no verdict."""
    return _without_verdict(known, _ABSENT_REASON, _ABSENT_MESSAGE)


def away_status(known: physicalgpu.PhysicalGPUStatus | None) -> physicalgpu.PhysicalGPUStatus:
    """The adapter's fields while it is away: what was known, and no verdict."""
    return _without_verdict(known, _AWAY_REASON, _AWAY_MESSAGE)


def _without_verdict(
    known: physicalgpu.PhysicalGPUStatus | None, reason: str, message: str
) -> physicalgpu.PhysicalGPUStatus:
    state = known.current_state if known else None
    return physicalgpu.PhysicalGPUStatus(
        # Repeated, since a field that an apply leaves out is removed.
        capabilities=known.capabilities if known else None,
        current_state=physicalgpu.CurrentState(
            driver_version=state.driver_version if state else None,
            uuid=state.uuid if state else None,
            partitioning=state.partitioning if state else None,
        ),
        conditions=[
            Condition(type=kind, status=conditions.UNKNOWN, reason=reason, message=message)
            for kind in (conditions.DRIVER_READY, conditions.HARDWARE_HEALTHY)
        ],
    )


def published_status(
    card: adapter_pb2.Card | None,
    published: Mapping[str, resource.Device],
    pool: str,
    *,
    rejection: str = "",
    parts_withheld: bool = False,
    applied: Condition | None = None,
) -> physicalgpu.PhysicalGPUStatus:
    """The fields of the manager gpudeck-dra-plugin: the condition Published, and `applied`.

    `rejection` is why the API server takes no slices at all, empty if it does;
    `parts_withheld` says that it does not let wanted or held parts of the card be offered;
    `applied` is the condition PartitioningApplied, None where no mode was chosen for the card.
    """
    condition = _published(card, published, pool)
    if parts_withheld:
        condition = _without_parts(condition)
    if rejection and condition.reason == _WITHHELD:
        condition = _not_published("ResourceSlicesRejected", rejection)
    return physicalgpu.PhysicalGPUStatus(conditions=[condition, *([applied] if applied else [])])


def same(
    wanted: physicalgpu.PhysicalGPUStatus,
    found: physicalgpu.PhysicalGPUStatus | None,
    owned: Collection[str] = (),
) -> bool:
    """Whether the object says already what `wanted` says; times do not count.

    A condition of the types `owned` that is not wanted (any more) makes a difference.
    """
    if found is None:
        return False
    if wanted.capabilities is not None and wanted.capabilities != found.capabilities:
        return False
    if wanted.current_state is not None and _state(wanted) != _state(found):
        return False
    said = {each.type for each in wanted.conditions or ()}
    if any(each.type in owned and each.type not in said for each in found.conditions or ()):
        return False
    return _verdicts(wanted.conditions) <= _verdicts(found.conditions)


def _verdicts(found: Iterable[Condition] | None) -> set[tuple[str, str, str, str]]:
    return {(each.type, each.status, each.reason, each.message) for each in found or ()}


def _state(status: physicalgpu.PhysicalGPUStatus) -> tuple[object, ...]:
    state = status.current_state or physicalgpu.CurrentState()
    return state.driver_version, state.uuid, state.partitioning


def _capabilities(card: adapter_pb2.Card, vendor: str) -> physicalgpu.Capabilities:
    has_memory = card.HasField("memory_bytes")
    return physicalgpu.Capabilities(
        vendor=vendor,
        product_name=card.product_name or None,
        architecture=card.architecture or None,
        compute_api=card.compute_api or None,
        compute_capability=card.compute_capability or None,
        memory_mib=card.memory_bytes // _MEBIBYTE if has_memory else None,
        partition_support=_partition_support(card.partition_support),
        share_strategies=[
            gpuclass.TIME_SLICING,
            *([gpuclass.MPS] if card.share_support.mps else []),
        ],
    )


def _partition_support(support: adapter_pb2.PartitionSupport) -> physicalgpu.PartitionSupport:
    if not support.supported:
        return physicalgpu.PartitionSupport(supported=False)
    return physicalgpu.PartitionSupport(
        supported=True,
        total_slices=support.total_slices,
        profiles=[
            physicalgpu.PartitionProfile(
                name=each.name,
                profile_id=each.profile_id,
                memory_mib=each.memory_mib,
                max_instances=each.max_instances,
                slices=each.slices,
                multiprocessors=each.multiprocessors,
                placements=[
                    physicalgpu.Placement(start=one.start, size=one.size) for one in each.placements
                ]
                or None,
                engines=_engines(each),
            )
            for each in support.profiles
        ],
        dynamic=support.dynamic,
    )


def _engines(found: adapter_pb2.PartitionProfile) -> physicalgpu.PartitionEngines | None:
    engines = physicalgpu.PartitionEngines(
        copy=found.copy_engines or None,
        decoders=found.decoders or None,
        encoders=found.encoders or None,
        jpeg=found.jpeg_engines or None,
        ofa=found.ofa_engines or None,
    )
    return engines if engines != physicalgpu.PartitionEngines() else None


def _partitioning(found: adapter_pb2.Partitioning) -> physicalgpu.Partitioning:
    partitions = [
        physicalgpu.Partition(
            profile=each.profile, uuid=each.uuid, placement=f"{each.start}:{each.size}"
        )
        for each in found.partitions
    ]
    return physicalgpu.Partitioning(mode=_MODES[found.mode], partitions=partitions or None)


def _driver_ready(driver: adapter_pb2.DriverState) -> Condition:
    return Condition(
        type=conditions.DRIVER_READY,
        status=conditions.TRUE if driver.ready else conditions.FALSE,
        reason=driver.reason or ("DriverReady" if driver.ready else "DriverNotReady"),
        message=driver.message,
    )


def _healthy(health: adapter_pb2.Health) -> Condition:
    return Condition(
        type=conditions.HARDWARE_HEALTHY,
        status=_VERDICTS[health.verdict],
        reason=health.reason or "NoVerdict",
        message=health.message,
    )


def _published(
    card: adapter_pb2.Card | None, published: Mapping[str, resource.Device], pool: str
) -> Condition:
    if card is None:
        return _not_published(_ABSENT_REASON, _ABSENT_MESSAGE)
    address = PciAddress.parse(card.pci_address)
    mine = [each for name, each in published.items() if names.address_of_device(name) == address]
    if not mine:
        refusal = offering.refusal(card, published)
        if refusal is not None:
            return _not_published(refusal.reason, refusal.message)
        return _not_published(
            _WITHHELD,
            "The card is unhealthy or about to change its partitioning mode, and the API server "
            "does not keep device taints.",
        )
    taint = " It is tainted as unhealthy." if offering.is_tainted(mine[0]) else ""
    if offering.is_kept_off(mine[0]):
        taint += " New claims are kept off it until its partitioning mode has changed."
    return Condition(
        type=conditions.PUBLISHED,
        status=conditions.TRUE,
        reason="Published",
        message=f"Offered in pool {pool}: {_told(mine)}.{taint}",
    )


def _without_parts(condition: Condition) -> Condition:
    if condition.reason == _WITHHELD:
        return _not_published(
            conditions.PARTS_WITHHELD,
            f"A claim holds a part of the card, and {conditions.PARTS_UNGUARDED}, so nothing of "
            "the card is offered until the claim is gone.",
        )
    if condition.status != conditions.TRUE:
        return condition
    return Condition(
        type=conditions.PUBLISHED,
        status=conditions.TRUE,
        reason=conditions.PARTS_WITHHELD,
        message=f"{condition.message} Parts that GPUClasses select are not offered: "
        f"{conditions.PARTS_UNGUARDED}.",
    )


def _told(mine: Iterable[resource.Device]) -> str:
    """What kinds of devices a card is offered as: `whole, 25 places for partitions`."""
    kinds = collections.Counter(
        named.type for each in mine if (named := names.parse_device(each.name)) is not None
    )
    said = []
    if kinds[attributes.TYPE_GPU]:
        said.append("whole")
    if places := kinds[attributes.TYPE_MIG]:
        said.append("1 place for a partition" if places == 1 else f"{places} places for partitions")
    if kinds[attributes.TYPE_SHARE]:
        said.append("in shares")
    return ", ".join(said)


def _not_published(reason: str, message: str) -> Condition:
    return Condition(
        type=conditions.PUBLISHED, status=conditions.FALSE, reason=reason, message=message
    )
