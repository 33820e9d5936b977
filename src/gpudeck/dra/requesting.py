# SPDX-License-Identifier: Apache-2.0
"""What of a card a claim holds, in the words of the adapter's protocol. Pure."""

from __future__ import annotations

import msgspec

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import attributes, deviceconfigs, names
from gpudeck.dra.allocations import HeldDevice
from gpudeck.errors import InvalidError, NotFoundError

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
    # What was found in a CDI spec after the checkpoint was lost has a name and nothing else.
    if held.size is None and card is not None:
        held = described(held, card)
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
