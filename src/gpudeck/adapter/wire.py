# SPDX-License-Identifier: Apache-2.0
"""From the values of `vendors.contract` to the messages of gpudeck.adapter.v1. Pure."""

from __future__ import annotations

from gpudeck import errors
from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.cdi import spec
from gpudeck.vendors import contract, health, records

_VERDICTS = {
    health.Verdict.UNKNOWN: pb.VERDICT_UNKNOWN,
    health.Verdict.HEALTHY: pb.VERDICT_HEALTHY,
    health.Verdict.UNHEALTHY: pb.VERDICT_UNHEALTHY,
}
_MODES = {
    contract.PartitioningMode.NOT_AVAILABLE: pb.PARTITIONING_MODE_NOT_AVAILABLE,
    contract.PartitioningMode.DISABLED: pb.PARTITIONING_MODE_DISABLED,
    contract.PartitioningMode.ENABLED: pb.PARTITIONING_MODE_ENABLED,
}


def snapshot(inventory: records.Inventory, revision: int) -> pb.WatchCardsResponse:
    """The inventory as the stream sends it."""
    return pb.WatchCardsResponse(
        snapshot=pb.Snapshot(
            revision=revision,
            cards=[card(each) for each in inventory.cards],
            driver=_driver(inventory.driver),
        )
    )


def heartbeat(revision: int) -> pb.WatchCardsResponse:
    """The word that the snapshot `revision` still holds."""
    return pb.WatchCardsResponse(heartbeat=pb.Heartbeat(revision=revision))


def error(raised: errors.GpudeckError) -> pb.Error:
    """Why a claim was refused."""
    return pb.Error(
        reason=raised.reason,
        message=raised.message,
        retryable=isinstance(raised, errors.RetryableError),
    )


class Shared:
    """What every card's container needs, as the message of the last edits that were asked for.

    Makers give the same object until the driver's files change, and it is the long one.
    """

    def __init__(self) -> None:
        self._last: tuple[spec.ContainerEdits, pb.ContainerEdits] | None = None

    def edits(self, given: spec.ContainerEdits) -> pb.ContainerEdits:
        """`edits(given)`, not made again for the same object. The message is not to be changed."""
        last = self._last
        if last is None or last[0] is not given:
            last = self._last = given, edits(given)
        return last[1]


def edits(given: spec.ContainerEdits) -> pb.ContainerEdits:
    """What a container needs."""
    return pb.ContainerEdits(
        env=given.env,
        device_nodes=[
            pb.DeviceNode(
                path=node.path,
                host_path=node.host_path,
                type=node.type,
                major=node.major,
                minor=node.minor,
                permissions=node.permissions,
            )
            for node in given.device_nodes
        ],
        mounts=[
            pb.Mount(
                host_path=mount.host_path,
                container_path=mount.container_path,
                options=mount.options,
            )
            for mount in given.mounts
        ],
        hooks=[
            pb.Hook(hook_name=hook.hook_name, path=hook.path, args=hook.args, env=hook.env)
            for hook in given.hooks
        ],
        additional_gids=given.additional_gids,
    )


def card(card: records.CardState) -> pb.Card:
    """A card as the stream sends it."""
    reading = card.reading or contract.CardReading(address=card.site.address, uuid="")
    return pb.Card(
        pci_address=card.site.address,
        uuid=reading.uuid,
        minor=reading.minor,
        product_name=reading.product_name,
        architecture=reading.architecture,
        compute_api=reading.compute_api,
        compute_capability=reading.compute_capability,
        memory_bytes=reading.memory_bytes,
        driver=_driver(card.driver),
        api_driver_version=card.driver.api_version,
        partition_support=_partition_support(reading),
        partitioning=_partitioning(reading),
        health=_health(card.health),
        pcie_root=card.site.pcie_root or "",
        numa_node=card.site.numa_node,
        share_support=_share_support(reading.share_support),
    )


def _share_support(given: contract.ShareSupport) -> pb.ShareSupport:
    return pb.ShareSupport(
        time_slicing=given.time_slicing,
        mps=given.mps,
        memory_limits=given.memory_limits,
        memory_limits_message=given.memory_limits_message,
    )


def _driver(state: contract.DriverState) -> pb.DriverState:
    return pb.DriverState(
        ready=state.ready, reason=state.reason, message=state.message, version=state.version
    )


def _partition_support(reading: contract.CardReading) -> pb.PartitionSupport:
    return pb.PartitionSupport(
        supported=reading.total_slices > 0,
        total_slices=reading.total_slices,
        profiles=[_profile(each) for each in reading.profiles],
        dynamic=reading.dynamic,
    )


def _profile(given: contract.PartitionProfile) -> pb.PartitionProfile:
    return pb.PartitionProfile(
        name=given.name,
        profile_id=given.profile_id,
        memory_mib=given.memory_mib,
        max_instances=given.max_instances,
        slices=given.slices,
        multiprocessors=given.multiprocessors,
        placements=[pb.Placement(start=at.start, size=at.size) for at in given.placements],
        copy_engines=given.copy_engines,
        decoders=given.decoders,
        encoders=given.encoders,
        jpeg_engines=given.jpeg_engines,
        ofa_engines=given.ofa_engines,
    )


def _partitioning(reading: contract.CardReading) -> pb.Partitioning:
    return pb.Partitioning(
        mode=_MODES[reading.mode],
        pending=_MODES[reading.pending_mode],
        partitions=[
            pb.Partition(
                profile=each.profile,
                uuid=each.uuid,
                start=each.start,
                size=each.size,
                profile_id=each.profile_id,
            )
            for each in reading.partitions
        ],
    )


def _health(given: health.Health) -> pb.Health:
    return pb.Health(
        verdict=_VERDICTS[given.verdict],
        reason=given.reason,
        message=given.message,
        since_unix_seconds=given.since,
        xid=given.xid,
    )
