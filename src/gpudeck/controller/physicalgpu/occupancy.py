# SPDX-License-Identifier: Apache-2.0
"""How much of a card is held, from the claims that hold it. Pure."""

from __future__ import annotations

from gpudeck.api import names
from gpudeck.api.v1alpha1.physicalgpu import (
    Capabilities,
    HeldMemory,
    HolderClaim,
    Occupancy,
    OccupancyState,
    PartitionProfile,
    PhysicalGPU,
)


def of(gpu: PhysicalGPU, holders: list[HolderClaim]) -> Occupancy:
    """Return the occupancy of a card: one holder of it whole has all, others have their parts."""
    can = gpu.status.capabilities if gpu.status else None
    total = can.memory_mib if can else None
    parts = [_part(each, can) for each in holders]
    is_whole = any(part is None for part in parts)
    used = sum(part.memory for part in parts if part is not None)
    slices = sum(part.slices for part in parts if part is not None)
    support = can.partition_support if can else None
    is_cut_up = bool(support and support.total_slices and slices >= support.total_slices)
    state = OccupancyState.FREE
    if holders:
        is_full = is_whole or is_cut_up or (total is not None and used >= total)
        state = OccupancyState.FULL if is_full else OccupancyState.PARTIAL
    memory = None
    if total is not None:
        memory = HeldMemory(total=total, used=total if is_whole else min(used, total))
    return Occupancy(state=state, memory_mib=memory, claims=holders or None)


class _Part:
    """What a holder has of the card: MiB and compute slices."""

    def __init__(self, memory: int, slices: int = 0) -> None:
        self.memory, self.slices = memory, slices


def _part(holder: HolderClaim, can: Capabilities | None) -> _Part | None:
    """The part that a holder has; None for all of the card."""
    named = names.parse_device(holder.device)
    if named is not None and named.profile_id is not None:
        profile = _profile(can, named.profile_id)
        return _Part(profile.memory_mib, profile.slices) if profile else _Part(0)
    return _Part(holder.memory_mib or 0) if holder.share_id else None


def _profile(can: Capabilities | None, profile_id: int) -> PartitionProfile | None:
    support = can.partition_support if can else None
    known = (support.profiles if support else None) or []
    return next((each for each in known if each.profile_id == profile_id), None)
