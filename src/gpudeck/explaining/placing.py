# SPDX-License-Identifier: Apache-2.0
"""Whether a pod may go to a node at all: readiness, cordon, selector, affinity, taints.

Pure; the rules of kube-scheduler 1.37's NodeAffinity, TaintToleration and
NodeUnschedulable, as far as they concern one node and one pod.
"""

from __future__ import annotations

from gpudeck.api import labels
from gpudeck.api.core import Node, Pod, Taint, Toleration
from gpudeck.explaining import modes
from gpudeck.explaining.reasons import Obstacle, Reason
from gpudeck.explaining.world import NodeSelectorTerm, Placement, SelectorRequirement, World

_BLOCKING = ("NoSchedule", "NoExecute")
_CORDON = "node.kubernetes.io/unschedulable"


def obstacle(name: str, pod: Pod, placement: Placement, world: World) -> Obstacle | None:
    """Return why the pod cannot go to the node, None if it can."""
    node = world.nodes.get(name)
    if node is None:
        if "nodes" in world.unreadable:
            return None
        return Reason.NODE_NOT_READY, f"node {name} does not exist"
    if not world.is_ready(name):
        return Reason.NODE_NOT_READY, f"node {name} is not Ready"
    return (
        _taints(name, node, pod) or _selector(name, node, pod) or _affinity(name, node, placement)
    )


def _taints(name: str, node: Node, pod: Pod) -> Obstacle | None:
    spec = node.spec
    tolerations = (pod.spec.tolerations if pod.spec else None) or []
    cordon = Taint(key=_CORDON, effect="NoSchedule")
    if spec and spec.unschedulable and not _tolerated(cordon, tolerations):
        return Reason.NODE_UNSCHEDULABLE, f"node {name} is cordoned"
    for taint in (spec.taints if spec else None) or ():
        if taint.effect in _BLOCKING and not _tolerated(taint, tolerations):
            if taint.key == labels.MODE_CHANGE and modes.sentence(node):
                return Reason.NODE_CHANGES_MODE, modes.sentence(node)
            value = f"={taint.value}" if taint.value else ""
            return (
                Reason.TAINT_NOT_TOLERATED,
                f"node {name} has the taint {taint.key}{value}:{taint.effect}",
            )
    return None


def _tolerated(taint: Taint, tolerations: list[Toleration]) -> bool:
    for each in tolerations:
        if each.effect and each.effect != taint.effect:
            continue
        if each.key and each.key != taint.key:
            continue
        if each.operator == "Exists" or (each.key and (each.value or "") == (taint.value or "")):
            return True
    return False


def _selector(name: str, node: Node, pod: Pod) -> Obstacle | None:
    known = node.metadata.labels or {}
    for key, value in ((pod.spec.node_selector if pod.spec else None) or {}).items():
        if known.get(key) != value:
            has = f"{key}={known[key]}" if key in known else f"no label {key}"
            return (
                Reason.NODE_SELECTOR_MISMATCH,
                f"nodeSelector asks {key}={value}, node {name} has {has}",
            )
    return None


def _affinity(name: str, node: Node, placement: Placement) -> Obstacle | None:
    affinity = placement.spec.affinity if placement.spec else None
    wanted = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    terms = wanted.node_selector_terms if wanted else None
    if not terms or any(_term_holds(term, node) for term in terms):
        return None
    return (
        Reason.NODE_SELECTOR_MISMATCH,
        f"the pod's required node affinity does not admit node {name}",
    )


def _term_holds(term: NodeSelectorTerm, node: Node) -> bool:
    parts = [
        *((each, node.metadata.labels or {}) for each in term.match_expressions or ()),
        *((each, {"metadata.name": node.metadata.name}) for each in term.match_fields or ()),
    ]
    return bool(parts) and all(_requirement_holds(each, known) for each, known in parts)


def _requirement_holds(wanted: SelectorRequirement, known: dict[str, str]) -> bool:
    value, values = known.get(wanted.key), wanted.values or []
    if wanted.operator in ("Exists", "DoesNotExist"):
        return (value is not None) == (wanted.operator == "Exists")
    if wanted.operator in ("In", "NotIn"):
        return (value in values) == (wanted.operator == "In")
    if value is None or not values:
        return False
    try:
        number, bound = int(value), int(values[0])
    except ValueError:
        return False
    return number > bound if wanted.operator == "Gt" else number < bound
