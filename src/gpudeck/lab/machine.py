# SPDX-License-Identifier: Apache-2.0
"""Hosts as data: what a machine file says, checked until it could be real hardware.

`load` reads `machines/<name>.yaml` or a file of the user's and resolves the models that
its cards name (`machines/models/<model>.yaml`, or the file's own `models`). The host tree
and the mock NVML are both written from the value it returns, so they cannot disagree.
Identities (UUIDs, serial numbers) derive from the host's name and the card's address:
two hosts made from one file never share them, and one host keeps them for ever.
It never touches the system; the rules that refuse a machine are in `machine_rules`.
"""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from gpudeck import errors
from gpudeck.lab import machine_rules

T = TypeVar("T")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times faster where PyYAML was built with libyaml, as its wheels are."""

FOLDER = Path(__file__).with_name("machines")
_IDENTITIES = uuid.UUID("2b7b6f1e-9d0c-5f0a-8a55-67c1f7f1a3d0")


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a machine file; an unknown key is a mistake, not an extension."""


class PciIds(Record, frozen=True, kw_only=True):
    """Identity in configuration space, and what decides which driver binds."""

    vendor: int
    device: int
    subsystem_vendor: int
    subsystem_device: int
    class_code: int = msgspec.field(name="class")
    revision: int = 0xA1


class PcieLink(Record, frozen=True, kw_only=True):
    """The card's best link; an idle card reports generation 1 in sysfs."""

    generation: int
    width: int


class Memory(Record, frozen=True, kw_only=True):
    """Frame buffer as NVML reports it; `reserved_mib` is the driver's own part."""

    total_mib: int
    reserved_mib: int = 0
    bar1_mib: int = 256
    bus_bits: int = 0
    has_temperature: bool = True


class Power(Record, frozen=True, kw_only=True):
    """Watts. A card without `default_watts` answers NOT_SUPPORTED for its limit."""

    idle_watts: int
    default_watts: int | None = None
    minimum_watts: int | None = None
    maximum_watts: int | None = None


class ClockSet(Record, frozen=True, kw_only=True):
    """Megahertz; None where the card has no such clock to report."""

    graphics: int | None = None
    memory: int | None = None
    video: int | None = None


class ClockRange(Record, frozen=True, kw_only=True):
    """Graphics clocks that go with one memory clock, evenly spread."""

    maximum: int
    minimum: int
    steps: int


class SupportedClocks(Record, frozen=True, kw_only=True):
    memory: int
    graphics: ClockRange


class Clocks(Record, frozen=True, kw_only=True):
    maximum: ClockSet
    applications: ClockSet | None = None
    supported: tuple[SupportedClocks, ...] = ()


class TemperatureLimits(Record, frozen=True, kw_only=True):
    """Distances to the limit in degrees: what Ada and later cards report instead of thresholds.

    The distance is 0 at `base` degrees Celsius.
    """

    base: int
    shutdown: int
    slowdown: int
    maximum: int
    memory_maximum: int | None = None


class Temperature(Record, frozen=True, kw_only=True):
    """Degrees Celsius; absolute thresholds up to Ampere, `limit` from Ada on."""

    idle: int
    load: int = 66
    shutdown: int | None = None
    slowdown: int | None = None
    maximum: int | None = None
    memory_maximum: int | None = None
    limit: TemperatureLimits | None = None


class NvLink(Record, frozen=True, kw_only=True):
    """The links that the chip has; which of them are joined is the machine's `nvlink`."""

    version: int
    links: int
    megabytes_per_second: int


class Board(Record, frozen=True, kw_only=True):
    vbios: str = ""
    part_number: str = ""
    gpu_part_number: str = ""


class MigProfile(Record, frozen=True, kw_only=True):
    """One GPU instance profile: `id` is what people type, `nvml` the index in NVML's enum."""

    name: str
    id: int
    nvml: int
    slices: int
    memory_mib: int
    multiprocessors: int
    copy: int
    decoder: int
    jpeg: int
    ofa: int
    maximum: int
    starts: tuple[int, ...]
    size: int
    encoder: int = 0


class Mig(Record, frozen=True, kw_only=True):
    """How a card is partitioned. `compute` maps the slices of a GPU instance to the sizes
    and counts of compute instances in it; `mode_change` is live, reset
    (the driver resets the card itself) or pending (it waits for somebody to reset the card)."""

    mode_change: str
    keeps_mode: bool
    instances: int
    memory_slices: int
    compute_slices: int
    compute_multiprocessors: int
    compute: dict[int, dict[int, int]]
    profiles: tuple[MigProfile, ...]


class Model(Record, frozen=True, kw_only=True):
    """Everything that two cards of one model share."""

    name: str
    maker: str
    architecture: str
    compute_capability: str
    pci: PciIds
    pcie: PcieLink
    power: Power
    temperature: Temperature
    ecc: bool
    brand: str = ""
    multiprocessors: int = 0
    memory: Memory | None = None
    clocks: Clocks | None = None
    nvlink: NvLink | None = None
    mig: Mig | None = None
    board: Board = Board()
    minimum_driver: str | None = None
    retired_pages: bool = False
    remapped_row_banks: int | None = None
    average_power: bool = True
    fabric: bool = False
    platform: bool = False
    integrated: bool = False


class Card(Record, frozen=True, kw_only=True):
    """A card in its slot. `behind` lists the bridges from the root port to the card."""

    model: str
    address: str
    behind: tuple[str, ...]
    numa_node: int
    module: int | None = None
    uuid: str = ""
    serial: str = ""


class OtherDevice(Record, frozen=True, kw_only=True):
    """A PCI device that is no card: a switch, a network card, the board's own screen."""

    address: str
    behind: tuple[str, ...]
    numa_node: int
    vendor: int
    device: int
    class_code: int = msgspec.field(name="class")
    driver: str | None = None


class LinkPair(Record, frozen=True, kw_only=True):
    """NVLinks that join two cards directly; the ends are indexes of `cards`."""

    start: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    links: int


class NvLinkTopology(Record, frozen=True, kw_only=True):
    """Cards joined pair by pair, or each with every link to switches."""

    pairs: tuple[LinkPair, ...] = ()
    switches: tuple[str, ...] = ()
    switched: bool = False

    @property
    def has_switches(self) -> bool:
        """Whether every link ends at a switch, seen as a PCI device or not."""
        return self.switched or bool(self.switches)


class NumaNode(Record, frozen=True, kw_only=True):
    cpus: str
    memory_mib: int


class OperatingSystem(Record, frozen=True, kw_only=True):
    """What /etc/os-release says."""

    id: str
    name: str
    version_id: str
    pretty_name: str
    codename: str = ""
    like: str = ""


class Processor(Record, frozen=True, kw_only=True):
    vendor: str
    model: str


class Baseboard(Record, frozen=True, kw_only=True):
    """What /sys/class/dmi/id says."""

    vendor: str
    product: str
    version: str = ""


class Driver(Record, frozen=True, kw_only=True):
    """The kernel driver. `open` names the kind of module that is loaded."""

    version: str
    cuda: str = ""
    open: bool = True


class Machine(Record, frozen=True, kw_only=True):
    """A host: `host` is its name, the rest is what its file says."""

    os: OperatingSystem
    kernel: str
    cpu: Processor
    board: Baseboard
    numa_nodes: tuple[NumaNode, ...]
    driver: Driver
    cards: tuple[Card, ...]
    name: str = ""
    host: str = ""
    architecture: str = "x86_64"
    iommu: bool = True
    nvlink: NvLinkTopology = NvLinkTopology()
    others: tuple[OtherDevice, ...] = ()
    models: dict[str, Model] = {}

    @property
    def maker(self) -> str:
        """The maker of all its cards (one host has one driver)."""
        return self.models[self.cards[0].model].maker

    def model_of(self, card: Card) -> Model:
        """Return the model that `card` names."""
        return self.models[card.model]

    def cpus_near(self, numa_node: int) -> str:
        """List the CPUs of a NUMA node as sysfs does; all of them for -1."""
        near = self.numa_nodes if numa_node < 0 else self.numa_nodes[numa_node : numa_node + 1]
        return ",".join(node.cpus for node in near)

    def card_at(self, address: str) -> Card:
        """Return the card at a PCI address; NotFoundError names those there are."""
        for card in self.cards:
            if card.address == address:
                return card
        known = ", ".join(card.address for card in self.cards)
        raise errors.NotFoundError(
            f"{self.name}: no card at PCI address {address!r}; there are: {known}",
            reason="CardNotFound",
        )


def names() -> list[str]:
    """List the machines that ship with gpudeck."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name_or_path: str | Path, *, host: str | None = None) -> Machine:
    """Read a machine by name, or by a path (with a slash or .yaml); `host` names the copy.

    Raises InvalidError for an unknown name or file and, with the field's
    path, the value and what is allowed, for a file that cannot be or is no machine.
    """
    path = _find(name_or_path)
    text = _read(path)
    machine = _convert(text, Machine, str(path))
    name = machine.name or path.stem
    machine = msgspec.structs.replace(
        machine,
        name=name,
        host=host or machine.host or name,
        models=_models(machine, path),
    )
    machine_rules.check(machine)
    cards = tuple(_identified(machine.host, card) for card in machine.cards)
    return msgspec.structs.replace(machine, cards=cards)


def _find(name_or_path: str | Path) -> Path:
    text = str(name_or_path)
    is_path = "/" in text or text.endswith((".yaml", ".yml"))
    path = Path(text) if is_path else FOLDER / f"{text}.yaml"
    if path.is_file():
        return path
    if is_path:
        raise errors.InvalidError(f"machine: there is no file {text}", reason="MachineNotFound")
    raise errors.InvalidError(
        f"machine: {text!r} is not known; allowed: {', '.join(names())}, or a YAML file's path",
        reason="MachineNotFound",
    )


def _read(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(), Loader=_LOADER)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise errors.InvalidError(
            f"{path}: not a YAML file: {error}",
            reason="MachineUnreadable",
            field=str(path),
        ) from error


def _convert(value: Any, kind: type[T], origin: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise errors.InvalidError(
            f"{origin}: {error}", reason="MachineInvalid", field=origin
        ) from error


def _models(machine: Machine, path: Path) -> dict[str, Model]:
    """Resolve the models of the cards: the file's own first, then those that ship."""
    found = dict(machine.models)
    for index, card in enumerate(machine.cards):
        if card.model in found:
            continue
        file = FOLDER / "models" / f"{card.model}.yaml"
        if not file.is_file():
            known = sorted(found.keys() | {path.stem for path in file.parent.glob("*.yaml")})
            raise errors.InvalidError(
                f"{path}: cards[{index}].model: {card.model!r} is not known; "
                f"allowed: {', '.join(known)}",
                reason="ModelNotFound",
                field=f"cards[{index}].model",
            )
        found[card.model] = _convert(_read(file), Model, str(file))
    return found


def _identified(host: str, card: Card) -> Card:
    """Give a card the UUID and the serial number that its host and address imply."""
    seed = f"{host}/{card.address}"
    digits = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") % 10**10
    return msgspec.structs.replace(
        card,
        uuid=card.uuid or f"GPU-{uuid.uuid5(_IDENTITIES, seed)}",
        serial=card.serial or f"165{digits:010d}",
    )
