# SPDX-License-Identifier: Apache-2.0
"""Objects of `resource.k8s.io/v1` (Kubernetes 1.34 to 1.37), typed as far as gpudeck uses them.

A field that is kept undecoded is `Raw | UnsetType`: with `| None` msgspec takes null alone.
Slices have all fields of these versions, so that one that somebody added is seen.
"""

from __future__ import annotations

import msgspec

from gpudeck.api.meta import Condition, ObjectMeta, Wire


class CELSelector(Wire):
    expression: str = ""


class DeviceSelector(Wire):
    cel: CELSelector | None = None


class OpaqueConfig(Wire):
    driver: str = ""
    parameters: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ClassConfig(Wire):
    opaque: OpaqueConfig | None = None


class DeviceClassSpec(Wire):
    selectors: list[DeviceSelector] | None = None
    config: list[ClassConfig] | None = None
    extended_resource_name: str | None = None


class DeviceClass(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeviceClassSpec | None = None


class DeviceToleration(Wire):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class CapacityRequirements(Wire):
    """`requests`: least amounts of capacities by name; of a shared device, what is consumed."""

    requests: dict[str, str | int] | None = None


class ExactRequest(Wire):
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None


class SubRequest(Wire):
    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str | None = None
    count: int | None = None
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None


class DeviceRequest(Wire):
    """One request of a claim: `exactly` one kind of device, or the first available of several."""

    name: str = ""
    exactly: ExactRequest | None = None
    first_available: list[SubRequest] | None = None


class DeviceConstraint(Wire):
    requests: list[str] | None = None
    match_attribute: str | None = None


class ClaimConfig(Wire):
    """An entry of `spec.devices.config`; no `requests` means all of them."""

    requests: list[str] | None = None
    opaque: OpaqueConfig | None = None


class ClaimDevices(Wire):
    requests: list[DeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None
    config: list[ClaimConfig] | None = None


class ClaimSpec(Wire):
    devices: ClaimDevices | None = None


class AllocatedDevice(Wire):
    """An entry of `status.allocation.devices.results`."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, str] | None = None


class AllocatedConfig(Wire):
    """An entry of `status.allocation.devices.config`; `source` is FromClass or FromClaim."""

    source: str = ""
    requests: list[str] | None = None
    opaque: OpaqueConfig | None = None


class AllocatedDevices(Wire):
    results: list[AllocatedDevice] | None = None
    config: list[AllocatedConfig] | None = None


class Allocation(Wire):
    devices: AllocatedDevices | None = None
    allocation_timestamp: str | None = None


class Consumer(Wire):
    """An entry of `status.reservedFor`; a pod has resource `pods` and no group."""

    api_group: str | None = None
    resource: str = ""
    name: str = ""
    uid: str = ""


class ClaimDeviceStatus(Wire):
    """An entry of `status.devices` (KEP-4817)."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: list[Condition] | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ClaimStatus(Wire):
    allocation: Allocation | None = None
    reserved_for: list[Consumer] | None = None
    devices: list[ClaimDeviceStatus] | None = None


class ResourceClaim(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


class Attribute(Wire):
    """One attribute value of a device: exactly one field is set."""

    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class CapacityRange(Wire):
    min: str = ""
    max: str | None = None
    step: str | None = None


class RequestPolicy(Wire):
    """What a share of a capacity may be: `default` where the claim names none."""

    default: str | None = None
    valid_values: list[str] | None = None
    valid_range: CapacityRange | None = None


class Capacity(Wire):
    value: str = ""
    request_policy: RequestPolicy | None = None


class Counter(Wire):
    value: str = ""


class CounterSet(Wire):
    """Amounts that devices of one pool share; at most 8 sets a slice, 32 counters a set."""

    name: str = ""
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)


class CounterConsumption(Wire):
    """What a device takes of a counter set while it is allocated."""

    counter_set: str = ""
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)


class DeviceTaint(Wire):
    key: str = ""
    value: str | None = None
    effect: str = ""
    time_added: str | None = None


class TaintedDevices(Wire):
    """Which devices a DeviceTaintRule is about: all that agree with what is given."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class TaintRuleSpec(Wire):
    device_selector: TaintedDevices | None = None
    taint: DeviceTaint = msgspec.field(default_factory=DeviceTaint)


class DeviceTaintRule(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: TaintRuleSpec = msgspec.field(default_factory=TaintRuleSpec)


class Device(Wire):
    name: str = ""
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Capacity] | None = None
    taints: list[DeviceTaint] | None = None
    allow_multiple_allocations: bool | None = None
    consumes_counters: list[CounterConsumption] | None = None
    node_name: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    node_selector: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    all_nodes: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    binds_to_node: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    binding_conditions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    binding_failure_conditions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    node_allocatable_resources: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    node_allocatable_resource_mappings: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Pool(Wire, omit_defaults=False):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpec(Wire):
    driver: str = ""
    pool: Pool = msgspec.field(default_factory=Pool)
    node_name: str | None = None
    devices: list[Device] | None = None
    all_nodes: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    node_selector: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    per_device_node_selection: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    shared_counters: list[CounterSet] | None = None
    partition_type_attribute: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    skip_node_operations: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ResourceSlice(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: SliceSpec = msgspec.field(default_factory=SliceSpec)
