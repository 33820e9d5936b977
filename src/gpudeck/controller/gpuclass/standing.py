# SPDX-License-Identifier: Apache-2.0
"""What one card counts as: what it offers, what of that is held, what is left.

Pure; `tally` adds it up. A card is offered whole, in partitions and in shares, and whoever
holds it in one way keeps it from the other two (`dra/offering` publishes it so).
"""

from __future__ import annotations

import msgspec

from gpudeck.api import attributes, conditions, names
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.physicalgpu import (
    CurrentState,
    Occupancy,
    PhysicalGPU,
    PhysicalGPUStatus,
)
from gpudeck.controller import models
from gpudeck.controller.physicalgpu import phase
from gpudeck.devices import cutting

_ENABLED = "Enabled"


class Room(msgspec.Struct, frozen=True):
    """What a card gives: itself as one piece or in shares, or partitions."""

    whole: bool = False
    sliced: bool = False
    """Whether it can be had in shares that take turns."""
    mps: bool = False
    """Whether it can be had in shares by MPS."""
    parts: cutting.Room | None = None


NOTHING = Room()


class Held(msgspec.Struct, frozen=True):
    """What claims hold of a card."""

    whole: int = 0
    shares: int = 0
    mps_shares: int = 0
    partitions: tuple[tuple[str, int, int], ...] = ()
    """Profile as the device's name has it, number of the profile, start."""


_FREE = Held()


class Standing(msgspec.Struct, frozen=True):
    """One card, which is in the cluster."""

    offered: Room = NOTHING
    """What it would give if no claim held any of it."""
    left: Room = NOTHING
    """What a claim could get of it now."""
    held: Held = _FREE
    share_mib: int = 0
    """Memory that claims for time-sliced shares could get now."""
    mps_share_mib: int = 0
    """Memory that claims for shares by MPS could get now."""


def of(gpu: PhysicalGPU, *, attended: bool) -> Standing | None:
    """Return what a card counts as; None for one that is lost.

    `attended` is whether somebody answers for the conditions; if nobody does, nothing is offered.
    """
    status = gpu.status
    if status is None or phase.is_lost(gpu):
        return None
    held = _held(status.occupancy)
    if not attended or not phase.is_for_claims(gpu):
        return Standing(held=held)
    support = status.capabilities.partition_support if status.capabilities else None
    model = models.of(support)
    foreign = _foreign(status.current_state, model, held)
    offered = _offered(status, model, foreign)
    if not phase.is_usable(gpu, attended=attended):
        return Standing(offered=offered, held=held)
    return Standing(
        offered=offered,
        left=_left(offered, model, foreign, held),
        held=held,
        share_mib=_share_mib(status, held) if offered.sliced and not held.mps_shares else 0,
        mps_share_mib=_share_mib(status, held) if offered.mps and not held.shares else 0,
    )


def _held(found: Occupancy | None) -> Held:
    whole = shares = mps_shares = 0
    partitions = []
    for claim in (found.claims if found else None) or ():
        named = names.parse_device(claim.device)
        if named is None:
            continue
        if named.profile_id is not None and named.start is not None:
            partitions.append((named.profile, named.profile_id, named.start))
        elif named.type == attributes.TYPE_GPU:
            whole = 1
        elif named.mps:
            mps_shares += 1
        else:
            shares += 1
    if not (whole or shares or mps_shares or partitions):
        return _FREE
    return Held(whole, shares, mps_shares, tuple(sorted(partitions)))


Places = frozenset[tuple[int, int]]
"""Numbers of profiles with the start of a partition."""


def _foreign(current: CurrentState | None, model: cutting.Model | None, held: Held) -> Places:
    """The partitions that no claim holds: made by somebody else, or about to go."""
    cut = current.partitioning if current else None
    if cut is None or not cut.partitions or model is None:
        return frozenset()
    numbers = {each.name: each.profile_id for each in model.profiles}
    ours = {(profile_id, start) for _, profile_id, start in held.partitions}
    found = set()
    for each in cut.partitions:
        start = (each.placement or "").partition(":")[0]
        place = (numbers.get(each.profile, -1), int(start) if start.isdigit() else -1)
        if place not in ours:
            found.add(place)
    return frozenset(found)


def _offered(status: PhysicalGPUStatus, model: cutting.Model | None, foreign: Places) -> Room:
    """What a card that is published offers, by the rules of `dra/offering`."""
    can, current = status.capabilities, status.current_state
    cut = current.partitioning if current else None
    is_enabled = cut is not None and cut.mode == _ENABLED
    support = can.partition_support if can else None
    is_dynamic = bool(support and support.dynamic)
    whole = not foreign and (is_dynamic or not is_enabled)
    published = conditions.find(status.conditions, conditions.PUBLISHED)
    if published is not None and published.reason == conditions.PARTS_WITHHELD:
        return Room(whole=whole)
    parts = None
    if model is not None and (is_dynamic or is_enabled):
        parts = cutting.room(model, foreign)
    strategies = (can.share_strategies if can else None) or ()
    by_mps = whole and gpuclass.MPS in strategies
    return Room(whole=whole, sliced=whole, mps=by_mps, parts=parts)


def _left(offered: Room, model: cutting.Model | None, foreign: Places, held: Held) -> Room:
    if held is _FREE:
        return offered
    if model is None or offered.parts is None or held.whole or held.shares or held.mps_shares:
        return NOTHING
    taken = {(profile_id, start) for _, profile_id, start in held.partitions}
    return Room(whole=False, parts=cutting.room(model, foreign | taken))


def _share_mib(status: PhysicalGPUStatus, held: Held) -> int:
    """Memory that is left for shares, in MiB: none where the card is held otherwise."""
    total = status.capabilities.memory_mib if status.capabilities else None
    if total is None or held.whole or held.partitions:
        return 0
    memory = status.occupancy.memory_mib if status.occupancy else None
    return max(total - (memory.used if memory else 0), 0)
