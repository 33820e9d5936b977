# SPDX-License-Identifier: Apache-2.0
"""Keep what pods hold one way from being offered another way.

Pure. After a change of config a running pod may hold a whole card of which replicas
are now to be offered, or replicas of a card that is now to be offered whole. The
devices of such a card are withheld (unhealthy to the kubelet, which keeps them out of
allocatable) until the pod has ended; a pod's own device stays as it is, so nothing is
taken from it. What pods hold is asked of the kubelet's pod-resources API, since the
plugin is not told when a pod ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpudeck import errors
from gpudeck.deviceplugin import offering

Held = Mapping[str, Mapping[str, str]]
"""The pod that has a device, by resource and id; empty where the kubelet does not tell it yet."""


def withheld(offer: offering.Offer, held: Held) -> dict[tuple[str, str], str]:
    """Resource and id of each device that must wait, with the reason in a sentence."""
    holders = _holders(held)
    cards = _cards(offer)
    found: dict[tuple[str, str], str] = {}
    for resource in offer.resources:
        for device in resource.devices:
            way = (resource.name, _is_replica(device.id))
            for unit_id in (device.unit.id, device.unit.card.uuid, *cards.get(device.unit.id, ())):
                for held_way, pods in holders.get(unit_id, {}).items():
                    if _clash(way, held_way, same_unit=unit_id == device.unit.id):
                        found[resource.name, device.id] = (
                            f"{device.id} waits until what was offered before, as "
                            f"{held_way[0]}, is given back by {named(pods)}."
                        )
    return found


def _clash(ours: tuple[str, bool], theirs: tuple[str, bool], *, same_unit: bool) -> bool:
    """Two ways to hold one card that exclude each other.

    Replicas under two names share the unit, as before; all else must not meet, a whole card and
    its partitions included.
    """
    if not same_unit:
        return True
    if ours[1] and theirs[1]:
        return False
    return ours != theirs


def named(pods: Iterable[str]) -> str:
    """Pods, for a sentence; those that are not known yet are left out."""
    known = sorted(filter(None, pods))
    if not known:
        return "a pod"
    return f"pod{'s' if len(known) > 1 else ''} {errors.listed(known, 3)}"


def _holders(held: Held) -> dict[str, dict[tuple[str, bool], set[str]]]:
    """By unit: each way in which it is held, with the pods that do."""
    found: dict[str, dict[tuple[str, bool], set[str]]] = {}
    for resource, devices in held.items():
        for device_id, pod in devices.items():
            unit = found.setdefault(offering.unit_of(device_id), {})
            unit.setdefault((resource, _is_replica(device_id)), set()).add(pod)
    return found


def _cards(offer: offering.Offer) -> dict[str, tuple[str, ...]]:
    """By card offered whole: the partitions that it has nevertheless."""
    return {
        device.unit.id: tuple(each.uuid for each in device.unit.card.partitions if each.uuid)
        for resource in offer.resources
        for device in resource.devices
        if device.unit.partition is None
    }


def _is_replica(device_id: str) -> bool:
    return offering.REPLICA in device_id
