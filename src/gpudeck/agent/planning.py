# SPDX-License-Identifier: Apache-2.0
"""What to write so that an object says what its card is: nothing, its metadata, its status.

Pure. An object is deleted here only if nobody can hold its card: what the controller
keeps occupancy of, the controller deletes. No card is called lost before the whole bus
has been read once, and one that is there but unreadable is not lost.
"""

from __future__ import annotations

import msgspec

from gpudeck.agent import describing
from gpudeck.agent.discovering import Inventory
from gpudeck.api import conditions
from gpudeck.api.meta import Condition, ObjectMeta
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU, PhysicalGPUStatus


class Plan(msgspec.Struct, frozen=True):
    """What to write; all unset = nothing. Metadata before status."""

    metadata: ObjectMeta | None = None
    status: PhysicalGPUStatus | None = None
    is_delete: bool = False


NOTHING = Plan()


def present(metadata: ObjectMeta, status: PhysicalGPUStatus, known: PhysicalGPU | None) -> Plan:
    """Make or correct the object of a card that is on the bus."""
    return Plan(
        metadata=None if known is not None and _same_metadata(metadata, known) else metadata,
        status=None if known is not None and same_status(status, known.status) else status,
    )


def absent(name: str, seen: Inventory, known: PhysicalGPU, now: str) -> Plan:
    """Say of an object without a card in `seen` what has become of it, or delete it."""
    unreadable = seen.unreadable.get(name)
    if unreadable is not None:
        condition = describing.discovered(
            conditions.UNKNOWN, describing.CARD_UNREADABLE, f"The card cannot be read: {unreadable}"
        )
        return _restated(known, condition, None)
    is_present = name in seen.present
    if not _may_be_held(known, is_unwanted=is_present):
        return Plan(is_delete=True)
    since = (known.status.lost_since if known.status else None) or now
    if is_present:
        condition = describing.discovered(
            conditions.FALSE,
            describing.CARD_NOT_SUPPORTED,
            "The card is on the PCI bus, but gpu-supported-vendors does not name its vendor "
            "and class.",
        )
    else:
        condition = describing.discovered(
            conditions.FALSE,
            describing.CARD_LOST,
            f"The card is missing from the PCI bus of its node since {since}.",
        )
    return _restated(known, condition, since)


def _may_be_held(known: PhysicalGPU, *, is_unwanted: bool) -> bool:
    """Whether a claim may name the card.

    Without occupancy no controller has looked yet, and nothing can have been published.
    A card that was taken out of the list goes as soon as no claim names it; one that
    fell off the bus is kept for a while, and the controller counts the time.
    """
    occupancy = known.status.occupancy if known.status else None
    if occupancy is None:
        return False
    return bool(occupancy.claims) if is_unwanted else True


def _restated(known: PhysicalGPU, condition: Condition, since: str | None) -> Plan:
    wanted = describing.not_found(known.status, condition, since)
    return NOTHING if same_status(wanted, known.status) else Plan(status=wanted)


def same_status(wanted: PhysicalGPUStatus, known: PhysicalGPUStatus | None) -> bool:
    """Whether `known` says all that `wanted` says, in the fields of the node agent."""
    return known is not None and _owned(wanted) == _owned(known)


def _owned(status: PhysicalGPUStatus) -> tuple[object, ...]:
    state = status.current_state
    condition = conditions.find(status.conditions, conditions.DISCOVERED)
    return (
        status.node_info,
        status.pci_info,
        state.driver_type if state else None,
        (condition.status, condition.reason, condition.message) if condition else None,
        status.lost_since,
    )


def _same_metadata(wanted: ObjectMeta, known: PhysicalGPU) -> bool:
    labels = known.metadata.labels or {}
    owners = {owner.uid for owner in known.metadata.owner_references or ()}
    return all(labels.get(key) == value for key, value in (wanted.labels or {}).items()) and all(
        owner.uid in owners for owner in wanted.owner_references or ()
    )
