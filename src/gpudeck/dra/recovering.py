# SPDX-License-Identifier: Apache-2.0
"""Rebuild what a lost checkpoint knew, from CDI specs on disk and claims in the API.

Pure. What is found this way holds its devices, so that no card is handed out twice,
but counts as not prepared: the next Prepare does everything anew. Specs are taken at
their word even if the API has no such claim, since a pod that was deleted by force may
still run; the kubelet unprepares such a claim when its containers have ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from gpudeck.api import labels, names, resource
from gpudeck.cdi import rendering
from gpudeck.dra.allocations import HeldDevice
from gpudeck.dra.checkpoint import Content, Entry, State


def from_specs(specs: Mapping[str, bytes]) -> dict[str, Entry]:
    """Entries from CDI specs by claim UID; a spec that cannot be read gives none."""
    found = {}
    for uid, content in specs.items():
        devices = rendering.parse(uid, content)
        if devices is not None:
            found[uid] = Entry(
                state=State.RECOVERED,
                devices=[_of_key(key) for key in devices],
                spec=content.decode(errors="replace"),
            )
    return found


Placed = Callable[[HeldDevice], HeldDevice]
"""Gives a partition its size, as its card tells it, where it has none."""


def place(content: Content, placed: Placed) -> None:
    """Give sizes to the partitions that have none: by them overlaps are found."""
    for uid, entry in content.claims.items():
        if any(each.is_partition and each.size is None for each in entry.devices):
            devices = [placed(each) for each in entry.devices]
            content.claims[uid] = msgspec.structs.replace(entry, devices=devices)


def add_claims(
    content: Content, claims: Iterable[resource.ResourceClaim], node: str, placed: Placed
) -> None:
    """Add the claims that are in use on this node, and the names that specs do not tell.

    A claim whose device another claim's spec names is left out: the spec shows who was
    prepared, while a claim in the API may still be waiting for it.
    """
    shown = [each for entry in content.claims.values() for each in entry.devices]
    for claim in claims:
        devices = [placed(each) for each in _devices(claim, node)]
        if not devices or not (claim.status and claim.status.reserved_for):
            continue
        meta = claim.metadata
        entry = content.claims.get(meta.uid or "")
        if entry is None:
            if any(held.excludes(each) for held in shown for each in devices):
                continue
            entry = Entry(state=State.RECOVERED)
        if entry.state is State.RECOVERED:
            if entry.devices and _names(entry.devices) != _names(devices):
                # Allocated anew since: what was made for it is still where the spec says.
                devices = entry.devices
            content.claims[meta.uid or ""] = msgspec.structs.replace(
                entry, namespace=meta.namespace or "", name=meta.name, devices=devices
            )


_SHARE_ID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""The UUID by which the API server tells the shares of one device apart."""


def _of_key(key: str) -> HeldDevice:
    """The device behind its name in a CDI spec, see `HeldDevice.key`."""
    found = _SHARE_ID.search(key)
    if found is None:
        return HeldDevice(name=key)
    return HeldDevice(name=key[: found.start()], share_id=found.group()[1:])


def _names(devices: Iterable[HeldDevice]) -> set[str]:
    return {device.name for device in devices}


def _devices(claim: resource.ResourceClaim, node: str) -> list[HeldDevice]:
    allocation = claim.status.allocation if claim.status else None
    results = allocation.devices.results if allocation and allocation.devices else None
    return [
        HeldDevice(
            name=each.device,
            pool=each.pool,
            admin_access=each.admin_access or None,
            share_id=each.share_id,
        )
        for each in results or ()
        if each.driver == labels.DRIVER and each.pool == names.pool_name(node)
    ]
