# SPDX-License-Identifier: Apache-2.0
"""The rules that refuse a machine which could not exist.

Each rule is a small pure function that yields sentences: field path, value, what is
allowed. `check` runs all of them for `machine.load` and reports every finding at once,
so that a file of a user's is corrected in one round. The rules say what hardware can be
(grids of MIG slices, buses, links), never what gpudeck can handle.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gpudeck import errors

if TYPE_CHECKING:
    from gpudeck.lab import machine as machines

ARCHITECTURES = {
    "nvidia": ("volta", "turing", "ampere", "ada", "hopper", "blackwell"),
    "metax": ("c500",),
}
BRANDS = ("", "tesla", "nvidia", "nvidia-rtx")
PROCESSORS = ("x86_64", "aarch64")
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_PROFILE = re.compile(r"(\d+)g\.(\d+)gb(\+me|\+gfx|\+me\.all|-me)?")
_CAPABILITY = re.compile(r"\d+\.\d+")
_VERSION = re.compile(r"\d+(\.\d+)*")

Findings = Iterator[str]


def check(machine: machines.Machine) -> None:
    """Raise InvalidError with every sentence that the rules have about `machine`."""
    findings = [finding for rule in _RULES for finding in rule(machine)]
    if findings:
        raise errors.InvalidError(
            f"{machine.name}: " + "; ".join(findings),
            reason="MachineImpossible",
            field=findings[0].split(":", 1)[0],
        )


def cpus(text: str) -> frozenset[int]:
    """Parse a list as the kernel prints it, for example 0-3,8; ValueError for anything else."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _cards(machine: machines.Machine) -> Findings:
    if not machine.cards:
        yield "cards: [] is not allowed; a machine has at least one card"
        return
    makers = sorted({machine.model_of(card).maker for card in machine.cards})
    if len(makers) > 1:
        yield f"cards: makers {', '.join(makers)} are mixed; allowed: one, for there is one driver"
    modules = [card.module for card in machine.cards if card.module is not None]
    if len(modules) != len(set(modules)):
        yield f"cards: modules {modules} repeat; each card has a module number of its own"


def _addresses(machine: machines.Machine) -> Findings:
    seen: dict[str, str] = {}
    for place, device in _devices(machine):
        path, address = f"{place}.address", device.address
        if not _ADDRESS.fullmatch(address):
            yield f"{path}: {address!r} is no PCI address; allowed: for example 0000:1b:00.0"
        elif address in seen:
            yield f"{path}: {address!r} is also {seen[address]}; an address holds one device"
        seen.setdefault(address, path)
    order = [card.address for card in machine.cards]
    if order != sorted(order):
        yield f"cards: {', '.join(order)} are not in PCI order; allowed: ascending addresses"


def _devices(
    machine: machines.Machine,
) -> Iterator[tuple[str, machines.Card | machines.OtherDevice]]:
    for index, card in enumerate(machine.cards):
        yield f"cards[{index}]", card
    for index, other in enumerate(machine.others):
        yield f"others[{index}]", other


def _bridges(machine: machines.Machine) -> Findings:
    ends = {device.address: path for path, device in _devices(machine)}
    above: dict[str, tuple[str, ...]] = {}
    for place, device in _devices(machine):
        path = f"{place}.behind"
        if not device.behind:
            yield f"{path}: [] is not allowed; name at least the root port"
        for depth, bridge in enumerate(device.behind):
            if not _ADDRESS.fullmatch(bridge):
                yield f"{path}[{depth}]: {bridge!r} is no PCI address"
            elif bridge in ends:
                yield f"{path}[{depth}]: {bridge!r} is {ends[bridge]}; a bridge is no end device"
            elif above.setdefault(bridge, device.behind[:depth]) != device.behind[:depth]:
                yield f"{path}[{depth}]: {bridge!r} hangs below two different bridges"
        domains = {address.partition(":")[0] for address in (*device.behind, device.address)}
        if len(domains) > 1:
            yield f"{path}: PCI domains {', '.join(sorted(domains))} differ; allowed: one"


def _numa(machine: machines.Machine) -> Findings:
    taken: set[int] = set()
    for index, node in enumerate(machine.numa_nodes):
        try:
            own = cpus(node.cpus)
        except ValueError:
            yield f"numa_nodes[{index}].cpus: {node.cpus!r} is no list; allowed: for example 0-3,8"
            continue
        if own & taken:
            yield f"numa_nodes[{index}].cpus: {node.cpus!r} overlaps another node"
        taken |= own
    last = len(machine.numa_nodes) - 1
    for path, device in _devices(machine):
        if not -1 <= device.numa_node <= last:
            yield f"{path}.numa_node: {device.numa_node} does not exist; allowed: -1 to {last}"


def _links(machine: machines.Machine) -> Findings:
    topology = machine.nvlink
    if topology.pairs and topology.has_switches:
        yield "nvlink: pairs and switches exclude each other; a link ends at a card or a switch"
    others = {other.address for other in machine.others}
    for index, switch in enumerate(topology.switches):
        if switch not in others:
            yield f"nvlink.switches[{index}]: {switch!r} is not among others"
    used = [0] * len(machine.cards)
    for index, pair in enumerate(topology.pairs):
        if not 0 <= pair.start < pair.end < len(machine.cards):
            yield (
                f"nvlink.pairs[{index}]: {pair.start} to {pair.end} is impossible; "
                f"allowed: two cards of 0 to {len(machine.cards) - 1}, the lower first"
            )
            continue
        used[pair.start] += pair.links
        used[pair.end] += pair.links
    for index, card in enumerate(machine.cards):
        nvlink = machine.model_of(card).nvlink
        if used[index] > (nvlink.links if nvlink else 0):
            yield (
                f"cards[{index}]: {used[index]} NVLinks are joined; "
                f"{card.model} has {nvlink.links if nvlink else 0}"
            )
        if topology.has_switches and nvlink is None:
            yield f"nvlink: switches, but cards[{index}] ({card.model}) has no NVLink"


def _driver(machine: machines.Machine) -> Findings:
    if machine.architecture not in PROCESSORS:
        yield f"architecture: {machine.architecture!r}; allowed: {', '.join(PROCESSORS)}"
    version = machine.driver.version
    if not _VERSION.fullmatch(version):
        yield f"driver.version: {version!r} is no version; allowed: for example 580.105.08"
        return
    for index, card in enumerate(machine.cards):
        least = machine.model_of(card).minimum_driver
        if least and _numbers(version) < _numbers(least):
            yield (
                f"driver.version: {version} does not know cards[{index}] ({card.model}); "
                f"allowed: {least} or later"
            )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _model_rules(machine: machines.Machine) -> Findings:
    for key, model in machine.models.items():
        for rule in (_kind, _amounts, _mig):
            for finding in rule(model):
                yield f"models[{key}].{finding}"


def _kind(model: machines.Model) -> Findings:
    if model.maker not in ARCHITECTURES:
        yield f"maker: {model.maker!r} is not known; allowed: {', '.join(ARCHITECTURES)}"
        return
    known = ARCHITECTURES[model.maker]
    if model.architecture not in known:
        yield f"architecture: {model.architecture!r} is not known; allowed: {', '.join(known)}"
    if model.brand not in BRANDS:
        yield f"brand: {model.brand!r} is not known; allowed: {', '.join(BRANDS[1:])}"
    if not _CAPABILITY.fullmatch(model.compute_capability):
        yield f"compute_capability: {model.compute_capability!r}; allowed: for example 9.0"
    if model.pci.class_code >> 8 not in (0x0300, 0x0302):
        yield f"pci.class: {model.pci.class_code:#08x}; allowed: 0x030000 or 0x030200"


def _amounts(model: machines.Model) -> Findings:
    if (model.memory is None) is not model.integrated:
        yield "memory: only an integrated card has none of its own, and it has none"
    if model.memory and model.memory.reserved_mib >= model.memory.total_mib:
        yield (
            f"memory.reserved_mib: {model.memory.reserved_mib} leaves nothing of "
            f"{model.memory.total_mib}"
        )
    power = model.power
    limits = [
        watts
        for watts in (power.minimum_watts, power.default_watts, power.maximum_watts)
        if watts is not None
    ]
    if limits != sorted(limits):
        yield f"power: {limits} must be minimum, default, maximum in ascending order"
    if model.pcie.generation not in range(1, 8) or model.pcie.width not in (
        1,
        2,
        4,
        8,
        16,
    ):
        yield f"pcie: generation {model.pcie.generation}, width {model.pcie.width} do not exist"


def _mig(model: machines.Model) -> Findings:
    if model.mig is None:
        return
    if model.mig.mode_change not in ("reset", "pending", "live"):
        yield f"mig.mode_change: {model.mig.mode_change!r}; allowed: reset, pending, live"
    for field in ("id", "nvml", "name"):
        values = [getattr(profile, field) for profile in model.mig.profiles]
        if len(values) != len(set(values)):
            yield f"mig.profiles: {field} {values} repeats"
    for index, profile in enumerate(model.mig.profiles):
        for finding in _profile(model, model.mig, profile):
            yield f"mig.profiles[{index}].{finding}"


def _profile(model: machines.Model, mig: machines.Mig, profile: machines.MigProfile) -> Findings:
    match = _PROFILE.fullmatch(profile.name)
    if match is None or int(match[1]) != profile.slices:
        yield f"name: {profile.name!r} does not say {profile.slices} slices; for example 1g.10gb"
    if profile.slices not in mig.compute:
        yield f"slices: {profile.slices} has no compute instances; known: {sorted(mig.compute)}"
    for start in profile.starts:
        if start + profile.size > mig.memory_slices:
            yield (
                f"starts: {start}:{profile.size} ends outside the grid of "
                f"{mig.memory_slices} memory slices"
            )
    if profile.maximum > min(len(profile.starts), mig.compute_slices // profile.slices):
        yield f"maximum: {profile.maximum} instances have no room"
    if model.memory and profile.memory_mib > model.memory.total_mib:
        yield f"memory_mib: {profile.memory_mib} is more than the card's {model.memory.total_mib}"
    if profile.multiprocessors > model.multiprocessors:
        yield (
            f"multiprocessors: {profile.multiprocessors} is more than the card's "
            f"{model.multiprocessors}"
        )


_RULES: tuple[Callable[[machines.Machine], Findings], ...] = (
    _cards,
    _addresses,
    _bridges,
    _numa,
    _links,
    _driver,
    _model_rules,
)
