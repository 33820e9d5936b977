# SPDX-License-Identifier: Apache-2.0
"""GPUClass: what a group of users may ask for; the controller makes a DeviceClass of the same name.

`spec` is the administrator's, `status` the controller's. What a class selects is
decided in `api.selectors`, for the scheduler and for people alike.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpudeck.api import labels
from gpudeck.api.meta import Conditions, ObjectMeta, Wire
from gpudeck.api.schema import doc, rule

_VERSION = "^[0-9]{1,9}([.][0-9]{1,9}){0,2}$"
_SIZE = "^[0-9]+([.][0-9]+)?([KMGTPE]i|[kMGTPE])?$"
_DOMAIN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_EXTENDED_RESOURCE = f"^({_DOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"

_MIN_NOT_ABOVE_MAX = rule(
    "!has(self.min) || !has(self.max)"
    " || quantity(string(self.min)).compareTo(quantity(string(self.max))) <= 0",
    "min must not be above max",
)
_MAX_ABOVE_NONE = rule(
    "!has(self.max) || quantity(string(self.max)).compareTo(quantity('0')) > 0",
    "max must be above 0",
)
_ENOUGH = rule(
    "quantity(string(self)).compareTo(quantity('1Mi')) >= 0", "an amount of memory is at least 1Mi"
)
_NOT_KUBERNETES_OWN = rule(
    "!self.startsWith('kubernetes.io/') && !self.contains('.kubernetes.io/')"
    " && !self.startsWith('requests.')",
    "names in the domain kubernetes.io and names beginning with requests. are reserved",
)
_FIRST, _LAST = "self.min.split('.')", "self.max.split('.')"


def _compared(place: int, equal: str) -> str:
    """Return CEL: of both bounds the number at `place` rises, or it is equal and `equal` holds."""
    first = f"(size({_FIRST}) > {place} ? int({_FIRST}[{place}]) : 0)"
    last = f"int({_LAST}[{place}])"
    return f"size({_LAST}) <= {place} || {first} < {last} || ({first} == {last} && ({equal}))"


_FIRST_NOT_ABOVE_LAST = rule(
    f"!has(self.min) || !has(self.max) || ({_compared(0, _compared(1, _compared(2, 'true')))})",
    "min must not be above max",
)
_VALUES_FIT_OPERATOR = rule(
    "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0"
    " : !has(self.values) || size(self.values) == 0",
    "operators In and NotIn need values, Exists and DoesNotExist must have none",
)
_PARTITION_FITS_KIND = rule(
    "!has(self.partition) || (has(self.devices) && 'Partition' in self.devices)",
    "partition is only for classes that have Partition in spec.devices",
    fieldPath=".partition",
)
_SHARE_FITS_KIND = rule(
    "!has(self.share) || (has(self.devices) && 'Share' in self.devices)",
    "share is only for classes that have Share in spec.devices",
    fieldPath=".share",
)
_INTERVAL_FITS_STRATEGY = rule(
    "!has(self.interval) || !has(self.strategy) || self.strategy == 'TimeSlicing'",
    "interval is only for the strategy TimeSlicing",
    fieldPath=".interval",
)
_NAME_PART_FITS = rule(
    "!self.contains('/') || self.substring(self.indexOf('/') + 1).size() <= 63",
    "the part after the slash must have at most 63 characters",
)


WHOLE = "Whole"
"""The kind of device that is a card as one piece."""
PARTITION = "Partition"
"""The kind of device that is a partition made by the maker's hardware (NVIDIA: MIG)."""
SHARE = "Share"
"""The kind of device that is a part of a card's memory and time beside other parts."""
KINDS = (WHOLE, PARTITION, SHARE)

TIME_SLICING, MPS = "TimeSlicing", "MPS"
ENFORCE_DRIVER, ENFORCE_REPORT = "Driver", "Report"

_PROFILE = "^[0-9]+(c[.][0-9]+)?g[.][0-9]+gb([+.-][a-z0-9.+-]+)?$"


class SizeRange(Wire):
    """Bounds in bytes, as Kubernetes quantities; both ends included."""

    min: Annotated[
        str | int | None,
        doc("Least memory, e.g. 40G.", pattern=_SIZE, maxLength=32, minimum=0),
    ] = None
    max: Annotated[
        str | int | None,
        doc("Most memory, e.g. 80Gi.", pattern=_SIZE, maxLength=32, minimum=0),
    ] = None


class VersionRange(Wire):
    """Bounds of versions, both ends included; a max of 550 admits every 550.x."""

    min: Annotated[
        str | None, doc('First version admitted, e.g. "8.0".', pattern=_VERSION, maxLength=32)
    ] = None
    max: Annotated[
        str | None,
        doc('Last version admitted; "550" admits every 550.x.', pattern=_VERSION, maxLength=32),
    ] = None


class Requirements(Wire):
    """What a card must have: all that is given. A card that lacks a fact does not match."""

    memory: Annotated[
        SizeRange | None,
        doc(
            "Bounds of the card's memory, compared in bytes with what the maker's library says.",
            x_validations=[_MIN_NOT_ABOVE_MAX, _MAX_ABOVE_NONE],
        ),
    ] = None
    compute_capability: Annotated[
        VersionRange | None,
        doc("Bounds of the compute capability.", x_validations=[_FIRST_NOT_ABOVE_LAST]),
    ] = None
    driver_version: Annotated[
        VersionRange | None,
        doc("Bounds of the kernel driver's version.", x_validations=[_FIRST_NOT_ABOVE_LAST]),
    ] = None
    architectures: Annotated[
        list[
            Annotated[
                str,
                doc(
                    "An architecture, in any case.",
                    pattern="^[A-Za-z0-9][A-Za-z0-9 ._-]*$",
                    maxLength=64,
                ),
            ]
        ]
        | None,
        doc("Architectures of which the card must be one, e.g. Hopper.", maxItems=32, minItems=1),
    ] = None
    products: Annotated[
        list[
            Annotated[
                str,
                doc(
                    "A pattern with * and ?, in any case, that the whole product name must match.",
                    pattern="^[ -~]+$",
                    maxLength=64,
                ),
            ]
        ]
        | None,
        doc("Product names of which the card must be one, e.g. *H100*.", maxItems=32, minItems=1),
    ] = None


class PartitionRequirements(Wire):
    """Which partitions: by profile, by size, or any. Compared with what the driver says."""

    profiles: Annotated[
        list[Annotated[str, doc("The driver's name of a profile.", pattern=_PROFILE, maxLength=63)]]
        | None,
        doc(
            "Profiles of which the partition must be one, e.g. 1g.10gb.",
            x_list_type="set",
            maxItems=32,
            minItems=1,
        ),
    ] = None
    memory: Annotated[
        SizeRange | None,
        doc(
            "Bounds of the partition's memory.", x_validations=[_MIN_NOT_ABOVE_MAX, _MAX_ABOVE_NONE]
        ),
    ] = None


class ShareMemory(Wire):
    default: Annotated[
        str | int | None,
        doc(
            "What a pod gets that names no amount; absent for the node's default.",
            pattern=_SIZE,
            maxLength=32,
            x_validations=[_ENOUGH],
        ),
    ] = None
    max: Annotated[
        str | int | None,
        doc(
            "The most that a claim may ask for.",
            pattern=_SIZE,
            maxLength=32,
            x_validations=[_ENOUGH],
        ),
    ] = None


class ShareCores(Wire):
    default: Annotated[
        int | None,
        doc(
            "Percent of the card's multiprocessors that a pod gets that names no amount.",
            minimum=1,
            maximum=100,
        ),
    ] = None


class ShareRequirements(Wire):
    """How large a share is, and how the card is shared."""

    memory: Annotated[
        ShareMemory | None,
        doc(
            "Amounts of memory.",
            x_validations=[
                rule(
                    "!has(self.default) || !has(self.max) || quantity(string(self.default))"
                    ".compareTo(quantity(string(self.max))) <= 0",
                    "default must not be above max",
                )
            ],
        ),
    ] = None
    cores: Annotated[ShareCores | None, doc("Percent of the card's multiprocessors.")] = None
    strategy: Annotated[
        str | None,
        doc(
            "How processes of different shares use the card: TimeSlicing lets them take turns, MPS "
            "lets them work at the same time, on nodes that run MPS daemons.",
            enum=[TIME_SLICING, MPS],
            default=TIME_SLICING,
        ),
    ] = None
    interval: Annotated[
        str | None,
        doc(
            "How long one process runs before the next; absent leaves the card as it is.",
            enum=["Default", "Short", "Medium", "Long"],
        ),
    ] = None
    enforce: Annotated[
        str | None,
        doc(
            "Driver has the driver refuse memory past the agreed amount where the card offers it; "
            "Report only says what was agreed.",
            enum=[ENFORCE_DRIVER, ENFORCE_REPORT],
            default=ENFORCE_DRIVER,
        ),
    ] = None


class SelectorRequirement(Wire):
    """One requirement of a label selector (meta/v1)."""

    key: Annotated[str, doc("The label.", maxLength=317, minLength=1)]
    operator: Annotated[
        str, doc("How it is compared.", enum=["In", "NotIn", "Exists", "DoesNotExist"])
    ]
    values: Annotated[
        list[Annotated[str, doc("A value.", maxLength=63)]] | None,
        doc("Values for In and NotIn.", maxItems=64),
    ] = None


class LabelSelector(Wire):
    """A label selector as everywhere in Kubernetes; an empty one selects everything."""

    match_labels: Annotated[
        dict[str, str] | None, doc("Labels with their values, all of which must be there.")
    ] = None
    match_expressions: Annotated[
        list[
            Annotated[
                SelectorRequirement,
                doc("One requirement.", x_validations=[_VALUES_FIT_OPERATOR]),
            ]
        ]
        | None,
        doc("Requirements that must all hold.", maxItems=32),
    ] = None


class Usage(Wire):
    """Who may use the class, and how much of it."""

    namespace_selector: Annotated[
        LabelSelector | None,
        doc("Labels of the namespaces that may use the class; absent for all."),
    ] = None
    max_devices_per_claim: Annotated[
        int | None,
        doc("The most devices of the class in one claim.", minimum=1, maximum=32),
    ] = None


class GPUClassSpec(Wire):
    vendor: Annotated[
        str | None,
        doc(
            "The maker, e.g. nvidia; absent for any.",
            pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            maxLength=63,
        ),
    ] = None
    devices: Annotated[
        list[Annotated[str, doc("A kind of device.", enum=list(KINDS))]] | None,
        doc(
            "What of a card is handed out: Whole is the card as one device, Partition a part that "
            "the hardware keeps apart, Share a part of its memory and time beside others.",
            default=[WHOLE],
            x_list_type="set",
            minItems=1,
            maxItems=len(KINDS),
        ),
    ] = None
    requirements: Annotated[Requirements | None, doc("What a card must have.")] = None
    partition: Annotated[
        PartitionRequirements | None, doc("Which partitions; for the kind Partition.")
    ] = None
    share: Annotated[
        ShareRequirements | None,
        doc("How shares are; for the kind Share.", x_validations=[_INTERVAL_FITS_STRATEGY]),
    ] = None
    usage: Annotated[Usage | None, doc("Who may use the class, and how much.")] = None
    extended_resource_name: Annotated[
        str | None,
        doc(
            "The name under which pods ask for the class in resources.limits. "
            "Absent means gpu.deckhouse.io/<name of the class>, the empty string means none.",
            pattern=_EXTENDED_RESOURCE,
            maxLength=253,
            x_validations=[_NOT_KUBERNETES_OWN, _NAME_PART_FITS],
        ),
    ] = None


class Matching(Wire):
    gpus: Annotated[int, doc("Cards that meet the requirements.", minimum=0)]
    devices: Annotated[
        int | None,
        doc(
            "Devices that these cards give if nobody holds any of them: whole cards that are "
            "offered, and of partitions the most that fit at once. A card that can be had in "
            "several ways counts in that which gives the most; one for shares counts as one.",
            minimum=0,
        ),
    ] = None


class GPUClassStatus(Wire):
    conditions: Conditions = None
    device_class_name: Annotated[str | None, doc("The DeviceClass that claims name.")] = None
    extended_resource_name: Annotated[
        str | None, doc("The name under which pods ask for the class in resources.limits.")
    ] = None
    matching: Annotated[Matching | None, doc("How many cards the class selects.")] = None
    free: Annotated[
        int | None,
        doc(
            "Devices that could be had now: whole cards that nobody holds, and of partitions the "
            "most that fit beside what is held. Absent for classes with shares: how many there "
            "could be depends on the amounts that are asked for.",
            minimum=0,
        ),
    ] = None
    allocated: Annotated[
        int | None,
        doc(
            "Devices of these cards that claims hold and that are of the class, by whatever class "
            "they were asked for.",
            minimum=0,
        ),
    ] = None
    message: Annotated[str | None, doc("The state of the class in one sentence.")] = None


class GPUClass(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: Annotated[
        GPUClassSpec,
        doc(
            "What users may ask for.",
            x_validations=[_PARTITION_FITS_KIND, _SHARE_FITS_KIND],
        ),
    ] = msgspec.field(default_factory=GPUClassSpec)
    status: Annotated[GPUClassStatus | None, doc("What became of it.")] = None


def names_amounts(spec: GPUClassSpec) -> bool:
    """Say whether shares of the class have amounts of their own, not the node's default ones.

    Of a class with other kinds too an amount would keep its whole cards and partitions out, so
    its shares have none (as the chart's policy `gpudeck-share-amounts` has it for claims).
    """
    if spec.devices != [SHARE] or spec.share is None:
        return False
    memory, cores = spec.share.memory, spec.share.cores
    return (memory is not None and memory.default is not None) or (
        cores is not None and cores.default is not None
    )


def asked_name(gpu_class: GPUClass) -> str:
    """Return the extended resource name that pods write; empty if the class has none."""
    name = gpu_class.spec.extended_resource_name
    return f"{labels.GROUP}/{gpu_class.metadata.name}" if name is None else name


def mapped_name(gpu_class: GPUClass) -> str:
    """Return the extended resource name that the scheduler is to serve; empty for none.

    It makes a claim without amounts (Kubernetes 1.37), so pods that ask for a class whose
    shares have amounts of their own get their claim from the webhook instead.
    """
    return "" if names_amounts(gpu_class.spec) else asked_name(gpu_class)
