# SPDX-License-Identifier: Apache-2.0
"""The labels that MIG strategies add or replace. Pure; called by `labelling`.

Profiles carry the name that the driver gives them (case-29). A MIG device whose compute
instance is only a part of its GPU instance (`1c.3g.40gb`) is offered by no resource, so no
label counts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gpudeck.api import names
from gpudeck.devices import profiles
from gpudeck.gfd import sharing, table
from gpudeck.pluginconfig import model
from gpudeck.vendors import contract

INVALID = "-MIG-INVALID"


class Found(msgspec.Struct, frozen=True):
    """Labels, by name without the prefix, and warnings."""

    labels: dict[str, str]
    warnings: tuple[str, ...] = ()


class Device(msgspec.Struct, frozen=True):
    """A MIG device and the card it is a part of."""

    product: str
    profile: str
    kind: contract.PartitionProfile | None
    """None where the driver does not tell which profile it was made from."""


def is_enabled(card: contract.CardReading) -> bool:
    """Whether the card is in MIG mode, so that it cannot be used whole."""
    return card.mode is contract.PartitioningMode.ENABLED


def without_claims(card: contract.CardReading) -> contract.CardReading:
    """The card as it is whatever claims it serves: no label comes and goes with a pod.

    Where the MIG mode needs a reset it is an administrator's, so that it counts.
    """
    modes = contract.PartitioningMode
    mode = modes.DISABLED if card.dynamic and is_enabled(card) else card.mode
    return msgspec.structs.replace(card, mode=mode, partitions=())


def plan(
    cards: Sequence[contract.CardReading], strategy: model.MigStrategy, shared: sharing.Sharing
) -> Found:
    """Return what the strategy `single` or `mixed` adds for these cards."""
    if not any(is_enabled(card) for card in cards):
        return Found({})
    if shared.strategy is sharing.Strategy.MPS:
        shared = sharing.Sharing()  # It is not offered on MIG devices.
    return _single(cards, shared) if strategy is model.MigStrategy.SINGLE else _mixed(cards, shared)


def _single(cards: Sequence[contract.CardReading], shared: sharing.Sharing) -> Found:
    wrong = _why_invalid(cards)
    if wrong:
        labels = {
            "gpu.product": _product({card.product_name for card in cards}, INVALID),
            "gpu.count": "0",
            "gpu.replicas": "0",
            "gpu.memory": "0",
            "gpu.sharing-strategy": "",
        }
        return Found(labels, (f"The MIG strategy single cannot be followed: {wrong}",))
    devices = [device for card in cards for device in _devices(card)]
    labels = base(table.GPU, len(devices), shared) | _attributes(table.GPU, devices, shared)
    return Found(labels)


def _why_invalid(cards: Sequence[contract.CardReading]) -> str:
    found: set[str] = set()
    for card in cards:
        if not is_enabled(card):
            return f"MIG is enabled on some cards and not on {card.address}."
        of_card = {device.profile for device in _devices(card)}
        if not of_card:
            return f"{card.address} has MIG enabled and no MIG device."
        found |= of_card
    if len(found) > 1:
        return f"there are MIG devices of several profiles, {', '.join(sorted(found))}."
    (profile,) = found
    if profiles.is_split(profile):
        return f"{profile} is a part of a GPU instance, which no resource offers."
    return ""


def _mixed(cards: Sequence[contract.CardReading], shared: sharing.Sharing) -> Found:
    by_profile: dict[str, list[Device]] = {}
    parts: set[str] = set()
    empty = []
    for card in cards:
        devices = _devices(card)
        if is_enabled(card) and not devices:
            empty.append(card.address)
        for device in devices:
            if profiles.is_split(device.profile):
                parts.add(device.profile)
            else:
                by_profile.setdefault(device.profile, []).append(device)
    labels: dict[str, str] = {}
    for profile, devices in sorted(by_profile.items()):
        resource = resource_name(profile)
        labels |= base(resource, len(devices), shared)
        labels |= _attributes(resource, devices, shared)
    warnings = [f"{address} has MIG enabled and no MIG device." for address in empty]
    warnings += [f"{each} is a part of a GPU instance: no resource offers it." for each in parts]
    return Found(labels, tuple(sorted(warnings)))


def base(resource: str, count: int, shared: sharing.Sharing) -> dict[str, str]:
    """Return what every resource has: count, replicas, sharing-strategy."""
    found = shared.of(resource)
    strategy = shared.strategy if found is not None else sharing.Strategy.NONE
    return {
        f"{resource}.count": str(count),
        f"{resource}.replicas": str(found.replicas if found is not None else 1),
        f"{resource}.sharing-strategy": strategy.value,
    }


def is_marked(resource: str, shared: sharing.Sharing) -> bool:
    """Whether the product says -SHARED: parts are handed out under the resource's own name."""
    found = shared.of(resource)
    return found is not None and not found.renamed


def resource_name(profile: str) -> str:
    """Return the resource of a profile: `1g.5gb+me` gives `mig-1g.5gb.me`."""
    return table.MIG + profiles.spelled(profile)


def _devices(card: contract.CardReading) -> list[Device]:
    if not is_enabled(card):
        return []
    return [
        Device(card.product_name, each.profile, _kind(card, each))
        for each in card.partitions
        if each.uuid
    ]


def _kind(
    card: contract.CardReading, partition: contract.Partition
) -> contract.PartitionProfile | None:
    for profile in card.profiles:
        if profile.profile_id == partition.profile_id:
            return profile
    return None


def _attributes(
    resource: str, devices: Sequence[Device], shared: sharing.Sharing
) -> dict[str, str]:
    suffix = f"-MIG-{profiles.spelled(devices[0].profile)}"
    suffix += "-SHARED" if is_marked(resource, shared) else ""
    labels = {}
    products = {device.product for device in devices}
    if len(products) == 1:
        labels[f"{resource}.product"] = _product(products, suffix)
    kinds = {_figures(device.kind) for device in devices}
    if len(kinds) == 1:
        labels |= {f"{resource}.{name}": value for name, value in kinds.pop()}
    return labels


def _figures(kind: contract.PartitionProfile | None) -> tuple[tuple[str, str], ...]:
    if kind is None:
        return ()
    figures = {
        "memory": kind.memory_mib,
        "multiprocessors": kind.multiprocessors,
        "slices.gi": kind.slices,
        "slices.ci": kind.slices,
        "engines.copy": kind.copy_engines,
        "engines.decoder": kind.decoders,
        "engines.encoder": kind.encoders,
        "engines.jpeg": kind.jpeg_engines,
        "engines.ofa": kind.ofa_engines,
    }
    return tuple((name, str(value)) for name, value in figures.items())


def _product(products: Iterable[str], suffix: str) -> str:
    known = list(products)
    return names.label_value(known[0] if len(known) == 1 else "", suffix=suffix)
