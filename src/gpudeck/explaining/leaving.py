# SPDX-License-Identifier: Apache-2.0
"""What claims leave of a card: which of its devices could be allocated now.

Pure; the rules of the scheduler (Kubernetes 1.37) for devices that share counters and
for devices that several claims share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpudeck.api import quantities
from gpudeck.api.resource import Capacity, Device
from gpudeck.explaining.cards import Card, amounts


def free(card: Card, devices: Iterable[Device], wanted: Mapping[str, int]) -> list[str]:
    """Return those of the devices that a claim for `wanted` amounts could get."""
    return [
        device.name
        for device in devices
        if _is_open(card, device) and not lacking(card, device, wanted)
    ]


def lacking(card: Card, device: Device, wanted: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the capacities of which a device has too little: what is left and what is needed."""
    found = {}
    taken = card.consumed.get(device.name, {}) if device.allow_multiple_allocations else {}
    for name, capacity in (device.capacity or {}).items():
        plain = name.rpartition("/")[2]
        need = wanted.get(name, wanted.get(plain, _default(device, capacity)))
        left = quantities.parse(capacity.value) - taken.get(plain, 0)
        if need > left:
            found[plain] = (left, need)
    return found


def _default(device: Device, capacity: Capacity) -> int:
    """What a share takes that names no amount: the policy's default, else all there is."""
    if not device.allow_multiple_allocations:
        return 0
    policy = capacity.request_policy
    given = policy.default if policy is not None else None
    return quantities.parse(given if given is not None else capacity.value)


def _is_open(card: Card, device: Device) -> bool:
    """Whether nobody has the device itself, and the card's counters are not used up."""
    if device.name in card.held_devices:
        return bool(device.allow_multiple_allocations)
    left = {name: dict(each) for name, each in card.counters.items()}
    for each in card.devices:
        if each.name in card.held_devices:
            for taken in each.consumes_counters or ():
                for name, amount in amounts(taken.counters).items():
                    known = left.setdefault(taken.counter_set, {})
                    known[name] = known.get(name, 0) - amount
    return all(
        left.get(need.counter_set, {}).get(name, 0) >= amount
        for need in device.consumes_counters or ()
        for name, amount in amounts(need.counters).items()
    )
