# SPDX-License-Identifier: Apache-2.0
"""Objects of the core and coordination groups, typed as far as gpudeck reads them.

Every field is optional even where the API calls it required: servers send
`containers: null` in bookmarks.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpudeck.api.meta import ObjectMeta, ObjectReference, Wire
from gpudeck.api.schema import doc


class Taint(Wire):
    key: Annotated[str, doc("Its name.")] = ""
    value: Annotated[str | None, doc("Its value.")] = None
    effect: Annotated[str, doc("NoSchedule, PreferNoSchedule or NoExecute.")] = ""
    time_added: Annotated[
        str | None, doc("When a taint with the effect NoExecute was added.", format="date-time")
    ] = None


class NodeSpec(Wire):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeSystem(Wire):
    boot_id: str | None = msgspec.field(default=None, name="bootID")
    kernel_version: str | None = None
    os_image: str | None = None
    kubelet_version: str | None = None


class NodeCondition(Wire):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class NodeStatus(Wire):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: list[NodeCondition] | None = None
    node_info: NodeSystem | None = None


class Node(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class OwnedSpec(Wire):
    """Which fields of a Node's spec somebody has written; each that is there is an empty map."""

    unschedulable: dict[str, str] | None = msgspec.field(default=None, name="f:unschedulable")


class OwnedFields(Wire):
    spec: OwnedSpec | None = msgspec.field(default=None, name="f:spec")


class FieldsOwner(Wire):
    """An entry of `metadata.managedFields`: what the API server knows to be written by whom."""

    manager: str = ""
    fields: OwnedFields | None = msgspec.field(default=None, name="fieldsV1")


class OwnedMeta(ObjectMeta):
    managed_fields: list[FieldsOwner] | None = None


class OwnedNode(Node):
    """A Node with who wrote its fields, as far as that is read."""

    metadata: OwnedMeta = msgspec.field(default_factory=OwnedMeta)

    def cordoned_by(self) -> frozenset[str]:
        """Who has cordoned it; nobody where it is not."""
        is_cordoned = self.spec is not None and bool(self.spec.unschedulable)
        return frozenset(
            each.manager
            for each in (self.metadata.managed_fields if is_cordoned else None) or ()
            if each.fields and each.fields.spec and each.fields.spec.unschedulable is not None
        )


class ContainerClaim(Wire):
    """An entry of a container's `resources.claims`."""

    name: str = ""
    request: str | None = None


class ResourceRequirements(Wire):
    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None
    claims: list[ContainerClaim] | None = None


class Container(Wire):
    name: str = ""
    image: str | None = None
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None


class PodResourceClaim(Wire):
    """An entry of `spec.resourceClaims`: a claim by name or by template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class Toleration(Wire):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class PodSpec(Wire):
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    tolerations: list[Toleration] | None = None
    scheduler_name: str | None = None


class PodCondition(Wire):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class PodClaimStatus(Wire):
    """An entry of `status.resourceClaimStatuses`: which claim a template made."""

    name: str = ""
    resource_claim_name: str | None = None


class ExtendedResourceMapping(Wire):
    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimStatus(Wire):
    """The claim that the scheduler made for extended resources (KEP-5004)."""

    resource_claim_name: str = ""
    request_mappings: list[ExtendedResourceMapping] | None = None

    def covers(self, resource: str) -> bool:
        """Whether the claim is for this resource: its pod may have others from a device plugin."""
        mapped = self.request_mappings or ()
        return not mapped or any(each.resource_name == resource for each in mapped)


class PodStatus(Wire):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: list[PodCondition] | None = None
    resource_claim_statuses: list[PodClaimStatus] | None = None
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class Pod(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec | None = None
    status: PodStatus | None = None


class ConfigMap(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    data: dict[str, str] | None = None


class Secret(Wire):
    """`data` is base64 on the wire and bytes here."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    data: dict[str, bytes] | None = None


class LeaseSpec(Wire):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: LeaseSpec | None = None


class Event(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    involved_object: ObjectReference | None = None
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
