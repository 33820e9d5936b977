# SPDX-License-Identifier: Apache-2.0
"""What a maker implements, method by method. This file is the place to start a new one.

A maker is two classes. `Vendor` lives in the serving process: it looks at the node's
PCI bus and says what a container needs. `Library` lives in a process of its own (see
`worker`), is the only one that loads the maker's library, and may hang or crash at any
call: `supervisor` ends it by SIGKILL, starts another and goes on without the card that
was being read. Neither decides health over time: they tell what they see now, and
`health` makes the verdict, alike for all makers. Neither keeps anything on disk.

Values cross between the two processes as msgpack: they are plain structs, all of them
here. Equal states must give equal values, in the same order, for the supervisor
publishes on every difference. Nothing that changes by the second belongs into them.

The suite in tests/contract/vendors runs on every implementation.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from gpudeck.cdi import spec


class Value(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The root of the contract's values."""


class VendorSettings(Value, frozen=True):
    """Where things are; the same for the serving process and the library process."""

    host_root: str = "/"
    """The node's root as this process sees it."""
    host_root_on_node: str = "/"
    """The node's root as the container runtime sees it."""


class Site(Value, frozen=True):
    """A card as the PCI bus shows it, whether or not its driver serves it."""

    address: str
    """`0000:1b:00.0`, as sysfs spells it; the card's name everywhere."""
    served: bool = True
    """The maker's kernel driver is bound, so the library may be asked about the card."""
    driver: str | None = None
    """Name of the kernel driver that is bound."""
    pcie_root: str | None = None
    numa_node: int | None = None
    class_code: int | None = None
    """24 bits: base class, sub-class, programming interface, e.g. 0x030200."""
    pci_id: int | None = None
    """PCI device in the upper half, vendor in the lower: 0x20B010DE, as NVML tells it."""
    subsystem_id: int | None = None
    """The same of the subsystem, which tells boards of one chip apart."""


class Fault(Value, frozen=True):
    """Something that makes a card unfit for new work."""

    reason: str
    """CamelCase; becomes the reason of the condition and of the Event."""
    message: str
    """One sentence; without figures that change while the fault lasts."""
    confirm: int = 1
    """Readings in a row that must show it before it counts."""


GONE = frozenset({"GpuLost", "ResetRequired", "CardNotInDriver", "DriverNotLoaded"})
"""Reasons for which a card is not read that only a new start of the card, or of its driver, ends.
"""


class Recovery(enum.StrEnum):
    """What the driver says when it is asked what the card needs."""

    UNKNOWN = "unknown"  # It cannot be asked.
    NONE = "none"
    NEEDED = "needed"


class Placement(Value, frozen=True):
    """A place on the card, in the driver's memory slices."""

    start: int
    size: int


class PartitionProfile(Value, frozen=True):
    name: str
    """As the driver reports it (case-29), never computed: `1g.10gb+me`."""
    profile_id: int
    memory_mib: int
    max_instances: int
    slices: int
    multiprocessors: int
    placements: tuple[Placement, ...] = ()
    """Every legal place on an empty card, as the driver lists them; never from a table of ours."""
    copy_engines: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg_engines: int = 0
    ofa_engines: int = 0


class Partition(Value, frozen=True):
    """A partition that exists now."""

    profile: str
    uuid: str
    """Empty for one that is half made, and so of no use to anybody."""
    start: int
    size: int
    profile_id: int | None = None
    """None where the driver does not tell it for an instance that exists."""
    driver_id: str = ""
    """The driver's own number for it, which the maker's serving side finds its device nodes by."""


class PartitioningMode(enum.StrEnum):
    NOT_AVAILABLE = "NotAvailable"
    DISABLED = "Disabled"
    ENABLED = "Enabled"


class ShareSupport(Value, frozen=True):
    """How the card can be shared by claims that each hold a part of its memory."""

    time_slicing: bool = False
    """The driver takes a time-slice interval for the card."""
    mps: bool = False
    """Daemons are kept on the node, and the card can be shared by one."""
    memory_limits: bool = False
    """The driver keeps a container to an amount of memory; found out by asking the card."""
    memory_limits_message: str = ""
    """Why not, in one sentence, where `memory_limits` is False."""


class Link(Value, frozen=True):
    """Fast links of a card that lead to one place."""

    peer: str
    """Address of the card at the other end; empty for a switch."""
    count: int


class CardReading(Value, frozen=True):
    """All that the library tells of one card now. What it does not know is None or empty."""

    address: str
    uuid: str
    minor: int | None = None
    product_name: str = ""
    architecture: str = ""
    compute_api: str = ""
    compute_capability: str = ""
    memory_bytes: int | None = None
    """None where the card has no memory of its own (case-13); never made up."""
    total_slices: int = 0
    """0: the card cannot be partitioned."""
    profiles: tuple[PartitionProfile, ...] = ()
    mode: PartitioningMode = PartitioningMode.NOT_AVAILABLE
    pending_mode: PartitioningMode = PartitioningMode.NOT_AVAILABLE
    """What the mode will be after the card's next reset; the same as `mode` ordinarily."""
    dynamic: bool = False
    """The mode changes without a reset of the card, so that partitions are made on demand."""
    partitions: tuple[Partition, ...] = ()
    partition_numbers: tuple[str, ...] = ()
    """UUIDs of partitions, each at the number by which the driver's own programs name it (the 1 of
    `0:1`), which need not be its place on the card. Empty where a number has no partition."""
    links: tuple[Link, ...] = ()
    """Links between cards beside PCIe (NVLink) that are up, by peer."""
    share_support: ShareSupport = ShareSupport()
    mps_shares: tuple[str, ...] = ()
    """Ids of the shares that joined the card's MPS daemon and have not left it."""
    clique: str = ""
    """`<cluster>.<clique>`: cards that reach each other by one fabric; empty outside of any."""
    faults: tuple[Fault, ...] = ()
    """What is wrong now. A query the card does not support is no fault (case-08)."""
    recovery: Recovery = Recovery.UNKNOWN
    lifetime: int | None = None
    """A counter that only grows while the card is up: smaller than before means that the card
    was reset. Not compared otherwise."""


class CardEvent(Value, frozen=True):
    """The driver raised something about a card."""

    address: str | None
    """None: the driver did not say which card; every card is meant (case-06)."""
    xid: int | None = None
    """None: no error has happened, but something that a reading shows has changed."""
    fault: Fault | None = None
    """Set: the card is at fault until a recovery is seen. None: the application was."""
    instance: str = ""
    """The partition that it is about, as `Partition.driver_id` has it; where that ends in `/`,
    all that begin so. Empty: the whole card."""


class DriverState(Value, frozen=True):
    """The node's driver as the library sees it."""

    ready: bool
    reason: str
    message: str
    version: str = ""
    api_version: str = ""
    """Version of the compute API, `13.0`."""


class SharingStrategy(enum.StrEnum):
    TIME_SLICING = "TimeSlicing"
    MPS = "MPS"


class TimeSlice(enum.StrEnum):
    """How long the driver lets one process run before the next (nvidia-smi compute-policy)."""

    DEFAULT = "Default"
    SHORT = "Short"
    MEDIUM = "Medium"
    LONG = "Long"


class Share(Value, frozen=True):
    """A part of a card that other claims hold parts of too."""

    share_id: str
    memory_bytes: int | None = None
    """None: no amount was agreed."""
    cores: int | None = None
    """Percent of the card's multiprocessors."""
    strategy: SharingStrategy = SharingStrategy.TIME_SLICING
    interval: TimeSlice | None = None
    """None leaves the card's interval alone."""
    enforce_memory: bool = True


class Use(Value, frozen=True):
    """A card, or one part of it, that a claim uses: whole when neither part is given."""

    card: CardReading
    partition: Partition | None = None
    share: Share | None = None
    admin_access: bool = False
    """Looks on, beside the owners; nothing may be changed for it."""


class UseEdits(Value, frozen=True):
    """What one use needs of a container, and what the maker can promise about it."""

    edits: spec.ContainerEdits
    limits_memory: bool = False
    """The driver keeps containers to the share's memory."""
    limits_memory_message: str = ""
    """Where a share has an amount: what is kept to it, or why nothing is."""


class Injection(Value, frozen=True):
    """Edits for a claim: `shared` once, `uses` one for each use in the order asked."""

    shared: spec.ContainerEdits
    uses: tuple[UseEdits, ...]


class MakePartition(Value, frozen=True, tag="MakePartition"):
    """Make the partition of that profile at that place; one that is there already is the answer."""

    profile_id: int
    placement: Placement


class RemovePartition(Value, frozen=True, tag="RemovePartition"):
    """Remove the partition at that place; success when there is none of that profile."""

    profile_id: int
    placement: Placement


class SetPartitioning(Value, frozen=True, tag="SetPartitioning"):
    """Turn the partitioning mode on or off; success when it is so already."""

    enabled: bool
    may_reset: bool = False
    """For a card that needs a reset for it: have the driver reset it, or where the driver leaves
    that to others, keep the mode as the pending one, for `Vendor.reset` to follow."""


class SetTimeSlice(Value, frozen=True, tag="SetTimeSlice"):
    interval: TimeSlice


class JoinMps(Value, frozen=True, tag="JoinMps"):
    """Have an MPS daemon for a share; success when the share has joined already.

    Does not wait for the daemon: `Vendor.pending` tells when it is there.
    """

    share_id: str


class LeaveMps(Value, frozen=True, tag="LeaveMps"):
    """End a share's use of the card's MPS daemon; the last one ends the daemon."""

    share_id: str = ""
    """Empty: all shares leave."""


Action: TypeAlias = (
    MakePartition | RemovePartition | SetPartitioning | SetTimeSlice | JoinMps | LeaveMps
)
"""What a claim may need done to a card before a container can use it."""


Progress = Callable[[str], None]
"""Called with the name of the library's function that is about to be entered. Cheap, never fails:
it is how a hang is told by name after the process was killed."""


class Library(Protocol):
    """The maker's library, in a process of its own, called by one thread but for `wait`.

    The process ends by SIGKILL or on its own; there is no last call, the kernel gives back all.
    Every method may block without end and may end the process; the caller has deadlines.
    Errors are `gpudeck.errors.GpudeckError`s with the reason that users see.
    """

    def open(self) -> DriverState:
        """Load and initialise. Deadline 30 s.

        Touches no card, so that a hung one does not hang it. A driver that is not there is no
        error: it is the answer `ready=False` with a reason, and the process is ended. May be
        called once in the life of a process.
        """

    def read(self, address: str) -> CardReading:
        """Read one card, and nothing of any other. Deadline 5 s, ordinarily some milliseconds.

        May be repeated and mixed with other cards. The first reading of a card also asks for its
        events. Raises an error that names what is wrong with the card (its reason and message
        become the card's verdict): UnavailableError for a card that is lost or whose queries
        fail, NotFoundError for a card that the library does not know. A single query that fails
        as "not supported" only leaves its field empty.
        """

    def act(self, address: str, action: Action) -> Partition | None:
        """Change one card. Deadline 9 s, ordinarily well below one; 45 s where it may be reset.

        MakePartition gives what it made, every other action None.
        May be repeated: an action whose outcome stands already succeeds and changes nothing. One
        that fails has undone what it began (a GPU instance whose compute instance could not be
        made is removed again). Removing from a card that is lost succeeds: its partitions went with
        it. Raises BusyError where somebody uses what must not be used (retry),
        ConflictError where another partition lies in the way, UnsupportedError where the card
        cannot do it (a mode change that needs a reset it may not have included), else as `read`.
        A card that may have been reset is read in another process afterwards: what this one has
        asked of it may be lost (nvmlDeviceSetMigMode "may unbind or reset the device", nvml.h 13).
        """

    def wait(self, seconds: float) -> Sequence[CardEvent]:
        """Wait for events of the cards read so far; return early with those that came.

        Called again and again by a thread of its own beside `read`. Must return after about
        `seconds` also when nothing happens. What happened before the first `read` of a card is
        not told; lasting faults are seen by `read`.
        """


class Vendor(Protocol):
    """A maker in the serving process. Loads nothing of the maker's; reads files of the node.

    Methods may block for the time of some file reads; they are called in threads.
    """

    name: str
    """Lower-case DNS label: `nvidia`."""

    def sites(self) -> Sequence[Site]:
        """List the maker's cards on the PCI bus, by address. One bad device never hides another."""

    def traces(self) -> tuple[str, ...]:
        """What the node shows of cards, driver and partitions without the library; equal while
        nothing has changed. Some cheap looks, each second: a difference is only a reason to read
        anew.
        """

    def pending(self, use: Use) -> str:
        """Say what is missing before a container can use a card, in one sentence; "" for nothing.

        Asked after the actions for the use have succeeded, and again while it is something.
        """

    def inject(self, uses: Sequence[Use], *, driver_version: str, hook_path: str) -> Injection:
        """Say what containers need to use cards and parts of them. Changes nothing, is repeatable.

        `hook_path` is where the container runtime finds nvidia-cdi-hook, empty for nowhere.
        Raises UnavailableError (retry) where a device node or the driver's files are missing,
        UnsupportedError for a card that cannot be given so now (whole while it is partitioned).
        """

    async def reset(self, addresses: Sequence[str]) -> None:
        """Reset cards: their pending modes hold then. No library process of ours lives meanwhile.

        Ordinarily some seconds; a caller that gives up cancels it. May be repeated. Raises
        BusyError while a process uses one of the cards, UnsupportedError where the node cannot do
        it, else UnavailableError; some of the cards may have been reset then.
        """


class Maker(Protocol):
    """What the package of a maker offers to the registry: two functions."""

    def vendor(self, settings: VendorSettings) -> Vendor:
        """Make the serving side."""

    def library(self, settings: VendorSettings, progress: Progress) -> Library:
        """Make the library side; called in the library process only, so it may import there."""
