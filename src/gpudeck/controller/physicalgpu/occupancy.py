# SPDX-License-Identifier: Apache-2.0
"""How much of a card is held, from the claims and the containers that hold it. Pure.

Claims hold cards in DRA mode; in the other mode the device plugin says which containers
have which of its devices.
"""

from __future__ import annotations

from fractions import Fraction

from gpudeck.api import names
from gpudeck.api.v1alpha1.physicalgpu import (
    Capabilities,
    HeldMemory,
    HolderClaim,
    HolderPod,
    Occupancy,
    OccupancyState,
    PartitionProfile,
    PhysicalGPU,
)


def of(gpu: PhysicalGPU, holders: list[HolderClaim]) -> Occupancy:
    """Return the occupancy of a card: one holder of it whole has all, others have their parts.

    Of `occupancy.plugin`, which the device plugin writes, it is what the object says.
    """
    can = gpu.status.capabilities if gpu.status else None
    plugin = by_plugin(gpu)
    total = can.memory_mib if can else None
    parts = [_part(each, can) for each in holders]
    parts += [_part_by_plugin(each, can) for each in plugin]
    is_whole = any(part is None for part in parts)
    used = int(sum(part.memory for part in parts if part is not None))
    slices = sum(part.slices for part in parts if part is not None)
    shares = sum(part.share for part in parts if part is not None)
    support = can.partition_support if can else None
    is_cut_up = bool(support and support.total_slices and slices >= support.total_slices)
    state = OccupancyState.FREE
    if parts:
        is_full = is_whole or is_cut_up or shares >= 1 or (total is not None and used >= total)
        state = OccupancyState.FULL if is_full else OccupancyState.PARTIAL
    memory = None
    if total is not None:
        memory = HeldMemory(total=total, used=total if is_whole else min(used, total))
    return Occupancy(
        state=state, memory_mib=memory, claims=holders or None, plugin=list(plugin) or None
    )


def by_plugin(gpu: PhysicalGPU) -> list[HolderPod]:
    """Return the containers that have something of the card from the device plugin."""
    found = gpu.status.occupancy if gpu.status else None
    return (found.plugin if found else None) or []


class _Part:
    """What a holder has of the card: MiB, compute slices, and what fraction of it as a replica."""

    def __init__(self, memory: Fraction | int, slices: Fraction | int = 0) -> None:
        self.memory, self.slices = memory, slices
        self.share = Fraction(0)


def _part(holder: HolderClaim, can: Capabilities | None) -> _Part | None:
    """The part that a holder has; None for all of the card."""
    named = names.parse_device(holder.device)
    if named is not None and named.profile_id is not None:
        profile = next(
            (each for each in _profiles(can) if each.profile_id == named.profile_id), None
        )
        return _Part(profile.memory_mib, profile.slices) if profile else _Part(0)
    return _Part(holder.memory_mib or 0) if holder.share_id else None


def _part_by_plugin(holder: HolderPod, can: Capabilities | None) -> _Part | None:
    """The same of a container; a replica without a limit counts with an equal part."""
    is_replica = _REPLICA in holder.device
    share = Fraction(1, holder.replicas or 1) if is_replica and holder.replicas else Fraction(0)
    if holder.profile:
        profile = next((each for each in _profiles(can) if each.name == holder.profile), None)
        if profile is None:
            return _Part(0)
        of_it = share if is_replica else 1
        return _Part(of_it * profile.memory_mib, of_it * profile.slices)
    if not is_replica:
        return None
    total = can.memory_mib if can else None
    limit = holder.memory_mib
    part = _Part(limit if limit is not None else share * (total or 0))
    part.share = share
    return part


_REPLICA = "::"
"""In the id of a device that is one of several replicas of a card or partition."""


def _profiles(can: Capabilities | None) -> list[PartitionProfile]:
    support = can.partition_support if can else None
    return (support.profiles if support else None) or []
