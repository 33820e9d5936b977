# SPDX-License-Identifier: Apache-2.0
"""From cards and a config to the devices of each resource.

Pure. A unit is a card, or a MIG partition; a device is a unit, or one of its replicas,
and is what the kubelet counts. Names and rules are those of NVIDIA's device plugin
0.20, with two differences: `devices` and `rename` of shared resources and patterns of
resource names have their effect, and a part of a node that cannot be offered is told
in `Offer.problems` while the rest is offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpudeck import errors
from gpudeck.api import labels, quantities
from gpudeck.devices import profiles
from gpudeck.pluginconfig import model
from gpudeck.vendors import contract, health, records

REPLICA = "::"
"""Between the id of a unit and the number of its replica."""
NOT_UNIFORM = "MigNotUniform"
"""Reason why nothing of a node is offered, whichever card it is."""


class Unit(model.Value, frozen=True):
    """A card, or a MIG partition of one."""

    id: str
    """UUID."""
    index: str
    """`0`, or `0:1` for a partition."""
    card: contract.CardReading
    site: contract.Site
    health: health.Health
    """Of its card."""
    partition: contract.Partition | None = None
    fault: str = ""
    """Why it is unhealthy, in a sentence; empty: it is healthy."""


class Device(model.Value, frozen=True):
    """What the kubelet counts."""

    id: str
    unit: Unit


class Resource(model.Value, frozen=True):
    """The devices of one resource, in order."""

    name: str
    devices: tuple[Device, ...] = ()
    single_only: bool = False
    """A container may have one of its replicas and no more."""
    strategy: model.Strategy | None = None
    """How the replicas share their unit; None where none is shared."""
    limits: tuple[tuple[str, str], ...] = ()
    """Memory that one replica may take, by unit id: `equal` or a quantity."""


class Problem(model.Value, frozen=True):
    """What is not offered, and why."""

    reason: str
    message: str
    address: str = ""
    """Of the card that it is about, if it is about one."""


class Offer(model.Value, frozen=True):
    """Everything that a node offers, by name of the resource."""

    resources: tuple[Resource, ...] = ()
    problems: tuple[Problem, ...] = ()
    names: frozenset[str] = frozenset()
    """Ids and indices of every card and partition of the node, offered or not."""
    is_partial: bool = False
    """Some card has never been read, so there are names and devices that are not known."""

    def resource(self, name: str) -> Resource | None:
        """The resource of that name."""
        return next((each for each in self.resources if each.name == name), None)


class Seen(model.Value, frozen=True):
    """The last reading of each card on the bus, by address: a card that fails is still offered."""

    readings: tuple[tuple[str, contract.CardReading], ...] = ()


def remember(before: Seen, inventory: records.Inventory) -> Seen:
    """Keep the readings of cards that have none now; forget cards that left the bus."""
    known = dict(before.readings)
    found = {card.site.address: card.reading for card in inventory.cards}
    kept = {address: reading or known.get(address) for address, reading in found.items()}
    return Seen(
        readings=tuple((address, each) for address, each in kept.items() if each is not None)
    )


def offer(inventory: records.Inventory, seen: Seen, config: model.Config) -> Offer:
    """What the node offers now."""
    cards = _cards(inventory, seen)
    named, problems = _named(cards, config)
    resources: list[Resource] = []
    for name, units in named.items():
        resources += _shared(name, units, config.sharing, problems)
    if config.sharing is not None:
        problems += _without_effect(named, config, config.sharing)
    names = frozenset(name for u in (*cards, *_parts(cards, [])) for name in (u.id, u.index))
    known = dict(seen.readings)
    return Offer(
        resources=_merged(resources),
        problems=tuple(problems),
        names=names,
        is_partial=any(
            card.site.served and card.site.address not in known for card in inventory.cards
        ),
    )


def _cards(inventory: records.Inventory, seen: Seen) -> list[Unit]:
    """Every card that was ever read; the index counts those of the driver, as NVML does."""
    readings = dict(seen.readings)
    served = [card for card in inventory.cards if card.site.served]
    return [
        Unit(
            id=readings[card.site.address].uuid,
            index=str(index),
            card=readings[card.site.address],
            site=card.site,
            health=card.health,
            fault=_fault(card),
        )
        for index, card in enumerate(served)
        if card.site.address in readings
    ]


def _fault(card: records.CardState) -> str:
    """Why a card is not fit for new work now; empty if nothing is known against it."""
    if card.health.verdict is health.Verdict.UNHEALTHY:
        return card.health.message
    if not card.driver.ready:
        return card.driver.message
    if card.health.verdict is health.Verdict.UNKNOWN and card.reading is None:
        return card.health.message
    return ""


def _named(
    cards: Sequence[Unit], config: model.Config
) -> tuple[dict[str, list[Unit]], list[Problem]]:
    """The units by the name that they have before sharing."""
    strategy = config.flags.mig_strategy or model.MigStrategy.NONE
    problems: list[Problem] = []
    named: dict[str, list[Unit]] = {}
    if strategy is model.MigStrategy.NONE:
        whole, parts = list(cards), []
    else:
        enabled = contract.PartitioningMode.ENABLED
        whole = [unit for unit in cards if unit.card.mode is not enabled]
        partitioned = [unit for unit in cards if unit.card.mode is enabled]
        parts = _parts(partitioned, problems)
        if strategy is model.MigStrategy.SINGLE and partitioned:
            refusal = _not_uniform(whole, partitioned, parts)
            if refusal is not None:
                return {model.GPU: []}, [*problems, refusal]
    for unit in whole:
        name = config.resources.of_card(unit.card.product_name)
        named.setdefault(name, []).append(unit)
    for unit in parts:
        name = config.resources.of_partition(_profile(unit), strategy)
        named.setdefault(name, []).append(unit)
    return named, problems


def _parts(partitioned: Iterable[Unit], problems: list[Problem]) -> list[Unit]:
    found = []
    for unit in partitioned:
        usable = [each for each in unit.card.partitions if each.uuid]
        if not usable:
            text = (
                f"{unit.site.address}: MIG is enabled and the card has no partition; the label "
                f"{labels.MIG_CONFIG} of the Node makes some, or turns MIG off (all-disabled)."
            )
            problems.append(_problem(unit, "CardNotPartitioned", text))
        for place, part in enumerate(usable):
            if profiles.is_split(part.profile):
                text = (
                    f"{unit.site.address}: the partition {part.profile} is a part of a GPU "
                    "instance, which is not offered; make one compute instance of the whole one."
                )
                problems.append(_problem(unit, "PartitionNotSupported", text))
                continue
            is_concerned = unit.health.concerns(part.driver_id)
            found.append(
                msgspec.structs.replace(
                    unit,
                    id=part.uuid,
                    index=f"{unit.index}:{_number(unit.card, part, place)}",
                    partition=part,
                    fault=unit.fault if is_concerned else "",
                )
            )
    return found


def _number(card: contract.CardReading, part: contract.Partition, place: int) -> int:
    """The driver's number of a partition, for others ask the driver by it; else its place."""
    numbers = card.partition_numbers
    return numbers.index(part.uuid) if part.uuid in numbers else place


def _problem(unit: Unit, reason: str, message: str) -> Problem:
    return Problem(reason=reason, message=message, address=unit.site.address)


def _not_uniform(
    whole: Sequence[Unit], partitioned: Sequence[Unit], parts: Sequence[Unit]
) -> Problem | None:
    """Why the strategy `single` offers nothing on this node (case-04)."""
    if whole:
        text = f"it has cards in MIG mode ({_listed(partitioned)}) and others ({_listed(whole)})"
    elif empty := [
        unit for unit in partitioned if not any(each.uuid for each in unit.card.partitions)
    ]:
        text = f"it has cards without a partition ({_listed(empty)})"
    elif len(kinds := sorted(_profiles(partitioned))) > 1:
        text = f"it has partitions of several profiles ({', '.join(kinds)})"
    elif not parts:
        text = "none of its partitions can be offered"
    else:
        return None
    return Problem(
        reason=NOT_UNIFORM,
        message=f"flags.migStrategy: 'single' does not fit this node, for {text}; allowed: mixed, "
        "or partitions of one profile on every card. Nothing is offered.",
    )


def _listed(units: Iterable[Unit]) -> str:
    return errors.listed((unit.site.address for unit in units), 4)


def _profiles(partitioned: Iterable[Unit]) -> set[str]:
    """Of all partitions, also of those that are never offered."""
    return {each.profile for unit in partitioned for each in unit.card.partitions if each.uuid}


def _profile(unit: Unit) -> str:
    return unit.partition.profile if unit.partition is not None else ""


def _shared(
    name: str,
    units: Sequence[Unit],
    sharing: model.Sharing | None,
    problems: list[Problem],
) -> list[Resource]:
    """The units of one name, some of them perhaps offered as replicas."""
    left = list(units)
    found: list[Resource] = []
    for entry in sharing.resources if sharing is not None else ():
        if sharing is None or entry.name != name:
            continue
        chosen, missing = _chosen(entry, left, units)
        problems += [
            Problem(
                reason="SharedDeviceMissing",
                message=f"sharing.{sharing.strategy}.resources: {each}.",
            )
            for each in missing
        ]
        if sharing.strategy is model.Strategy.MPS and any(unit.partition for unit in chosen):
            text = f"sharing.mps: {name} names MIG partitions, which MPS does not share."
            problems.append(Problem(reason="MpsNotSupported", message=text))
            continue
        left = [unit for unit in left if unit not in chosen]
        problems += _without_limit(entry, chosen, sharing)
        found.append(_replicated(entry, chosen, sharing))
    # Without a unit left the name still stands there, so that the kubelet is told 0 of it.
    return [Resource(name=name, devices=tuple(Device(id=u.id, unit=u) for u in left)), *found]


def _chosen(
    entry: model.Replicated, left: Sequence[Unit], units: Sequence[Unit]
) -> tuple[list[Unit], list[str]]:
    """The units that an entry shares, and what of it cannot be."""
    if entry.devices is None:
        count = len(left) if entry.count is None else entry.count
        missing = [f"{count} devices of {entry.name} are to be shared, and it has {len(left)}"]
        if units and not left:
            return [], [f"{entry.name} has no device that is still to be shared"]
        return list(left[:count]), missing if count > len(left) else []
    by_name: Mapping[str, Unit] = {
        **{unit.index: unit for unit in left},
        **{unit.id: unit for unit in left},
    }
    chosen = {by_name[each].id for each in entry.devices if each in by_name}
    missing = [
        f"{entry.name} has no device {each} that is still to be shared"
        for each in entry.devices
        if each not in by_name
    ]
    return [unit for unit in units if unit.id in chosen], missing


def _without_limit(
    entry: model.Replicated, units: Iterable[Unit], sharing: model.Sharing
) -> Iterable[Problem]:
    """Cards and partitions that no replica can be limited on as the entry says."""
    if entry.memory_limit is None:
        return ()
    path = f"sharing.{sharing.strategy}.resources: memoryLimit {entry.memory_limit!r}"
    found = {
        unit.site.address: _problem(
            unit, "MemoryLimitNotKept", f"{unit.site.address}: {path} of {entry.name} {why}."
        )
        for unit in units
        if (why := _why_unlimited(entry.memory_limit, unit))
    }
    return found.values()


def _why_unlimited(limit: str, unit: Unit) -> str:
    memory = unit.card.memory_bytes
    if unit.partition is not None:
        return "has no effect, for the driver keeps no limits within a partition"
    if limit == model.EQUAL:
        return "" if memory is not None else "has no effect, for the card does not tell its memory"
    if memory is not None and quantities.parse(limit) > memory:
        return f"is more than the card has; allowed: at most {quantities.render(memory)}"
    return ""


def _replicated(entry: model.Replicated, units: Sequence[Unit], sharing: model.Sharing) -> Resource:
    name = entry.rename or entry.name
    if entry.rename is None and sharing.rename_by_default:
        name += model.SHARED_SUFFIX
    limit = entry.memory_limit
    return Resource(
        name=name,
        devices=tuple(
            Device(id=f"{unit.id}{REPLICA}{number}", unit=unit)
            for unit in units
            for number in range(entry.replicas)
        ),
        single_only=sharing.fail_requests_greater_than_one,
        strategy=sharing.strategy,
        limits=tuple((unit.id, limit) for unit in units) if limit is not None else (),
    )


def _without_effect(
    named: Mapping[str, Sequence[Unit]], config: model.Config, sharing: model.Sharing
) -> list[Problem]:
    """Entries that share nothing here. One config may be for nodes that are partitioned otherwise,
    so those for other layouts are told only where no entry shares anything."""
    if not any(named.values()):
        return []  # There is nothing to be shared, which is told otherwise.
    missing = [entry for entry in sharing.resources if entry.name not in named]
    if len(missing) < len(sharing.resources):
        missing = [entry for entry in missing if not config.resources.may_name(entry.name)]
    return [
        Problem(
            reason="SharedResourceMissing",
            message=f"sharing.{sharing.strategy}.resources: {entry.name!r} is no resource of this "
            f"node; it has {', '.join(sorted(named))}.",
        )
        for entry in missing
    ]


def _merged(resources: Iterable[Resource]) -> tuple[Resource, ...]:
    """Resources that got one name become one; the rules of the shared part hold for it."""
    found: dict[str, Resource] = {}
    for each in resources:
        before = found.get(each.name)
        if before is None:
            found[each.name] = each
            continue
        found[each.name] = Resource(
            name=each.name,
            devices=(*before.devices, *each.devices),
            single_only=before.single_only or each.single_only,
            strategy=before.strategy or each.strategy,
            limits=(*before.limits, *each.limits),
        )
    return tuple(found[name] for name in sorted(found))


def unit_of(device_id: str) -> str:
    """The unit of a device's id, as the kubelet and its pod-resources API spell it."""
    return device_id.partition(REPLICA)[0]
