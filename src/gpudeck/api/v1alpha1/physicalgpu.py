# SPDX-License-Identifier: Apache-2.0
"""PhysicalGPU: one object per card of the cluster, `spec` empty.

Who writes what (server-side apply, one field manager each): the node agent owns
nodeInfo, pciInfo, currentState.driverType and the condition Discovered; the
adapter owns capabilities, the rest of currentState, DriverReady and
HardwareHealthy; the DRA plugin owns Published; the controller owns occupancy and
phase. Nothing that changes by the second stands here.
"""

from __future__ import annotations

import enum

import msgspec

from gpudeck.api.meta import Condition, ObjectMeta, Wire


class DriverType(enum.StrEnum):
    NVIDIA = "Nvidia"
    VFIO = "VFIO"
    METAX = "MetaX"
    NONE = "None"


class Phase(enum.StrEnum):
    """Derived, for people; logic reads the conditions."""

    DISCOVERED = "Discovered"
    NOT_READY = "NotReady"
    READY = "Ready"
    IN_USE = "InUse"
    FAULTY = "Faulty"
    LOST = "Lost"


class OccupancyState(enum.StrEnum):
    FREE = "Free"
    PARTIAL = "Partial"
    FULL = "Full"


class OperatingSystem(Wire):
    id: str | None = None
    version: str | None = None
    name: str | None = None


class NodeFacts(Wire):
    node_name: str = ""
    os: OperatingSystem | None = None
    kernel_release: str | None = None
    bare_metal: bool | None = None


class PciName(Wire):
    """A PCI number as lower-case hex and its name in pci.ids."""

    id: str = ""
    name: str | None = None


class PciClass(Wire):
    code: str = ""
    name: str | None = None


class PciFacts(Wire):
    address: str = ""
    class_: PciClass | None = msgspec.field(default=None, name="class")
    vendor: PciName | None = None
    device: PciName | None = None
    numa_node: int | None = None
    iommu_group: int | None = None
    pcie_root: str | None = None


class PartitionProfile(Wire, omit_defaults=False):
    name: str
    profile_id: int = msgspec.field(name="profileID")
    memory_mib: int = msgspec.field(name="memoryMiB")
    max_instances: int
    slices: int
    multiprocessors: int


class PartitionSupport(Wire):
    supported: bool = msgspec.field(default=False)
    total_slices: int | None = None
    profiles: list[PartitionProfile] | None = None


class Capabilities(Wire):
    vendor: str | None = None
    product_name: str | None = None
    architecture: str | None = None
    compute_api: str | None = msgspec.field(default=None, name="computeAPI")
    compute_capability: str | None = None
    memory_mib: int | None = msgspec.field(default=None, name="memoryMiB")
    partition_support: PartitionSupport | None = None


class Partition(Wire):
    profile: str = ""
    uuid: str = ""
    placement: str | None = None


class Partitioning(Wire):
    mode: str = "NotAvailable"
    partitions: list[Partition] | None = None


class CurrentState(Wire):
    driver_type: DriverType | None = None
    driver_version: str | None = None
    uuid: str | None = None
    partitioning: Partitioning | None = None


class HeldMemory(Wire, omit_defaults=False):
    total: int = 0
    used: int = 0


class HolderClaim(Wire):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    pods: list[str] | None = None


class Occupancy(Wire):
    state: OccupancyState | None = None
    memory_mib: HeldMemory | None = msgspec.field(default=None, name="memoryMiB")
    claims: list[HolderClaim] | None = None


class PhysicalGPUStatus(Wire):
    node_info: NodeFacts | None = None
    pci_info: PciFacts | None = None
    capabilities: Capabilities | None = None
    current_state: CurrentState | None = None
    occupancy: Occupancy | None = None
    phase: Phase | None = None
    lost_since: str | None = None
    conditions: list[Condition] | None = None


class PhysicalGPU(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    status: PhysicalGPUStatus | None = None
