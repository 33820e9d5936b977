# SPDX-License-Identifier: Apache-2.0
"""What the device plugin says of a card in its PhysicalGPU besides what was read of it.

Pure; `publishing` writes it, with the field manager that the DRA plugin uses in its mode.
Says as what the card is offered, and which containers have which of its devices.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

from gpudeck.api import conditions, quantities
from gpudeck.api.meta import Condition
from gpudeck.api.v1alpha1 import physicalgpu
from gpudeck.deviceplugin import answering, offering, standing
from gpudeck.kubelet import holding
from gpudeck.pluginconfig import model
from gpudeck.statuses import cards
from gpudeck.vendors import records

NOTHING_OFFERED = "NothingOffered"
"""Reason of Published=False: nothing else says why nothing of the card is offered."""


class Known(model.Value, frozen=True):
    """What there is to say of the cards of a node at one moment."""

    inventory: records.Inventory = records.Inventory()
    standing: standing.Standing = standing.Standing()
    why: tuple[tuple[tuple[str, str], str], ...] = ()
    """Why a device is withheld, by resource and id."""
    config: str = ""
    """Name of the config in force; empty where none was chosen."""

    def card(self, address: str) -> records.CardState | None:
        """The card at a PCI address, None if there is none."""
        return next((each for each in self.inventory.cards if each.site.address == address), None)


Holders = Mapping[str, list[physicalgpu.HolderPod]]
"""Containers that have something of a card, by its PCI address."""


def card_status(
    known: Known, address: str, plugin: list[physicalgpu.HolderPod]
) -> physicalgpu.PhysicalGPUStatus:
    """The publisher's fields of the card at an address; `plugin` is who has something of it."""
    offered = _offered(known, address)
    return physicalgpu.PhysicalGPUStatus(
        occupancy=physicalgpu.Occupancy(plugin=plugin) if plugin else None,
        extended_resources=offered or None,
        conditions=[_published(known, address, offered)],
    )


def holders(known: Known, found: Iterable[holding.Holder]) -> Holders:
    """Who has what of each card. Devices that are of no card here are left out."""
    units = _units(known)
    by_address: dict[str, list[physicalgpu.HolderPod]] = collections.defaultdict(list)
    for holder in found:
        resource = known.standing.offer.resource(holder.resource)
        for device in holder.devices:
            place = units.get(offering.unit_of(device))
            if place is not None:
                address, profile = place
                replicas, memory_mib = _replica(resource, device)
                by_address[address].append(
                    physicalgpu.HolderPod(
                        namespace=holder.namespace,
                        pod=holder.pod,
                        container=holder.container,
                        resource=holder.resource,
                        device=device,
                        profile=profile or None,
                        replicas=replicas,
                        memory_mib=memory_mib,
                    )
                )
    return {address: each[: physicalgpu.MOST_HOLDERS] for address, each in by_address.items()}


def kept(
    now: Holders,
    address: str,
    before: Iterable[physicalgpu.HolderPod],
    found: Iterable[holding.Holder],
) -> list[physicalgpu.HolderPod]:
    """Who has what of the card at an address, with what was said of the same devices `before`.

    Only the config by which a replica was given tells its part; and a card that has left the bus,
    whose devices nothing else places, is its pods' as long as the kubelet says so.
    """
    said = {_key(each): each for each in before}
    placed = {_key(each) for holders in now.values() for each in holders}
    mine = now.get(address, [])
    same = [each if each.replicas else said.get(_key(each), each) for each in mine]
    held = {
        (each.namespace, each.pod, each.container, each.resource, device)
        for each in found
        for device in each.devices
    }
    left = [said[key] for key in said if key in held and key not in placed]
    return (same + left)[: physicalgpu.MOST_HOLDERS]


def _key(holder: physicalgpu.HolderPod) -> tuple[str | None, ...]:
    return holder.namespace, holder.pod, holder.container, holder.resource, holder.device


def _units(known: Known) -> dict[str, tuple[str, str]]:
    """By id of a card or partition: the card's address, and the profile of the partition."""
    found = {}
    for resource in known.standing.offer.resources:
        for unit in {each.unit.id: each.unit for each in resource.devices}.values():
            profile = unit.partition.profile if unit.partition is not None else ""
            found[unit.id] = (unit.site.address, profile)
    for card in known.inventory.cards:
        if card.reading is not None:
            found[card.reading.uuid] = (card.site.address, "")
            for part in card.reading.partitions:
                found[part.uuid] = (card.site.address, part.profile)
    return found


def _replica(resource: offering.Resource | None, device: str) -> tuple[int | None, int | None]:
    """Into how many the unit of a replica is shared, and its memory in MiB where it has a limit."""
    if resource is None or offering.REPLICA not in device:
        return None, None
    unit_id = offering.unit_of(device)
    same = [each for each in resource.devices if each.unit.id == unit_id]
    if not same:
        return None, None
    part = answering.part(resource, same[0].unit)
    memory = part.memory_bytes if part is not None else None
    return len(same), None if memory is None else memory // quantities.MEBIBYTE


def _offered(known: Known, address: str) -> list[physicalgpu.OfferedResource]:
    withheld = set(known.standing.withheld)
    found = []
    for resource in known.standing.offer.resources:
        mine = [each for each in resource.devices if each.unit.site.address == address]
        if mine:
            healthy = sum(
                not each.unit.fault and (resource.name, each.id) not in withheld for each in mine
            )
            found.append(
                physicalgpu.OfferedResource(
                    resource=resource.name,
                    devices=len(mine),
                    healthy=healthy if healthy < len(mine) else None,
                )
            )
    return found


def _published(known: Known, address: str, offered: list[physicalgpu.OfferedResource]) -> Condition:
    card = known.card(address)
    if card is None:
        return cards.absent(cards.DEVICE_PLUGIN)
    if not offered:
        return _not_offered(known, card)
    told = " and ".join(f"{each.devices} of {each.resource}" for each in offered)
    return Condition(
        type=conditions.PUBLISHED,
        status=conditions.TRUE,
        reason=conditions.OFFERED_BY_PLUGIN,
        message=f"Offered as {told}{_by(known)}.{_kept_back(known, address)}",
    )


def _by(known: Known) -> str:
    return f" by the config {known.config}" if known.config else ""


def _kept_back(known: Known, address: str) -> str:
    """Of the devices of a card that the kubelet gives to nobody now: how many, and why."""
    why = dict(known.why)
    sick, waiting = 0, []
    for resource in known.standing.offer.resources:
        for device in resource.devices:
            if device.unit.site.address == address:
                sick += bool(device.unit.fault)
                waiting += [why[key] for key in [(resource.name, device.id)] if key in why]
    said = f" Given to nobody, for the card is not healthy: {sick}." if sick else ""
    return said + (f" Given to nobody now: {len(waiting)}. {waiting[0]}" if waiting else "")


def _not_offered(known: Known, card: records.CardState) -> Condition:
    if not card.driver.ready:
        reason = card.driver.reason or "DriverNotReady"
        return cards.not_published(reason, card.driver.message)
    problems = known.standing.offer.problems
    for each in problems:
        if each.address == card.site.address or each.reason == offering.NOT_UNIFORM:
            return cards.not_published(each.reason, each.message)
    return cards.not_published(NOTHING_OFFERED, f"Nothing of the card is offered{_by(known)}.")
