# SPDX-License-Identifier: Apache-2.0
"""Which cards are to have an MPS daemon for the replicas that are offered of them.

Pure. One wish for a card stands as long as the config shares it so, or a pod holds a
replica of it: the card admits nobody but its daemon meanwhile, so a card that a pod holds
whole, or shared by time, must wait, and one whose replicas are held must keep its daemon.
Replicas by MPS are handed out beside a wish alone: held without one, they are of time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gpudeck.deviceplugin import occupying, offering
from gpudeck.pluginconfig import model
from gpudeck.vendors import contract, records

SHARE = "device-plugin"
"""Id of our wish; a card in this mode has no others."""


def shared(offer: offering.Offer) -> dict[str, offering.Unit]:
    """The cards of which replicas by MPS are offered, by address."""
    return {
        device.unit.site.address: device.unit
        for resource in offer.resources
        if resource.strategy is model.Strategy.MPS
        for device in resource.devices
        if offering.REPLICA in device.id
    }


def concern(offer: offering.Offer, inventory: records.Inventory) -> bool:
    """Whether a daemon is to be there, or to go."""
    readings = _readings(inventory).values()
    return bool(shared(offer)) or any(SHARE in each.mps_shares for each in readings)


def _readings(inventory: records.Inventory) -> dict[str, contract.CardReading]:
    """The cards that may be changed, by address: not those that were given to another driver."""
    return {
        card.site.address: card.reading
        for card in inventory.cards
        if card.site.served and card.reading is not None
    }


def steps(
    offer: offering.Offer,
    inventory: records.Inventory,
    *,
    held: occupying.Held,
    withheld: Iterable[tuple[str, str]],
) -> dict[str, contract.Action]:
    """What is to be done now, by address of the card."""
    wanted = shared(offer)
    waiting = {offering.unit_of(device) for _, device in withheld}
    in_use = _shared_by_pods(held)
    found: dict[str, contract.Action] = {}
    for address, reading in _readings(inventory).items():
        has_wish = SHARE in reading.mps_shares
        is_wanted = address in wanted
        if is_wanted and not has_wish:
            is_free = reading.uuid not in waiting and reading.uuid not in in_use
            if reading.share_support.mps and is_free:
                found[address] = contract.JoinMps(share_id=SHARE)
        elif has_wish and not is_wanted and reading.uuid not in in_use:
            found[address] = contract.LeaveMps(share_id=SHARE)
    return found


def unready(
    offer: offering.Offer, pending: Mapping[str, str], held: occupying.Held
) -> dict[tuple[str, str], str]:
    """Devices that cannot be used yet, with the reason; `pending` by id of the card.

    Replicas wait for their daemon, and a card that is offered otherwise for the end of its own.
    """
    found: dict[tuple[str, str], str] = {}
    wanted, in_use = shared(offer), _shared_by_pods(held)
    for resource in offer.resources:
        for device in resource.devices:
            unit = device.unit
            if resource.strategy is model.Strategy.MPS and offering.REPLICA in device.id:
                why = _held(unit, in_use) or pending.get(unit.id, "") or _unasked(unit)
            elif SHARE in unit.card.mps_shares and unit.site.address not in wanted:
                why = f"{unit.site.address}: the card's MPS daemon is still ending."
            else:
                why = ""
            if why:
                found[resource.name, device.id] = why
    return found


def _held(unit: offering.Unit, in_use: Mapping[str, Collection[str]]) -> str:
    if SHARE in unit.card.mps_shares or unit.id not in in_use:
        return ""
    return (
        f"{unit.site.address}: the card's MPS daemon is started when its replicas by time are "
        f"given back by {occupying.named(in_use[unit.id])}."
    )


def _unasked(unit: offering.Unit) -> str:
    if SHARE in unit.card.mps_shares:
        return ""
    return f"{unit.site.address}: the card's MPS daemon is not started yet."


def _shared_by_pods(held: occupying.Held) -> dict[str, set[str]]:
    """Cards of which pods hold replicas, and these pods."""
    found: dict[str, set[str]] = {}
    for devices in held.values():
        for device, pod in devices.items():
            if offering.REPLICA in device:
                found.setdefault(offering.unit_of(device), set()).add(pod)
    return found
