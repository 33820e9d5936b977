# SPDX-License-Identifier: Apache-2.0
"""Whether a node offers anything of its cards in its mode, and if not, why. Pure.

`looking` asks it what a pool of ResourceSlices comes to, and `reconciler` what the node's
PhysicalGPUs say, which whoever offers the cards writes in both modes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gpudeck.api import conditions
from gpudeck.api.meta import ObjectMeta, Wire
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU


class _Pool(Wire):
    generation: int = 0
    resource_slice_count: int = 0


class _Device(Wire):
    name: str = ""


class _Spec(Wire):
    pool: _Pool = msgspec.field(default_factory=_Pool)
    devices: list[_Device] | None = None


class ResourceSlice(Wire):
    """A slice, as far as it says how much the pool has."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


def devices(pool: Iterable[ResourceSlice]) -> int | None:
    """Return how many devices a pool has; None while a slice of its newest generation is missing.

    Which slices count is the scheduler's rule (resource.k8s.io/v1, ResourcePool): those of the
    highest generation, once there are as many as they say.
    """
    found = [each.spec for each in pool]
    newest = max((each.pool.generation for each in found), default=0)
    current = [each for each in found if each.pool.generation == newest]
    if not current or len(current) != current[0].pool.resource_slice_count:
        return None
    return sum(len(each.devices or ()) for each in current)


def why(cards: Iterable[PhysicalGPU], cordoned: Callable[[str], str]) -> str:
    """Return why no card of a node is offered to new pods, as a sentence.

    Empty where one is, or where of one nobody has said yet. `cordoned` says so of a card by its
    name.
    """
    said = {each.metadata.name: cordoned(each.metadata.name) or of_card(each) for each in cards}
    if not said or not all(said.values()):
        return ""
    name = min(said)
    more = f" So it is with {len(said) - 1} more." if len(said) > 1 else ""
    return f"{name}: {said[name]}{more}"


def unattended(cards: Iterable[PhysicalGPU], before: str) -> str:
    """Say that nobody hands out the cards of a node on which no pod that does so is Ready.

    Empty where that was said of one after `before` (metav1.Time): the pod may just be starting.
    """
    known = [each.status.conditions if each.status else None for each in cards]
    found = [conditions.find(each, conditions.PUBLISHED) for each in known]
    if all(each and (each.last_transition_time or before) < before for each in found):
        return "No pod that hands them out is Ready on the node."
    return ""


def of_card(card: PhysicalGPU | None) -> str:
    """Return why a card is not offered, empty where it is or nobody says."""
    known = card.status.conditions if card is not None and card.status else None
    published = conditions.find(known, conditions.PUBLISHED)
    if published is None or published.reason == conditions.MODE_CHANGING:
        return ""  # What was said in the mode before is no word of this one.
    if published.status == conditions.FALSE:
        return published.message or published.reason
    healthy = conditions.find(known, conditions.HARDWARE_HEALTHY)
    if healthy is not None and healthy.status == conditions.FALSE:
        return healthy.message or healthy.reason
    return ""
