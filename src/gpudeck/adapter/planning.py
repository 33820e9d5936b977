# SPDX-License-Identifier: Apache-2.0
"""What one requested device needs done to its card, from what is known of the card. Pure.

Called by `preparing` for each device in turn, after what the device before it needed was
done. Partition mode follows the claims where the card allows it: a partition turns it
on (the maker's library does that with the partition), all else turns it off first.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck import errors
from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.vendors import contract

_STRATEGIES = {
    pb.SHARING_STRATEGY_TIME_SLICING: contract.SharingStrategy.TIME_SLICING,
    pb.SHARING_STRATEGY_MPS: contract.SharingStrategy.MPS,
}
_INTERVALS = {
    pb.TIME_SLICE_DEFAULT: contract.TimeSlice.DEFAULT,
    pb.TIME_SLICE_SHORT: contract.TimeSlice.SHORT,
    pb.TIME_SLICE_MEDIUM: contract.TimeSlice.MEDIUM,
    pb.TIME_SLICE_LONG: contract.TimeSlice.LONG,
}


def actions(card: contract.CardReading, device: pb.DeviceRequest) -> tuple[contract.Action, ...]:
    """What is to be done before a container can use the device; nothing for who only looks on.

    The claim may hold the device, so shares by MPS that are still known to the card and are
    of another kind than the device are those of claims that are gone: they leave.
    Raises UnsupportedError for a share of a kind that the card does not offer.
    """
    if device.admin_access:
        return ()
    steps: list[contract.Action] = []
    if card.mps_shares and not _is_mps(device):
        steps.append(contract.LeaveMps())
    if device.HasField("partition"):
        return (*steps, making(device.partition))
    if card.mode is contract.PartitioningMode.ENABLED and card.dynamic:
        steps.append(contract.SetPartitioning(enabled=False))
    if device.HasField("share"):
        steps += _sharing(card, device)
    return tuple(steps)


def undoing(device: pb.DeviceRequest) -> contract.Action | None:
    """What gives the device back; None where nothing was made for it."""
    if device.admin_access:
        return None
    if device.HasField("partition"):
        return removing(device.partition)
    return contract.LeaveMps(share_id=_share_id(device)) if _is_mps(device) else None


def check(devices: Sequence[pb.DeviceRequest]) -> None:
    """Raise UnsupportedError for devices that no container could use together."""
    shares = [device.name for device in devices if _is_mps(device) and not device.admin_access]
    if len(shares) > 1:
        raise errors.UnsupportedError(
            f"the claim holds {len(shares)} shares by MPS ({', '.join(shares)}); allowed: one, "
            "for a process finds one MPS daemon.",
            reason="SharingUnsupported",
        )


def _is_mps(device: pb.DeviceRequest) -> bool:
    return bool(device.HasField("share") and device.share.strategy == pb.SHARING_STRATEGY_MPS)


def _share_id(device: pb.DeviceRequest) -> str:
    return device.share.share_id or device.name


def _sharing(card: contract.CardReading, device: pb.DeviceRequest) -> list[contract.Action]:
    wanted = share(device.share)
    if wanted.strategy is contract.SharingStrategy.MPS:
        if card.share_support.mps:
            return [contract.JoinMps(share_id=_share_id(device))]
        raise errors.UnsupportedError(
            f"{card.address}: the card is not shared by MPS now; ask for TimeSlicing, or have "
            "MPS enabled on the node.",
            reason="SharingUnsupported",
        )
    # An interval tunes; a card without it is shared all the same.
    if wanted.interval is not None and card.share_support.time_slicing:
        return [contract.SetTimeSlice(interval=wanted.interval)]
    return []


def making(wanted: pb.PartitionRequest) -> contract.MakePartition:
    """The action that makes a requested partition."""
    return contract.MakePartition(profile_id=wanted.profile_id, placement=_placement(wanted))


def removing(wanted: pb.PartitionRequest) -> contract.RemovePartition:
    """The action that removes a requested partition."""
    return contract.RemovePartition(profile_id=wanted.profile_id, placement=_placement(wanted))


def find(card: contract.CardReading, wanted: pb.PartitionRequest) -> contract.Partition | None:
    """The partition of that profile at that place, as the card was last read."""
    place = _placement(wanted)
    for each in card.partitions:
        is_there = (each.start, each.size) == (place.start, place.size)
        if is_there and each.profile_id == wanted.profile_id:
            return each
    return None


def share(wanted: pb.ShareRequest) -> contract.Share:
    """The share that is asked for."""
    return contract.Share(
        share_id=wanted.share_id,
        memory_bytes=wanted.memory_bytes if wanted.HasField("memory_bytes") else None,
        cores=wanted.cores if wanted.HasField("cores") else None,
        strategy=_STRATEGIES.get(wanted.strategy, contract.SharingStrategy.TIME_SLICING),
        interval=_INTERVALS.get(wanted.interval),
        enforce_memory=wanted.enforce_memory,
    )


def _placement(wanted: pb.PartitionRequest) -> contract.Placement:
    return contract.Placement(start=wanted.placement.start, size=wanted.placement.size)
