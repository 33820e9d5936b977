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
from typing import Protocol

import msgspec


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


class Fault(Value, frozen=True):
    """Something that makes a card unfit for new work."""

    reason: str
    """CamelCase; becomes the reason of the condition and of the Event."""
    message: str
    """One sentence; without figures that change while the fault lasts."""
    confirm: int = 1
    """Readings in a row that must show it before it counts."""


class Recovery(enum.StrEnum):
    """What the driver says when it is asked what the card needs."""

    UNKNOWN = "unknown"  # It cannot be asked.
    NONE = "none"
    NEEDED = "needed"


class PartitionProfile(Value, frozen=True):
    name: str
    """As the driver reports it (case-29), never computed: `1g.10gb+me`."""
    profile_id: int
    memory_mib: int
    max_instances: int
    slices: int
    multiprocessors: int


class Partition(Value, frozen=True):
    """A partition that exists now."""

    profile: str
    uuid: str
    start: int
    size: int


class PartitioningMode(enum.StrEnum):
    NOT_AVAILABLE = "NotAvailable"
    DISABLED = "Disabled"
    ENABLED = "Enabled"


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
    partitions: tuple[Partition, ...] = ()
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
    xid: int
    fault: Fault | None = None
    """Set: the card is at fault until a recovery is seen. None: the application was."""


class DriverState(Value, frozen=True):
    """The node's driver as the library sees it."""

    ready: bool
    reason: str
    message: str
    version: str = ""
    api_version: str = ""
    """Version of the compute API, `13.0`."""


class DeviceNode(Value, frozen=True):
    path: str
    host_path: str
    major: int
    minor: int
    permissions: str = "rw"
    type: str = "c"


class Mount(Value, frozen=True):
    host_path: str
    container_path: str
    options: tuple[str, ...]


class Hook(Value, frozen=True):
    name: str
    path: str
    args: tuple[str, ...]
    env: tuple[str, ...] = ()


class Edits(Value, frozen=True):
    """What a container needs; host paths as the container runtime sees them."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()


class Injection(Value, frozen=True):
    """Edits for a claim: `shared` once, `cards` for each card in the order asked."""

    shared: Edits
    cards: tuple[Edits, ...]


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

    def inject(
        self, cards: Sequence[CardReading], *, driver_version: str, hook_path: str
    ) -> Injection:
        """Say what containers need to use whole cards. Changes nothing; may be repeated.

        `hook_path` is where the container runtime finds nvidia-cdi-hook, empty for nowhere.
        Raises UnavailableError (retry) where a device node or the driver's files are missing,
        UnsupportedError for a card that cannot be given whole (it is partitioned).
        """


class Maker(Protocol):
    """What the package of a maker offers to the registry: two functions."""

    def vendor(self, settings: VendorSettings) -> Vendor:
        """Make the serving side."""

    def library(self, settings: VendorSettings, progress: Progress) -> Library:
        """Make the library side; called in the library process only, so it may import there."""
