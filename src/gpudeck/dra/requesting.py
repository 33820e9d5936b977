# SPDX-License-Identifier: Apache-2.0
"""What of a card a claim holds, in the words of the adapter's protocol. Pure."""

from __future__ import annotations

import msgspec

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import attributes, deviceconfigs, names
from gpudeck.dra.allocations import HeldDevice
from gpudeck.errors import InvalidError, NotFoundError, UnavailableError

_INTERVALS = {
    "Default": adapter_pb2.TIME_SLICE_DEFAULT,
    "Short": adapter_pb2.TIME_SLICE_SHORT,
    "Medium": adapter_pb2.TIME_SLICE_MEDIUM,
    "Long": adapter_pb2.TIME_SLICE_LONG,
}
_EXAMPLES = "names such as gpu-0000-1b-00-0, mig-0000-1b-00-0-1g10gb-19-0, share-0000-1b-00-0"


def described(device: HeldDevice, card: adapter_pb2.Card) -> HeldDevice:
    """The device with the profile and the size of its partition, as the card tells them.

    Raises NotFoundError for a partition that the card does not offer.
    """
    named = names.parse_device(device.name)
    if named is None or named.profile_id is None:
        return device
    for profile in card.partition_support.profiles:
        for place in profile.placements:
            if (profile.profile_id, place.start) == (named.profile_id, named.start):
                return msgspec.structs.replace(device, profile=profile.name, size=place.size)
    raise NotFoundError(
        f"device {device.name}: card {card.pci_address} has no partition of profile "
        f"{named.profile_id} at slice {named.start}",
        reason="PartitionNotFound",
    )


def placed(held: HeldDevice, card: adapter_pb2.Card | None) -> HeldDevice:
    """A partition of unknown size with what its card shows at its place, or else offers there.

    What was found in a CDI spec after the checkpoint was lost has a name and nothing else.
    A device that the card does not tell about comes back as it is.
    """
    named = names.parse_device(held.name)
    if card is None or named is None or named.profile_id is None or held.size is not None:
        return held
    for there in card.partitioning.partitions:
        is_it = not there.HasField("profile_id") or there.profile_id == named.profile_id
        if is_it and there.start == named.start:
            return msgspec.structs.replace(
                held, profile=there.profile or held.profile, size=there.size
            )
    try:
        return described(held, card)
    except NotFoundError:
        return held


def removal(held: HeldDevice, card: adapter_pb2.Card | None) -> adapter_pb2.DeviceRequest | None:
    """The request to remove what was made of a device; None where nothing can have been made.

    A claim must not be kept for ever by a device that nobody can name any more: one that is
    not ours, or a partition that its card neither has nor offers. Raises UnavailableError
    while the card has not been read.
    """
    named = names.parse_device(held.name)
    if named is None:
        return None
    held = placed(held, card)
    if named.profile_id is not None and held.size is None and card is not None:
        if card.uuid:
            return None
        raise UnavailableError(
            f"device {held.name}: card {card.pci_address} has not been read yet",
            reason="CardNotReady",
        )
    return device(held, card)


def device(held: HeldDevice, card: adapter_pb2.Card | None) -> adapter_pb2.DeviceRequest:
    """The request for a device. Raises InvalidError for a name that is not one of ours."""
    named = names.parse_device(held.name)
    if named is None:
        raise InvalidError(
            f"device {held.name!r} is not one of gpudeck; allowed: {_EXAMPLES}",
            reason="UnknownDevice",
            allowed=_EXAMPLES,
        )
    request = adapter_pb2.DeviceRequest(
        name=held.key, pci_address=str(named.address), admin_access=bool(held.admin_access)
    )
    if named.profile_id is not None:
        request.partition.CopyFrom(_partition(held, named, card))
    elif named.type == attributes.TYPE_SHARE:
        request.share.CopyFrom(_share(held, is_mps=named.mps))
    return request


def _partition(
    held: HeldDevice, named: names.DeviceName, card: adapter_pb2.Card | None
) -> adapter_pb2.PartitionRequest:
    held = placed(held, card)
    return adapter_pb2.PartitionRequest(
        profile=held.profile or "",
        profile_id=named.profile_id,
        placement=adapter_pb2.Placement(start=named.start or 0, size=held.size or 0),
    )


def _share(held: HeldDevice, *, is_mps: bool) -> adapter_pb2.ShareRequest:
    return adapter_pb2.ShareRequest(
        share_id=held.share_id or "",
        memory_bytes=held.memory,
        cores=held.cores,
        strategy=(
            adapter_pb2.SHARING_STRATEGY_MPS
            if is_mps
            else adapter_pb2.SHARING_STRATEGY_TIME_SLICING
        ),
        interval=_INTERVALS.get(held.interval or "", adapter_pb2.TIME_SLICE_UNSPECIFIED),
        enforce_memory=held.enforce != deviceconfigs.REPORT,
    )
