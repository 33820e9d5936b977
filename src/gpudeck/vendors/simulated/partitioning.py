# SPDX-License-Identifier: Apache-2.0
"""What an action does to a simulated card: pure, from one card to the next."""

from __future__ import annotations

import uuid

import msgspec

from gpudeck import errors
from gpudeck.vendors import contract
from gpudeck.vendors.simulated import machine

_UUIDS = uuid.UUID("6f6d8c6e-2f0c-5d6b-9c3b-0c3f4d1f2a10")

Outcome = tuple[machine.Card, contract.Partition | None]


def act(card: machine.Card, action: contract.Action) -> Outcome:
    """Return the card after the action, and the partition that it made."""
    match action:
        case contract.MakePartition():
            return _make(card, action)
        case contract.RemovePartition():
            return _remove(card, action), None
        case contract.SetPartitioning():
            return _set_mode(card, enabled=action.enabled, may_reset=action.may_reset), None
        case contract.SetTimeSlice() if card.reading.share_support.time_slicing:
            return card, None
        case contract.JoinMps(share_id=share_id) if card.reading.share_support.mps:
            joined = {*card.reading.mps_shares, share_id}
            return _with(card, mps_shares=tuple(sorted(joined))), None
        case contract.LeaveMps(share_id=share_id):
            staying = [each for each in card.reading.mps_shares if share_id not in ("", each)]
            return _with(card, mps_shares=tuple(staying)), None
    text = f"{card.site.address}: {type(action).__name__} is not offered for this card."
    raise errors.UnsupportedError(text, reason="ActionUnsupported")


def reset(card: machine.Card) -> machine.Card:
    """Return the card after a reset: without partitions, and in its pending mode."""
    if card.used:
        text = f"{card.site.address}: a process uses the card."
        raise errors.BusyError(text, reason="CardInUse")
    if card.reset_fails is not None:
        raise errors.UnavailableError(card.reset_fails.message, reason=card.reset_fails.reason)
    return _with(card, mode=card.reading.pending_mode, partitions=())


def _make(card: machine.Card, action: contract.MakePartition) -> Outcome:
    address = card.site.address
    profile = _profile(card, action)
    card = _set_mode(card, enabled=True)
    for there in card.reading.partitions:
        place = contract.Placement(start=there.start, size=there.size)
        if there.profile_id == action.profile_id and place == action.placement:
            return card, there
        if _overlap(place, action.placement):
            text = f"{address}: the place is taken by {there.profile} at {there.start}."
            raise errors.ConflictError(text, reason="PartitionConflict")
    if card.making_fails:
        text = f"{address}: the partition cannot be made."
        raise errors.UnavailableError(text, reason="SimulatedFailure")
    made = _partition(address, profile, action.placement)
    partitions = sorted((*card.reading.partitions, made), key=lambda each: each.start)
    return _with(card, partitions=tuple(partitions)), made


def _partition(
    address: str, profile: contract.PartitionProfile, placement: contract.Placement
) -> contract.Partition:
    name = f"{address}/{profile.profile_id}/{placement.start}"
    return contract.Partition(
        profile=profile.name,
        uuid=f"MIG-{uuid.uuid5(_UUIDS, name)}",
        start=placement.start,
        size=placement.size,
        profile_id=profile.profile_id,
        driver_id=str(placement.start),
    )


def _profile(card: machine.Card, action: contract.MakePartition) -> contract.PartitionProfile:
    for profile in card.reading.profiles:
        if profile.profile_id == action.profile_id and action.placement in profile.placements:
            return profile
    text = f"{card.site.address}: there is no profile {action.profile_id} at that place."
    raise errors.UnsupportedError(text, reason="PartitionUnsupported")


def _remove(card: machine.Card, action: contract.RemovePartition) -> machine.Card:
    kept = tuple(
        each
        for each in card.reading.partitions
        if (each.profile_id, each.start) != (action.profile_id, action.placement.start)
    )
    if len(kept) < len(card.reading.partitions) and card.used:
        text = f"{card.site.address}: a process still uses the partition."
        raise errors.BusyError(text, reason="PartitionInUse")
    return _with(card, partitions=kept)


def _set_mode(card: machine.Card, *, enabled: bool, may_reset: bool = False) -> machine.Card:
    address, reading = card.site.address, card.reading
    modes = contract.PartitioningMode
    wanted = modes.ENABLED if enabled else modes.DISABLED
    if reading.mode is wanted:
        return card if reading.pending_mode is wanted else _with(card, pending_mode=wanted)
    if reading.mode is modes.NOT_AVAILABLE:
        text = f"{address}: the card cannot be partitioned."
        raise errors.UnsupportedError(text, reason="PartitioningNotAvailable")
    if not reading.dynamic and not may_reset:
        text = f"{address}: the mode needs a reset of the card."
        raise errors.UnsupportedError(text, reason="PartitioningNeedsReset")
    if reading.partitions:
        text = f"{address}: the card has partitions."
        raise errors.BusyError(text, reason="CardPartitioned")
    if card.used:
        text = f"{address}: a process uses the card."
        raise errors.BusyError(text, reason="CardInUse")
    if not reading.dynamic:
        return _with(card, pending_mode=wanted)
    return _with(card, mode=wanted, pending_mode=wanted)


def _with(card: machine.Card, **changes: object) -> machine.Card:
    return msgspec.structs.replace(card, reading=msgspec.structs.replace(card.reading, **changes))


def _overlap(one: contract.Placement, other: contract.Placement) -> bool:
    return one.start < other.start + other.size and other.start < one.start + one.size
