# SPDX-License-Identifier: Apache-2.0
"""What a plugin config says, after it was checked.

Fields and their defaults are those of NVIDIA's device plugin 0.20. A flag that the
file does not set is None, so that a process can put its own value there: on the
command line or by default.
"""

from __future__ import annotations

import enum
import fnmatch
import re

import msgspec

from gpudeck.devices import profiles

PREFIX = "nvidia.com/"
GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"
SHARED_SUFFIX = ".shared"
_PARTITIONS = re.compile(r"nvidia\.com/mig-[0-9]+g\.[0-9]+gb([.-][a-z]+)*")
"""Resources of partitions, as profiles are called by NVIDIA's driver (open kernel module 595)."""
EQUAL = "equal"
"""A memory limit: for each replica the same part of its card."""


class Value(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The root of the values here."""


class MigStrategy(enum.StrEnum):
    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class ListStrategy(enum.StrEnum):
    """How a container is told which devices it has."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"


CDI = frozenset({ListStrategy.CDI_ANNOTATIONS, ListStrategy.CDI_CRI})


class IdStrategy(enum.StrEnum):
    UUID = "uuid"
    INDEX = "index"


class AllocationPolicy(enum.StrEnum):
    """Which card a replica is taken from: the emptiest, or the fullest that has one left."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"


class Strategy(enum.StrEnum):
    TIME_SLICING = "timeSlicing"
    MPS = "mps"


class PluginFlags(Value, frozen=True):
    pass_device_specs: bool | None = None
    device_list_strategy: tuple[ListStrategy, ...] | None = None
    device_id_strategy: IdStrategy | None = None
    cdi_annotation_prefix: str | None = None
    nvidia_ctk_path: str | None = None
    container_driver_root: str | None = None
    shared_devices_allocation_policy: AllocationPolicy | None = None


class GfdFlags(Value, frozen=True):
    oneshot: bool | None = None
    no_timestamp: bool | None = None
    sleep_interval_seconds: float | None = None
    """Infinity for "infinite"."""
    output_file: str | None = None
    machine_type_file: str | None = None


class Flags(Value, frozen=True):
    mig_strategy: MigStrategy | None = None
    fail_on_init_error: bool | None = None
    mps_root: str | None = None
    nvidia_driver_root: str | None = None
    nvidia_dev_root: str | None = None
    gdrcopy_enabled: bool | None = None
    gds_enabled: bool | None = None
    mofed_enabled: bool | None = None
    use_node_feature_api: bool | None = None
    device_discovery_strategy: str | None = None
    plugin: PluginFlags = PluginFlags()
    gfd: GfdFlags = GfdFlags()


class Named(Value, frozen=True):
    """Devices whose product name or profile matches a shell pattern, and their resource."""

    pattern: str
    name: str
    """With its prefix."""

    def matches(self, text: str) -> bool:
        return fnmatch.fnmatchcase(text, self.pattern)


class Resources(Value, frozen=True):
    """The first pattern that matches names a device; one without a match keeps its usual name."""

    gpus: tuple[Named, ...] = ()
    mig: tuple[Named, ...] = ()

    def of_card(self, product: str) -> str:
        """The resource of a whole card, before it is shared."""
        return next((each.name for each in self.gpus if each.matches(product)), GPU)

    def of_partition(self, profile: str, strategy: MigStrategy) -> str:
        """The resource of a partition, before it is shared."""
        usual = GPU if strategy is MigStrategy.SINGLE else MIG + profiles.spelled(profile)
        return next((each.name for each in self.mig if each.matches(profile)), usual)

    def may_name(self, resource: str) -> bool:
        """Whether some card, or some partition of one, may be a device of that resource."""
        is_known = resource == GPU or any(each.name == resource for each in (*self.gpus, *self.mig))
        return is_known or bool(_PARTITIONS.fullmatch(resource))


class Replicated(Value, frozen=True):
    """Devices of one resource of which each is offered several times."""

    name: str
    """With its prefix; the name before sharing."""
    replicas: int
    rename: str | None = None
    """With its prefix."""
    count: int | None = None
    """The first that many devices of the resource."""
    devices: tuple[str, ...] | None = None
    """Indices (`0`, `0:1`) and UUIDs. Without `count` and `devices` all are shared."""
    memory_limit: str | None = None
    """`equal`, or a quantity: what the driver keeps each container to, where the card can."""


class Sharing(Value, frozen=True):
    strategy: Strategy
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False
    resources: tuple[Replicated, ...] = ()


class Imex(Value, frozen=True):
    channel_ids: tuple[int, ...] = ()
    required: bool = False


class Config(Value, frozen=True):
    flags: Flags = Flags()
    resources: Resources = Resources()
    sharing: Sharing | None = None
    imex: Imex = Imex()
    notes: tuple[str, ...] = ()
    """What is valid and does nothing, each a sentence that begins with the field's path."""
