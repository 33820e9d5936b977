# SPDX-License-Identifier: Apache-2.0
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PartitioningMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PARTITIONING_MODE_NOT_AVAILABLE: _ClassVar[PartitioningMode]
    PARTITIONING_MODE_DISABLED: _ClassVar[PartitioningMode]
    PARTITIONING_MODE_ENABLED: _ClassVar[PartitioningMode]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNKNOWN: _ClassVar[Verdict]
    VERDICT_HEALTHY: _ClassVar[Verdict]
    VERDICT_UNHEALTHY: _ClassVar[Verdict]

class SharingStrategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHARING_STRATEGY_TIME_SLICING: _ClassVar[SharingStrategy]
    SHARING_STRATEGY_MPS: _ClassVar[SharingStrategy]

class TimeSlice(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIME_SLICE_UNSPECIFIED: _ClassVar[TimeSlice]
    TIME_SLICE_DEFAULT: _ClassVar[TimeSlice]
    TIME_SLICE_SHORT: _ClassVar[TimeSlice]
    TIME_SLICE_MEDIUM: _ClassVar[TimeSlice]
    TIME_SLICE_LONG: _ClassVar[TimeSlice]
PARTITIONING_MODE_NOT_AVAILABLE: PartitioningMode
PARTITIONING_MODE_DISABLED: PartitioningMode
PARTITIONING_MODE_ENABLED: PartitioningMode
VERDICT_UNKNOWN: Verdict
VERDICT_HEALTHY: Verdict
VERDICT_UNHEALTHY: Verdict
SHARING_STRATEGY_TIME_SLICING: SharingStrategy
SHARING_STRATEGY_MPS: SharingStrategy
TIME_SLICE_UNSPECIFIED: TimeSlice
TIME_SLICE_DEFAULT: TimeSlice
TIME_SLICE_SHORT: TimeSlice
TIME_SLICE_MEDIUM: TimeSlice
TIME_SLICE_LONG: TimeSlice

class HoldingRequest(_message.Message):
    __slots__ = ("kind",)
    KIND_FIELD_NUMBER: _ClassVar[int]
    kind: str
    def __init__(self, kind: _Optional[str] = ...) -> None: ...

class HoldingResponse(_message.Message):
    __slots__ = ("cdi_devices",)
    CDI_DEVICES_FIELD_NUMBER: _ClassVar[int]
    cdi_devices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cdi_devices: _Optional[_Iterable[str]] = ...) -> None: ...

class SetPartitioningRequest(_message.Message):
    __slots__ = ("pci_address", "enabled")
    PCI_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    pci_address: str
    enabled: bool
    def __init__(self, pci_address: _Optional[str] = ..., enabled: _Optional[bool] = ...) -> None: ...

class SetPartitioningResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class MetricsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MetricsResponse(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: bytes
    def __init__(self, text: _Optional[bytes] = ...) -> None: ...

class IdentifyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IdentifyResponse(_message.Message):
    __slots__ = ("vendor", "heartbeat_seconds")
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    vendor: str
    heartbeat_seconds: int
    def __init__(self, vendor: _Optional[str] = ..., heartbeat_seconds: _Optional[int] = ...) -> None: ...

class WatchCardsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchCardsResponse(_message.Message):
    __slots__ = ("snapshot", "heartbeat")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    heartbeat: Heartbeat
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("revision", "cards", "driver")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CARDS_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    revision: int
    cards: _containers.RepeatedCompositeFieldContainer[Card]
    driver: DriverState
    def __init__(self, revision: _Optional[int] = ..., cards: _Optional[_Iterable[_Union[Card, _Mapping]]] = ..., driver: _Optional[_Union[DriverState, _Mapping]] = ...) -> None: ...

class Card(_message.Message):
    __slots__ = ("pci_address", "uuid", "minor", "product_name", "architecture", "compute_api", "compute_capability", "memory_bytes", "driver", "api_driver_version", "partition_support", "partitioning", "health", "pcie_root", "numa_node", "share_support")
    PCI_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    PRODUCT_NAME_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_API_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    API_DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTITION_SUPPORT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONING_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    PCIE_ROOT_FIELD_NUMBER: _ClassVar[int]
    NUMA_NODE_FIELD_NUMBER: _ClassVar[int]
    SHARE_SUPPORT_FIELD_NUMBER: _ClassVar[int]
    pci_address: str
    uuid: str
    minor: int
    product_name: str
    architecture: str
    compute_api: str
    compute_capability: str
    memory_bytes: int
    driver: DriverState
    api_driver_version: str
    partition_support: PartitionSupport
    partitioning: Partitioning
    health: Health
    pcie_root: str
    numa_node: int
    share_support: ShareSupport
    def __init__(self, pci_address: _Optional[str] = ..., uuid: _Optional[str] = ..., minor: _Optional[int] = ..., product_name: _Optional[str] = ..., architecture: _Optional[str] = ..., compute_api: _Optional[str] = ..., compute_capability: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., driver: _Optional[_Union[DriverState, _Mapping]] = ..., api_driver_version: _Optional[str] = ..., partition_support: _Optional[_Union[PartitionSupport, _Mapping]] = ..., partitioning: _Optional[_Union[Partitioning, _Mapping]] = ..., health: _Optional[_Union[Health, _Mapping]] = ..., pcie_root: _Optional[str] = ..., numa_node: _Optional[int] = ..., share_support: _Optional[_Union[ShareSupport, _Mapping]] = ...) -> None: ...

class ShareSupport(_message.Message):
    __slots__ = ("time_slicing", "mps", "memory_limits", "memory_limits_message")
    TIME_SLICING_FIELD_NUMBER: _ClassVar[int]
    MPS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMITS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMITS_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    time_slicing: bool
    mps: bool
    memory_limits: bool
    memory_limits_message: str
    def __init__(self, time_slicing: _Optional[bool] = ..., mps: _Optional[bool] = ..., memory_limits: _Optional[bool] = ..., memory_limits_message: _Optional[str] = ...) -> None: ...

class DriverState(_message.Message):
    __slots__ = ("ready", "reason", "message", "version")
    READY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ready: bool
    reason: str
    message: str
    version: str
    def __init__(self, ready: _Optional[bool] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class PartitionSupport(_message.Message):
    __slots__ = ("supported", "total_slices", "profiles", "dynamic")
    SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SLICES_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_FIELD_NUMBER: _ClassVar[int]
    supported: bool
    total_slices: int
    profiles: _containers.RepeatedCompositeFieldContainer[PartitionProfile]
    dynamic: bool
    def __init__(self, supported: _Optional[bool] = ..., total_slices: _Optional[int] = ..., profiles: _Optional[_Iterable[_Union[PartitionProfile, _Mapping]]] = ..., dynamic: _Optional[bool] = ...) -> None: ...

class Placement(_message.Message):
    __slots__ = ("start", "size")
    START_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    start: int
    size: int
    def __init__(self, start: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class PartitionProfile(_message.Message):
    __slots__ = ("name", "profile_id", "memory_mib", "max_instances", "slices", "multiprocessors", "placements", "copy_engines", "decoders", "encoders", "jpeg_engines", "ofa_engines")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    MAX_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    MULTIPROCESSORS_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    COPY_ENGINES_FIELD_NUMBER: _ClassVar[int]
    DECODERS_FIELD_NUMBER: _ClassVar[int]
    ENCODERS_FIELD_NUMBER: _ClassVar[int]
    JPEG_ENGINES_FIELD_NUMBER: _ClassVar[int]
    OFA_ENGINES_FIELD_NUMBER: _ClassVar[int]
    name: str
    profile_id: int
    memory_mib: int
    max_instances: int
    slices: int
    multiprocessors: int
    placements: _containers.RepeatedCompositeFieldContainer[Placement]
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    def __init__(self, name: _Optional[str] = ..., profile_id: _Optional[int] = ..., memory_mib: _Optional[int] = ..., max_instances: _Optional[int] = ..., slices: _Optional[int] = ..., multiprocessors: _Optional[int] = ..., placements: _Optional[_Iterable[_Union[Placement, _Mapping]]] = ..., copy_engines: _Optional[int] = ..., decoders: _Optional[int] = ..., encoders: _Optional[int] = ..., jpeg_engines: _Optional[int] = ..., ofa_engines: _Optional[int] = ...) -> None: ...

class Partitioning(_message.Message):
    __slots__ = ("mode", "partitions", "pending")
    MODE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    mode: PartitioningMode
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    pending: PartitioningMode
    def __init__(self, mode: _Optional[_Union[PartitioningMode, str]] = ..., partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ..., pending: _Optional[_Union[PartitioningMode, str]] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("profile", "uuid", "start", "size", "profile_id")
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    profile: str
    uuid: str
    start: int
    size: int
    profile_id: int
    def __init__(self, profile: _Optional[str] = ..., uuid: _Optional[str] = ..., start: _Optional[int] = ..., size: _Optional[int] = ..., profile_id: _Optional[int] = ...) -> None: ...

class Health(_message.Message):
    __slots__ = ("verdict", "reason", "message", "since_unix_seconds", "xid")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    XID_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    reason: str
    message: str
    since_unix_seconds: int
    xid: int
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., since_unix_seconds: _Optional[int] = ..., xid: _Optional[int] = ...) -> None: ...

class ClaimReference(_message.Message):
    __slots__ = ("uid", "namespace", "name")
    UID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    uid: str
    namespace: str
    name: str
    def __init__(self, uid: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeviceRequest(_message.Message):
    __slots__ = ("name", "pci_address", "partition", "share", "admin_access")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PCI_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    ADMIN_ACCESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    pci_address: str
    partition: PartitionRequest
    share: ShareRequest
    admin_access: bool
    def __init__(self, name: _Optional[str] = ..., pci_address: _Optional[str] = ..., partition: _Optional[_Union[PartitionRequest, _Mapping]] = ..., share: _Optional[_Union[ShareRequest, _Mapping]] = ..., admin_access: _Optional[bool] = ...) -> None: ...

class PartitionRequest(_message.Message):
    __slots__ = ("profile", "profile_id", "placement")
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    profile: str
    profile_id: int
    placement: Placement
    def __init__(self, profile: _Optional[str] = ..., profile_id: _Optional[int] = ..., placement: _Optional[_Union[Placement, _Mapping]] = ...) -> None: ...

class ShareRequest(_message.Message):
    __slots__ = ("share_id", "memory_bytes", "cores", "strategy", "interval", "enforce_memory")
    SHARE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    ENFORCE_MEMORY_FIELD_NUMBER: _ClassVar[int]
    share_id: str
    memory_bytes: int
    cores: int
    strategy: SharingStrategy
    interval: TimeSlice
    enforce_memory: bool
    def __init__(self, share_id: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., cores: _Optional[int] = ..., strategy: _Optional[_Union[SharingStrategy, str]] = ..., interval: _Optional[_Union[TimeSlice, str]] = ..., enforce_memory: _Optional[bool] = ...) -> None: ...

class ClaimRequest(_message.Message):
    __slots__ = ("claim", "devices")
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    claim: ClaimReference
    devices: _containers.RepeatedCompositeFieldContainer[DeviceRequest]
    def __init__(self, claim: _Optional[_Union[ClaimReference, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[DeviceRequest, _Mapping]]] = ...) -> None: ...

class PrepareRequest(_message.Message):
    __slots__ = ("claims", "hook_path")
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    HOOK_PATH_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[ClaimRequest]
    hook_path: str
    def __init__(self, claims: _Optional[_Iterable[_Union[ClaimRequest, _Mapping]]] = ..., hook_path: _Optional[str] = ...) -> None: ...

class PrepareResponse(_message.Message):
    __slots__ = ("claims",)
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[PreparedClaim]
    def __init__(self, claims: _Optional[_Iterable[_Union[PreparedClaim, _Mapping]]] = ...) -> None: ...

class PreparedClaim(_message.Message):
    __slots__ = ("uid", "shared", "devices", "error")
    UID_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    uid: str
    shared: ContainerEdits
    devices: _containers.RepeatedCompositeFieldContainer[PreparedDevice]
    error: Error
    def __init__(self, uid: _Optional[str] = ..., shared: _Optional[_Union[ContainerEdits, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[PreparedDevice, _Mapping]]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class PreparedDevice(_message.Message):
    __slots__ = ("name", "edits", "uuid", "limits_memory", "limits_memory_message")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EDITS_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    LIMITS_MEMORY_FIELD_NUMBER: _ClassVar[int]
    LIMITS_MEMORY_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    edits: ContainerEdits
    uuid: str
    limits_memory: bool
    limits_memory_message: str
    def __init__(self, name: _Optional[str] = ..., edits: _Optional[_Union[ContainerEdits, _Mapping]] = ..., uuid: _Optional[str] = ..., limits_memory: _Optional[bool] = ..., limits_memory_message: _Optional[str] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("reason", "message", "retryable")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    retryable: bool
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ...) -> None: ...

class UnprepareRequest(_message.Message):
    __slots__ = ("claims",)
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[ClaimRequest]
    def __init__(self, claims: _Optional[_Iterable[_Union[ClaimRequest, _Mapping]]] = ...) -> None: ...

class UnprepareResponse(_message.Message):
    __slots__ = ("claims",)
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[UnpreparedClaim]
    def __init__(self, claims: _Optional[_Iterable[_Union[UnpreparedClaim, _Mapping]]] = ...) -> None: ...

class UnpreparedClaim(_message.Message):
    __slots__ = ("uid", "error")
    UID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    uid: str
    error: Error
    def __init__(self, uid: _Optional[str] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ContainerEdits(_message.Message):
    __slots__ = ("env", "device_nodes", "mounts", "hooks", "additional_gids")
    ENV_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NODES_FIELD_NUMBER: _ClassVar[int]
    MOUNTS_FIELD_NUMBER: _ClassVar[int]
    HOOKS_FIELD_NUMBER: _ClassVar[int]
    ADDITIONAL_GIDS_FIELD_NUMBER: _ClassVar[int]
    env: _containers.RepeatedScalarFieldContainer[str]
    device_nodes: _containers.RepeatedCompositeFieldContainer[DeviceNode]
    mounts: _containers.RepeatedCompositeFieldContainer[Mount]
    hooks: _containers.RepeatedCompositeFieldContainer[Hook]
    additional_gids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, env: _Optional[_Iterable[str]] = ..., device_nodes: _Optional[_Iterable[_Union[DeviceNode, _Mapping]]] = ..., mounts: _Optional[_Iterable[_Union[Mount, _Mapping]]] = ..., hooks: _Optional[_Iterable[_Union[Hook, _Mapping]]] = ..., additional_gids: _Optional[_Iterable[int]] = ...) -> None: ...

class DeviceNode(_message.Message):
    __slots__ = ("path", "host_path", "type", "major", "minor", "permissions")
    PATH_FIELD_NUMBER: _ClassVar[int]
    HOST_PATH_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MAJOR_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    path: str
    host_path: str
    type: str
    major: int
    minor: int
    permissions: str
    def __init__(self, path: _Optional[str] = ..., host_path: _Optional[str] = ..., type: _Optional[str] = ..., major: _Optional[int] = ..., minor: _Optional[int] = ..., permissions: _Optional[str] = ...) -> None: ...

class Mount(_message.Message):
    __slots__ = ("host_path", "container_path", "options")
    HOST_PATH_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_PATH_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    host_path: str
    container_path: str
    options: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, host_path: _Optional[str] = ..., container_path: _Optional[str] = ..., options: _Optional[_Iterable[str]] = ...) -> None: ...

class Hook(_message.Message):
    __slots__ = ("hook_name", "path", "args", "env")
    HOOK_NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    hook_name: str
    path: str
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, hook_name: _Optional[str] = ..., path: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., env: _Optional[_Iterable[str]] = ...) -> None: ...
