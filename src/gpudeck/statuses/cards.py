# SPDX-License-Identifier: Apache-2.0
"""What whoever reads a node's cards says of them, as fields of their PhysicalGPUs' status.

Pure; `writing` writes it. In both modes the same fields have the same words and the field
manager gpudeck-adapter; what a card is offered as is said by `dra.status` and
`deviceplugin.status`. Whether something is to be written is decided by comparing with the
object, so an unchanged card costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import conditions
from gpudeck.api.meta import Condition
from gpudeck.api.v1alpha1 import gpuclass, physicalgpu

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
ADAPTER, DEVICE_PLUGIN = "adapter", "device plugin"
"""Who reads the cards of a node, in sentences."""
_AWAY_REASON = "AdapterUnavailable"
_AWAY_MESSAGE = "The adapter on the card's node does not answer, so nothing is known of the card."


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


def absent_status(
    known: physicalgpu.PhysicalGPUStatus | None, who: str = ADAPTER
) -> physicalgpu.PhysicalGPUStatus:
    """The adapter's fields for a card that it no longer sees: what was known, and no verdict."""
    return _without_verdict(known, _ABSENT_REASON, _absent(who))


def away_status(known: physicalgpu.PhysicalGPUStatus | None) -> physicalgpu.PhysicalGPUStatus:
    """The adapter's fields while it is away: what was known, and no verdict."""
    return _without_verdict(known, _AWAY_REASON, _AWAY_MESSAGE)


def _absent(who: str) -> str:
    return f"The {who} on the card's node does not see the card."


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


def same(
    wanted: physicalgpu.PhysicalGPUStatus,
    found: physicalgpu.PhysicalGPUStatus | None,
    owned: Collection[str] = (),
) -> bool:
    """Whether the object says already what `wanted` says; times do not count.

    A condition of the types `owned` that is not wanted (any more) makes a difference, and with
    them so does what a device plugin said of the card.
    """
    if found is None:
        return False
    if wanted.capabilities is not None and wanted.capabilities != found.capabilities:
        return False
    if wanted.current_state is not None and _state(wanted) != _state(found):
        return False
    if owned and _by_plugin(wanted) != _by_plugin(found):
        return False
    said = {each.type for each in wanted.conditions or ()}
    if any(each.type in owned and each.type not in said for each in found.conditions or ()):
        return False
    return _verdicts(wanted.conditions) <= _verdicts(found.conditions)


def _verdicts(found: Iterable[Condition] | None) -> set[tuple[str, str, str, str]]:
    return {(each.type, each.status, each.reason, each.message) for each in found or ()}


def _by_plugin(status: physicalgpu.PhysicalGPUStatus) -> tuple[object, ...]:
    holders = status.occupancy.plugin if status.occupancy else None
    return holders or None, status.extended_resources or None


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


def absent(who: str = ADAPTER) -> Condition:
    """The condition Published of a card that is not there to be offered."""
    return not_published(_ABSENT_REASON, _absent(who))


def not_published(reason: str, message: str) -> Condition:
    """The condition Published of a card that is not offered."""
    return Condition(
        type=conditions.PUBLISHED, status=conditions.FALSE, reason=reason, message=message
    )
