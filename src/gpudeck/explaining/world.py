# SPDX-License-Identifier: Apache-2.0
"""A snapshot of what the API tells about GPUs, and the parts of a pod that place it.

Made by `cli.reading`. A kind that is not served is simply empty, so everything
here also works on a cluster that has NVIDIA's device plugin or DRA driver and no
gpudeck. A kind that the caller may not read is named in `unreadable`.
"""

from __future__ import annotations

import dataclasses

import msgspec

from gpudeck.api.core import Event, Node, Pod
from gpudeck.api.meta import ObjectMeta, Wire
from gpudeck.api.resource import (
    ClaimSpec,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU


class TemplateSpec(Wire):
    spec: ClaimSpec | None = None


class ResourceClaimTemplate(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: TemplateSpec | None = None


class SelectorRequirement(Wire):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(Wire):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(Wire):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(Wire):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire):
    node_affinity: NodeAffinity | None = None


class SchedulingGate(Wire):
    name: str = ""


class PlacementSpec(Wire):
    affinity: Affinity | None = None
    scheduling_gates: list[SchedulingGate] | None = None


class Placement(Wire):
    """The parts of a Pod that only its explanation reads."""

    spec: PlacementSpec | None = None


@dataclasses.dataclass
class World:
    """Objects by name, or by "namespace/name"."""

    nodes: dict[str, Node] = dataclasses.field(default_factory=dict)
    pods: dict[str, Pod] = dataclasses.field(default_factory=dict)
    claims: dict[str, ResourceClaim] = dataclasses.field(default_factory=dict)
    templates: dict[str, ResourceClaimTemplate] = dataclasses.field(default_factory=dict)
    taint_rules: dict[str, DeviceTaintRule] = dataclasses.field(default_factory=dict)
    slices: list[ResourceSlice] = dataclasses.field(default_factory=list)
    device_classes: dict[str, DeviceClass] = dataclasses.field(default_factory=dict)
    gpu_classes: dict[str, GPUClass] = dataclasses.field(default_factory=dict)
    gpus: dict[str, PhysicalGPU] = dataclasses.field(default_factory=dict)
    events: list[Event] = dataclasses.field(default_factory=list)
    """Of the pod that is explained."""
    unreadable: list[str] = dataclasses.field(default_factory=list)

    def is_ready(self, node: str) -> bool:
        """Whether the node is there and says that it is Ready."""
        found = self.nodes.get(node)
        conditions = (found.status.conditions if found and found.status else None) or []
        return any(each.type == "Ready" and each.status == "True" for each in conditions)


def is_over(pod: Pod) -> bool:
    """Whether the pod has ended, so that it holds and asks nothing."""
    return pod.status is not None and pod.status.phase in ("Succeeded", "Failed")


def node_of(pod: Pod) -> str:
    """Return the node that the pod is bound to, "" for none."""
    return (pod.spec.node_name if pod.spec else None) or ""
