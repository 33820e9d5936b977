# SPDX-License-Identifier: Apache-2.0
"""The phase of a card: its conditions and its holders in one word, for people.

Pure. What hinders a card most is what is said; nothing reads a phase back but the
counts of the classes, which want the very same verdict.
"""

from __future__ import annotations

from gpudeck.api import conditions
from gpudeck.api.v1alpha1.physicalgpu import Occupancy, OccupancyState, Phase, PhysicalGPU

_NOBODY = Occupancy(state=OccupancyState.FREE)


def of(gpu: PhysicalGPU, occupancy: Occupancy, *, attended: bool) -> Phase:
    """Return the phase. Order: gone, broken, without driver, held, free, not looked at yet.

    `attended` is whether somebody answers for the conditions: a card of which nobody does is
    not Ready.
    """
    if is_lost(gpu):
        return Phase.LOST
    if _status(gpu, conditions.HARDWARE_HEALTHY) == conditions.FALSE:
        return Phase.FAULTY
    driver = _status(gpu, conditions.DRIVER_READY)
    if driver is None:
        return Phase.DISCOVERED
    if driver == conditions.FALSE:
        return Phase.NOT_READY
    if occupancy.state is not OccupancyState.FREE:
        return Phase.IN_USE
    offered = attended and is_published(gpu) and driver == conditions.TRUE
    return Phase.READY if offered else Phase.NOT_READY


def is_lost(gpu: PhysicalGPU) -> bool:
    """Say whether the card disappeared from its node."""
    return _status(gpu, conditions.DISCOVERED) == conditions.FALSE


def is_published(gpu: PhysicalGPU) -> bool:
    """Say whether the card is offered to Kubernetes, in a ResourceSlice or by a device plugin."""
    return _status(gpu, conditions.PUBLISHED) == conditions.TRUE


def is_for_claims(gpu: PhysicalGPU) -> bool:
    """Say whether the card is in a ResourceSlice of its node."""
    found = conditions.find(gpu.status.conditions if gpu.status else None, conditions.PUBLISHED)
    return (
        found is not None
        and found.status == conditions.TRUE
        and found.reason != conditions.OFFERED_BY_PLUGIN
    )


def is_usable(gpu: PhysicalGPU, *, attended: bool) -> bool:
    """Say whether nothing hinders a pod from getting the card but those who hold it."""
    return of(gpu, _NOBODY, attended=attended) is Phase.READY


def lost_since(gpu: PhysicalGPU) -> str | None:
    """Return when a lost card disappeared, None if that is not known."""
    if gpu.status is None:
        return None
    found = conditions.find(gpu.status.conditions, conditions.DISCOVERED)
    changed = found.last_transition_time if found else None
    return gpu.status.lost_since or (changed if isinstance(changed, str) else None)


def reason(gpu: PhysicalGPU, phase: Phase) -> str:
    """Return the sentence of the condition that a bad phase comes from; empty if there is none."""
    kind = {Phase.LOST: conditions.DISCOVERED, Phase.FAULTY: conditions.HARDWARE_HEALTHY}.get(phase)
    found = conditions.find(gpu.status.conditions if gpu.status else None, kind or "")
    if found is None:
        return ""
    return f"{found.reason}: {found.message}" if found.message else found.reason


def _status(gpu: PhysicalGPU, kind: str) -> str | None:
    found = conditions.find(gpu.status.conditions if gpu.status else None, kind)
    return found.status if found else None
