# SPDX-License-Identifier: Apache-2.0
"""How much of a card is held, from the claims that hold it. Pure."""

from __future__ import annotations

from gpudeck.api.v1alpha1.physicalgpu import (
    HeldMemory,
    HolderClaim,
    Occupancy,
    OccupancyState,
    PhysicalGPU,
)


def of(gpu: PhysicalGPU, holders: list[HolderClaim]) -> Occupancy:
    """Return the occupancy of a card: a device is a whole card, so one holder has all of it."""
    total = gpu.status.capabilities.memory_mib if gpu.status and gpu.status.capabilities else None
    memory = None
    if total is not None:
        memory = HeldMemory(total=total, used=total if holders else 0)
    return Occupancy(
        state=OccupancyState.FULL if holders else OccupancyState.FREE,
        memory_mib=memory,
        claims=holders or None,
    )
