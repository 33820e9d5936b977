# SPDX-License-Identifier: Apache-2.0
"""What a pod that has its node lacks, and what ails the cards that it holds. Pure.

Called by `answering`. A pod past kube-scheduler is known by what the scheduler always does first
(Kubernetes 1.37): before it binds a pod it has allocated all its claims, and those of its
extended resources stand in the pod's status.
"""

from __future__ import annotations

from gpudeck.api import conditions
from gpudeck.api.core import Pod
from gpudeck.explaining import asking
from gpudeck.explaining.asking import Ask, Asked
from gpudeck.explaining.cards import Card
from gpudeck.explaining.world import World, node_of

_AILMENTS = {
    conditions.HARDWARE_HEALTHY: "is not healthy",
    conditions.DISCOVERED: "has disappeared",
    conditions.DRIVER_READY: "has no ready driver",
}
"""What it means that a condition of a card is False; the worst is looked for first."""


def unallocated(pod: Pod, asked: Asked, world: World) -> list[Ask]:
    """Return what nothing was allocated for although the pod is bound to a node."""
    if not node_of(pod):
        return []
    return [ask for ask in asked.asks if _is_unallocated(ask, pod, asked, world)]


def _is_unallocated(ask: Ask, pod: Pod, asked: Asked, world: World) -> bool:
    if ask.resource:
        is_by_claim = asking.is_by_dra(pod, ask.resource)
        return not is_by_claim and not _is_by_plugin(ask.resource, pod, world)
    if "resourceclaims" in world.unreadable:
        return False
    claim = world.claims.get(ask.claim) if ask.claim in asked.claims else None
    return claim is None or claim.status is None or claim.status.allocation is None


def _is_by_plugin(resource: str, pod: Pod, world: World) -> bool:
    """Whether the kubelet counts the resource, as for a device plugin; True if nobody can tell."""
    node = world.nodes.get(node_of(pod))
    return node is None or resource in ((node.status.capacity if node.status else None) or {})


def ailment(card: Card) -> str:
    """Say what is wrong with a card, why and since when; "" for one that is well."""
    status = card.gpu.status if card.gpu else None
    for kind, said in _AILMENTS.items():
        found = conditions.find(status.conditions if status else None, kind)
        if found is None or found.status != conditions.FALSE:
            continue
        since = f" since {found.last_transition_time}" if found.last_transition_time else ""
        why = f"{found.reason}: {found.message}" if found.message else found.reason
        return f"{said}{since} ({why.rstrip('.')})"
    return ""
