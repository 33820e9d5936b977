# SPDX-License-Identifier: Apache-2.0
"""PhysicalGPU: one object per card of the cluster, `spec` empty.

Who writes what (server-side apply, one field manager each): the node agent owns
nodeInfo, pciInfo, currentState.driverType and the condition Discovered; the
adapter, or the device plugin, owns capabilities, the rest of currentState, DriverReady and
HardwareHealthy; the DRA plugin, or the device plugin, owns Published, occupancy.plugin and
extendedResources; the controller owns the rest of occupancy and phase. Nothing that changes
by the second stands here.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from gpudeck.api.meta import Conditions, ObjectMeta, Wire
from gpudeck.api.schema import doc

MOST_HOLDERS = 1024
"""Entries of `occupancy.plugin` that the API server takes."""


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
    id: Annotated[str | None, doc("ID of /etc/os-release, e.g. ubuntu.")] = None
    version: Annotated[str | None, doc("VERSION_ID of /etc/os-release, e.g. 24.04.")] = None
    name: Annotated[str | None, doc("PRETTY_NAME of /etc/os-release.")] = None


class NodeFacts(Wire):
    node_name: Annotated[str, doc("Name of the Node object.")] = ""
    os: Annotated[OperatingSystem | None, doc("The node's operating system.")] = None
    kernel_release: Annotated[str | None, doc("As `uname -r` prints it.")] = None
    bare_metal: Annotated[
        bool | None, doc("False in a virtual machine; absent where it cannot be told.")
    ] = None


class PciName(Wire):
    """A PCI number as lower-case hex and its name in pci.ids."""

    id: Annotated[str, doc("Four hexadecimal digits in lower case, e.g. 10de.")] = ""
    name: Annotated[str | None, doc("Name in pci.ids; absent if it is not listed.")] = None


class PciClass(Wire):
    code: Annotated[str, doc("Class and subclass in hexadecimal, e.g. 0302.")] = ""
    name: Annotated[str | None, doc("Name in pci.ids; absent if it is not listed.")] = None


class PciFacts(Wire):
    address: Annotated[
        str,
        doc(
            "Domain, bus, device and function, e.g. 0000:1b:00.0.",
            pattern="^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f][.][0-7]$",
        ),
    ] = ""
    class_: Annotated[PciClass | None, doc("The PCI class.")] = msgspec.field(
        default=None, name="class"
    )
    vendor: Annotated[PciName | None, doc("The PCI vendor.")] = None
    device: Annotated[PciName | None, doc("The PCI device of that vendor.")] = None
    numa_node: Annotated[
        int | None, doc("The NUMA node next to the card; absent where there is none.", minimum=0)
    ] = None
    iommu_group: Annotated[int | None, doc("The IOMMU group, if there is one.", minimum=0)] = None
    pcie_root: Annotated[str | None, doc("The PCIe root complex, e.g. pci0000:00.")] = None


class Placement(Wire, omit_defaults=False):
    start: Annotated[int, doc("First memory slice.", minimum=0)] = 0
    size: Annotated[int, doc("Number of memory slices.", minimum=1)] = 1


class PartitionEngines(Wire):
    """Engines of a partition; one that is absent it has none of."""

    copy: Annotated[int | None, doc("Copy engines.", minimum=0)] = None
    decoders: Annotated[int | None, doc("Video decoders.", minimum=0)] = None
    encoders: Annotated[int | None, doc("Video encoders.", minimum=0)] = None
    jpeg: Annotated[int | None, doc("JPEG engines.", minimum=0)] = None
    ofa: Annotated[int | None, doc("Optical flow engines.", minimum=0)] = None


class PartitionProfile(Wire):
    """A kind of partition the card can be cut into, with figures from the maker's library."""

    name: Annotated[str, doc("Name of the profile, e.g. 1g.10gb.")]
    profile_id: Annotated[int, doc("The maker's number of the profile.")] = msgspec.field(
        name="profileID"
    )
    memory_mib: Annotated[int, doc("Memory of one partition in MiB.", minimum=0)] = msgspec.field(
        name="memoryMiB"
    )
    max_instances: Annotated[int, doc("How many fit on an empty card.", minimum=0)]
    slices: Annotated[int, doc("Compute slices of one partition.", minimum=0)]
    multiprocessors: Annotated[int, doc("Multiprocessors of one partition.", minimum=0)]
    placements: Annotated[
        list[Placement] | None,
        doc("Where on an empty card a partition may lie, as the driver says.", maxItems=64),
    ] = None
    engines: Annotated[PartitionEngines | None, doc("The engines of one partition.")] = None


class PartitionSupport(Wire):
    supported: Annotated[bool, doc("Whether the card can be partitioned at all.")]
    total_slices: Annotated[int | None, doc("Compute slices of the card.", minimum=0)] = None
    dynamic: Annotated[
        bool | None, doc("Whether partitions are made on demand, without a reset of the card.")
    ] = None
    profiles: Annotated[
        list[PartitionProfile] | None, doc("The profiles that the card offers.", maxItems=64)
    ] = None


class Capabilities(Wire):
    vendor: Annotated[str | None, doc("The maker, e.g. nvidia.")] = None
    product_name: Annotated[str | None, doc("The maker's name of the product.")] = None
    architecture: Annotated[str | None, doc("The maker's architecture, e.g. Hopper.")] = None
    compute_api: Annotated[str | None, doc("The compute API, e.g. CUDA.")] = msgspec.field(
        default=None, name="computeAPI"
    )
    compute_capability: Annotated[
        str | None, doc("The version of the compute API's feature set, e.g. 9.0.")
    ] = None
    memory_mib: Annotated[
        int | None, doc("Memory in MiB; absent where the maker's library cannot say.", minimum=0)
    ] = msgspec.field(default=None, name="memoryMiB")
    partition_support: Annotated[
        PartitionSupport | None, doc("What partitions the card can be cut into.")
    ] = None
    share_strategies: Annotated[
        list[str] | None,
        doc(
            "How shares of the card can be had: TimeSlicing, and MPS where its node keeps daemons.",
            maxItems=8,
        ),
    ] = None


class Partition(Wire):
    profile: Annotated[str, doc("Name of its profile.")] = ""
    uuid: Annotated[str, doc("The partition's UUID.")] = ""
    placement: Annotated[str | None, doc("First slice and number of slices, e.g. 0:1.")] = None


class Partitioning(Wire):
    mode: Annotated[
        str,
        doc("Whether the card is in partition mode.", enum=["Enabled", "Disabled", "NotAvailable"]),
    ]
    partitions: Annotated[list[Partition] | None, doc("Its partitions.", maxItems=64)] = None


class CurrentState(Wire):
    driver_type: Annotated[DriverType | None, doc("Whose kernel driver holds the card.")] = None
    driver_version: Annotated[str | None, doc("Version of that driver, as it says itself.")] = None
    uuid: Annotated[str | None, doc("The card's UUID; it moves with the card.")] = None
    partitioning: Annotated[Partitioning | None, doc("How the card is cut now.")] = None


class HeldMemory(Wire, omit_defaults=False):
    total: Annotated[int, doc("Memory of the card in MiB.", minimum=0)] = 0
    used: Annotated[int, doc("Memory that claims hold in MiB.", minimum=0)] = 0


class HolderClaim(Wire):
    namespace: Annotated[str, doc("Namespace of the ResourceClaim.")]
    name: Annotated[str, doc("Name of the ResourceClaim.")]
    uid: Annotated[str, doc("UID of the ResourceClaim.")]
    device: Annotated[str, doc("Name of the allocated device.")]
    share_id: Annotated[
        str | None, doc("Which share of the device, if it is shared.", default="")
    ] = msgspec.field(default=None, name="shareID")
    memory_mib: Annotated[
        int | None, doc("Of a share: the memory that was agreed, in MiB.", minimum=0)
    ] = msgspec.field(default=None, name="memoryMiB")
    pods: Annotated[
        list[str] | None, doc("Names of the pods that the claim is reserved for.", maxItems=256)
    ] = None


class HolderPod(Wire):
    namespace: Annotated[str, doc("Namespace of the pod.")]
    pod: Annotated[str, doc("Name of the pod.")]
    container: Annotated[str, doc("Name of the container.")]
    resource: Annotated[str, doc("The extended resource, e.g. nvidia.com/gpu.")]
    device: Annotated[str, doc("The device as the kubelet names it, e.g. a UUID.")]
    profile: Annotated[str | None, doc("Of a partition: the name of its profile.")] = None
    replicas: Annotated[
        int | None, doc("Of a replica: into how many the card or partition is shared.", minimum=1)
    ] = None
    memory_mib: Annotated[
        int | None, doc("Of a replica with a limit: its memory in MiB.", minimum=0)
    ] = msgspec.field(default=None, name="memoryMiB")


class Occupancy(Wire):
    state: Annotated[OccupancyState | None, doc("How much of the card is held.")] = None
    memory_mib: Annotated[HeldMemory | None, doc("How much of its memory is held.")] = (
        msgspec.field(default=None, name="memoryMiB")
    )
    claims: Annotated[
        list[HolderClaim] | None,
        doc(
            "The ResourceClaims that hold the card or a part of it.",
            x_list_type="map",
            x_list_map_keys=["uid", "device", "shareID"],
            maxItems=1024,
        ),
    ] = None
    plugin: Annotated[
        list[HolderPod] | None,
        doc(
            "The containers that have the card or a part of it from the device plugin.",
            x_list_type="map",
            x_list_map_keys=["namespace", "pod", "container", "resource", "device"],
            maxItems=MOST_HOLDERS,
        ),
    ] = None


class OfferedResource(Wire):
    """What of a card the device plugin offers by one name."""

    resource: Annotated[str, doc("The extended resource, e.g. nvidia.com/gpu.shared.")]
    devices: Annotated[int, doc("Devices of the card by this name.", minimum=0)]
    healthy: Annotated[
        int | None,
        doc("How many of them can be handed out; absent where it is all.", minimum=0),
    ] = None


class PhysicalGPUStatus(Wire):
    node_info: Annotated[NodeFacts | None, doc("The node that the card is in.")] = None
    pci_info: Annotated[PciFacts | None, doc("What the PCI bus says of the card.")] = None
    capabilities: Annotated[
        Capabilities | None, doc("What the card can do, from the maker's library.")
    ] = None
    current_state: Annotated[CurrentState | None, doc("How the card is set up now.")] = None
    occupancy: Annotated[Occupancy | None, doc("Who holds the card.")] = None
    extended_resources: Annotated[
        list[OfferedResource] | None,
        doc(
            "What of the card the device plugin of its node offers; absent in DRA mode.",
            x_list_type="map",
            x_list_map_keys=["resource"],
            maxItems=64,
        ),
    ] = None
    phase: Annotated[
        Phase | None, doc("The conditions in one word, for people; logic reads the conditions.")
    ] = None
    lost_since: Annotated[
        str | None, doc("When the card disappeared; absent while it is there.", format="date-time")
    ] = None
    conditions: Conditions = None


class PhysicalGPU(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    status: Annotated[PhysicalGPUStatus | None, doc("What is known of the card.")] = None
