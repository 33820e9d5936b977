# SPDX-License-Identifier: Apache-2.0
"""Why a card that could be cut or shared offers nothing to a class. Pure."""

from __future__ import annotations

from gpudeck.api import conditions, labels, quantities, selectors
from gpudeck.api.core import Node
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.api.v1alpha1.physicalgpu import PartitionSupport, PhysicalGPU
from gpudeck.devices import profiles
from gpudeck.explaining.reasons import Obstacle, Reason
from gpudeck.explaining.world import World
from gpudeck.mig import defaults

_RESOURCE = "nvidia.com/mig-"
_STRATEGY = "nvidia.com/mig.strategy"
"""On Node: how partitions are named there, by GPU feature discovery; absent for `none`."""


def makeable(resource: str, world: World) -> str:
    """Say what would make the partitions that a resource names; "" where no card can have them."""
    wanted = resource.removeprefix(_RESOURCE)
    found: dict[str, list[Node | None]] = {}
    for gpu in world.gpus.values() if wanted != resource else ():
        support = _support(gpu)
        for each in (support.profiles if support else None) or ():
            if profiles.spelled(each.name) == wanted:
                node = world.nodes.get((gpu.metadata.labels or {}).get(labels.NODE, ""))
                found.setdefault(each.name, []).append(node)
    if not found:
        return ""
    profile, nodes = next(iter(found.items()))
    ways = []
    if any(_label(each, labels.ACTIVE_MODE) != labels.MODE_DRA for each in nodes):
        mixed = any(_label(each, _STRATEGY) == "mixed" for each in nodes)
        by_name = "" if mixed else ", and the MIG strategy mixed offers them by that name"
        config = f"{labels.MIG_CONFIG}={defaults.name_of(profile)}"
        ways.append(f"the label {config} of a Node makes them on its cards{by_name}")
    if any(_label(each, labels.ACTIVE_MODE) == labels.MODE_DRA for each in nodes):
        ways.append(
            "on nodes in DRA mode a GPUClass offers them that has this extendedResourceName, "
            f"devices [Partition] and partition.profiles [{profile}]"
        )
    can = "1 card can" if len(nodes) == 1 else f"{len(nodes)} cards can"
    return f"; {can} have such partitions: {'; '.join(ways)}"


def _label(node: Node | None, name: str) -> str:
    return ((node.metadata.labels if node else None) or {}).get(name, "")


def missed(spec: GPUClassSpec, gpu: PhysicalGPU) -> str:
    """Say why no partition of the card can be of the class; "" if one can."""
    support = _support(gpu)
    if support is None or not support.supported:
        return "it cannot be partitioned"
    profiles = support.profiles or []
    if any(
        selectors.takes_profile(spec, each.name, each.memory_mib * quantities.MEBIBYTE)
        for each in profiles
    ):
        return ""
    rules = selectors.kind_rules(spec, gpuclass.PARTITION)[1:]
    wanted = "; ".join(f"{rule.field} must be {rule.wanted}" for rule in rules)
    names = ", ".join(profile.name for profile in profiles)
    return f"{wanted}, its profiles are {names}"


def obstacle(spec: GPUClassSpec, gpu: PhysicalGPU, *, has_parts: bool) -> Obstacle | None:
    """Say why the card does not offer what the class asks for; None if nothing known hinders.

    `has_parts`: partitions or shares of it are offered.
    """
    kinds = selectors.kinds(spec)
    status = gpu.status
    current = status.current_state if status else None
    mode = current.partitioning.mode if current and current.partitioning else ""
    support = _support(gpu)
    published = conditions.find(status.conditions if status else None, conditions.PUBLISHED)
    withheld = published is not None and published.reason == conditions.PARTS_WITHHELD
    if withheld and gpuclass.WHOLE not in kinds:
        return Reason.NOT_PUBLISHED, f"its parts are not: {conditions.PARTS_UNGUARDED}"
    if kinds == [gpuclass.PARTITION] and mode == "Disabled" and support and not support.dynamic:
        return (
            Reason.PARTITIONING_OFF,
            f"the label {labels.MIG_MODE}=enabled of the card or its node turns the mode on, "
            "which takes a reset of the card",
        )
    if gpuclass.PARTITION not in kinds and mode == "Enabled" and support and not support.dynamic:
        return (
            Reason.PARTITIONING_ON,
            ("it is offered in partitions; " if has_parts else "")
            + f"the label {labels.MIG_MODE}=disabled of the card or its node turns the mode off, "
            "which takes a reset of the card",
        )
    if kinds == [gpuclass.SHARE] and spec.share and spec.share.strategy == gpuclass.MPS:
        return (
            Reason.NOT_PUBLISHED,
            "MPS has to be enabled on its node, and the card's compute capability be 7.0 or more",
        )
    return None


def _support(gpu: PhysicalGPU) -> PartitionSupport | None:
    can = gpu.status.capabilities if gpu.status else None
    return can.partition_support if can else None
