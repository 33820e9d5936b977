# SPDX-License-Identifier: Apache-2.0
"""Cards and options → the labels of the node. Pure; everything that reads or writes is elsewhere.

A label tells what holds for every card of the node: a value that differs is left out, so that
a pod that selects by it is never put beside a card that is another (gpu-feature-discovery
0.20 writes that of the last card). Cards that the driver does not serve are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from gpudeck.api import names
from gpudeck.gfd import partitions, sharing, table
from gpudeck.gfd.options import Options
from gpudeck.gfd.virtual import HostDriver
from gpudeck.pluginconfig import model
from gpudeck.vendors import contract, records

Labels = dict[str, str]
"""Names without the prefix."""

_COMPUTE, _GRAPHICS = 0x0302, 0x0300
_MIB = 1 << 20
_LABEL_NAME_LENGTH = 63
_OF_WHOLE = ("gpu.product", "gpu.memory")
T = TypeVar("T")


class Node(msgspec.Struct, frozen=True):
    """What labels are made from, besides the options."""

    inventory: records.Inventory
    machine: str = ""
    """Text of the file with the machine's type."""
    virtual: tuple[HostDriver, ...] = ()
    """One for each card that is a virtual GPU."""
    by_claims: bool = False
    """Its cards are handed out by claims (DRA), for which partitions are made and removed."""


class Plan(msgspec.Struct, frozen=True):
    """The labels, and what of the node they cannot tell."""

    labels: Labels
    warnings: tuple[str, ...] = ()


def plan(node: Node, options: Options) -> Plan:
    """Return the labels of a node, by name without the prefix; without the timestamp."""
    labels = _virtual(node.virtual)
    # What was read of a card before it was given to another driver is still known.
    states = [each for each in node.inventory.cards if each.site.served]
    cards = [each.reading for each in states if each.reading is not None]
    if node.by_claims:
        cards = [partitions.without_claims(card) for card in cards]
    if not cards:
        return Plan(labels)
    labels |= _driver(node.inventory.driver)
    labels["gpu.machine"] = names.label_value(node.machine) or "unknown"
    labels["gpu.mode"] = _mode(each.site.class_code for each in states if each.reading is not None)
    labels["mig.capable"] = _word(
        any(card.mode is not contract.PartitioningMode.NOT_AVAILABLE for card in cards)
    )
    clique = alike(card.clique for card in cards)
    if clique:
        labels["gpu.clique"] = clique
    shared = options.sharing.labelled(_resources(cards, options))
    labels["mps.capable"], warnings = _mps(cards, shared)
    labels |= _cards(cards, shared)
    if options.mig_strategy is not model.MigStrategy.NONE:
        labels["mig.strategy"] = options.mig_strategy.value
    if options.mig_strategy is not model.MigStrategy.NONE and not node.by_claims:
        found = partitions.plan(cards, options.mig_strategy, shared)
        if table.GPU + ".count" in found.labels:
            # What was said of whole cards holds no longer, even where nothing takes its place.
            labels = {name: each for name, each in labels.items() if name not in _OF_WHOLE}
        labels |= found.labels
        warnings += found.warnings
    models = Counter(card.product_name for card in cards)
    if len(models) > 1:
        labels |= _models(models)
        told = ", ".join(f"{count} {model}" for model, count in sorted(models.items()))
        warnings += (f"The node has cards of several models, {told}: gpu.product is left out.",)
    return Plan(labels, warnings)


def _resources(cards: Sequence[contract.CardReading], options: Options) -> dict[str, list[str]]:
    """The names under which a config offers what labels call `gpu` and `mig-<profile>`."""
    strategy, named = options.mig_strategy, options.resources
    found: dict[str, list[str]] = {}
    for card in cards:
        if strategy is model.MigStrategy.NONE or not partitions.is_enabled(card):
            found.setdefault(table.GPU, []).append(named.of_card(card.product_name))
            continue
        for each in card.partitions:
            is_single = strategy is model.MigStrategy.SINGLE
            label = table.GPU if is_single else partitions.resource_name(each.profile)
            found.setdefault(label, []).append(named.of_partition(each.profile, strategy))
    return {
        label: [each.removeprefix(model.PREFIX) for each in names] for label, names in found.items()
    }


def alike(values: Iterable[T]) -> T | None:
    """Return the value that all have; None where they differ or there is none."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _virtual(hosts: Sequence[HostDriver]) -> Labels:
    labels = {"vgpu.present": _word(bool(hosts))}
    host = alike(hosts)
    if host is not None:
        labels["vgpu.host-driver-version"] = names.label_value(host.version)
        labels["vgpu.host-driver-branch"] = names.label_value(host.branch)
    return labels


def _driver(driver: contract.DriverState) -> Labels:
    labels: Labels = {}
    if driver.version:
        major, minor, revision = [*driver.version.split("."), "", ""][:3]
        labels |= {
            "cuda.driver-version.full": names.label_value(driver.version),
            "cuda.driver-version.major": names.label_value(major),
            "cuda.driver-version.minor": names.label_value(minor),
            "cuda.driver-version.revision": names.label_value(revision),
            "cuda.driver.major": names.label_value(major),
            "cuda.driver.minor": names.label_value(minor),
            "cuda.driver.rev": names.label_value(revision),
        }
    if driver.api_version:
        major, _, minor = driver.api_version.partition(".")
        labels |= {
            "cuda.runtime-version.full": names.label_value(driver.api_version),
            "cuda.runtime-version.major": names.label_value(major),
            "cuda.runtime-version.minor": names.label_value(minor),
            "cuda.runtime.major": names.label_value(major),
            "cuda.runtime.minor": names.label_value(minor),
        }
    return labels


def _mode(codes: Iterable[int | None]) -> str:
    kind = alike(code >> 8 if code is not None else None for code in codes)
    return {_COMPUTE: "compute", _GRAPHICS: "graphics"}.get(kind or 0, "unknown")


def _mps(
    cards: Sequence[contract.CardReading], shared: sharing.Sharing
) -> tuple[str, tuple[str, ...]]:
    if shared.strategy is not sharing.Strategy.MPS:
        return _word(False), ()
    split = [card.address for card in cards if partitions.is_enabled(card)]
    if split:
        return _word(False), (f"MPS sharing is not possible with MIG enabled on {split[0]}.",)
    return _word(True), ()


def _cards(cards: Sequence[contract.CardReading], shared: sharing.Sharing) -> Labels:
    whole = [card for card in cards if not partitions.is_enabled(card)]
    # Cards of which only partitions are handed out are not shared, whatever the config says.
    found = partitions.base(table.GPU, len(cards), shared if whole else sharing.Sharing())
    if not whole:
        found[f"{table.GPU}.replicas"] = "0"
    product = alike(card.product_name for card in cards)
    is_marked = bool(whole) and partitions.is_marked(table.GPU, shared)
    name = names.label_value(product or "", suffix="-SHARED" if is_marked else "")
    values = {
        "product": name if product and names.label_value(product) else None,
        "memory": _text(alike(_mib(card) for card in cards)),
        "family": alike(family(card.compute_capability) for card in cards),
        "compute.major": _part(cards, lambda capability: capability[0]),
        "compute.minor": _part(cards, lambda capability: capability[1]),
    }
    return found | {f"{table.GPU}.{key}": value for key, value in values.items() if value}


def _mib(card: contract.CardReading) -> int | None:
    return card.memory_bytes // _MIB if card.memory_bytes else None


def _part(
    cards: Sequence[contract.CardReading], part: Callable[[tuple[int, int]], int]
) -> str | None:
    return _text(
        alike(
            part(parsed) if (parsed := capability(card.compute_capability)) else None
            for card in cards
        )
    )


def capability(text: str) -> tuple[int, int] | None:
    """Return a compute capability, `9.0`, as two numbers; None for what is none."""
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


_FAMILIES = {
    1: "tesla",
    2: "fermi",
    3: "kepler",
    5: "maxwell",
    6: "pascal",
    9: "hopper",
    10: "blackwell",
    12: "blackwell",
    13: "rubin",
}
_TURING, _ADA = (7, 5), (8, 9)


def family(text: str) -> str | None:
    """Return the architecture by the names of gpu-feature-discovery 0.20; None without a card's."""
    found = capability(text)
    if found is None:
        return None
    match found[0]:
        case 7:
            return "turing" if found >= _TURING else "volta"
        case 8:
            return "ada-lovelace" if found >= _ADA else "ampere"
    return _FAMILIES.get(found[0], "undefined")


def _models(models: Counter[str]) -> Labels:
    room = _LABEL_NAME_LENGTH - len(table.MODEL)
    counts: Counter[str] = Counter()
    for product, count in models.items():
        counts[names.label_value(product, length=room) or "unknown"] += count
    return {table.MODEL + model: str(count) for model, count in counts.items()}


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _word(value: bool) -> str:
    return "true" if value else "false"
