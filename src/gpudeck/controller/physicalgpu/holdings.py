# SPDX-License-Identifier: Apache-2.0
"""Which claims hold which cards, kept up to date change by change.

Pure, in memory. A card is found from the pool and the name of an allocated device
alone, so neither ResourceSlices nor PhysicalGPUs are looked at, and a card that
comes later finds its holders already here.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

from gpudeck.api import attributes, names, quantities
from gpudeck.api.resource import AllocatedDevice, ResourceClaim
from gpudeck.api.v1alpha1.physicalgpu import HolderClaim


class Holdings:
    """Holders by name of PhysicalGPU."""

    def __init__(self) -> None:
        self._by_gpu: dict[str, dict[str, tuple[HolderClaim, ...]]] = {}
        self._profiles: collections.Counter[str] = collections.Counter()

    @property
    def profiles(self) -> set[str]:
        """The profiles of which claims hold partitions, as names of devices have them."""
        return {profile for profile, count in self._profiles.items() if count > 0}

    def of(self, gpu: str) -> list[HolderClaim]:
        """Return the holders of a card in an order that does not depend on history."""
        holders = [each for group in self._by_gpu.get(gpu, {}).values() for each in group]
        return sorted(holders, key=_order)

    def change(self, old: ResourceClaim | None, new: ResourceClaim | None) -> set[str]:
        """Take over a change of one claim and return the cards that it touches.

        A claim of the same name may be another one by now, so `old` goes by its UID.
        """
        before = by_gpu(old) if old is not None else {}
        after = by_gpu(new) if new is not None else {}
        self._profiles.subtract(_profiles(before))
        self._profiles.update(_profiles(after))
        for gpu, holders in before.items():
            held = self._by_gpu[gpu]
            del held[holders[0].uid]
            if not held:
                del self._by_gpu[gpu]
        for gpu, holders in after.items():
            self._by_gpu.setdefault(gpu, {})[holders[0].uid] = holders
        return {gpu for gpu in before.keys() | after.keys() if before.get(gpu) != after.get(gpu)}


def by_gpu(claim: ResourceClaim) -> dict[str, tuple[HolderClaim, ...]]:
    """Return the cards that a claim holds; devices that are no card of ours are left out."""
    found: dict[str, tuple[HolderClaim, ...]] = {}
    status = claim.status
    devices = status.allocation.devices if status and status.allocation else None
    pods = sorted(each.name for each in (status.reserved_for if status else None) or ())
    for result in (devices.results if devices else None) or ():
        address = names.address_of_device(result.device)
        if address is None:
            continue
        gpu = names.physical_gpu_name(result.pool, address)
        holder = HolderClaim(
            namespace=claim.metadata.namespace or "",
            name=claim.metadata.name,
            uid=claim.metadata.uid or "",
            device=result.device,
            # The API server writes its default where none is given; equal things stay equal.
            share_id=result.share_id or "",
            memory_mib=_memory_mib(result),
            pods=pods or None,
        )
        found[gpu] = (*found.get(gpu, ()), holder)
    return found


def _profiles(held: Mapping[str, Iterable[HolderClaim]]) -> list[str]:
    named = (names.parse_device(each.device) for holders in held.values() for each in holders)
    return [each.profile for each in named if each is not None and each.profile]


def _memory_mib(result: AllocatedDevice) -> int | None:
    """The memory of a share, None for all other devices."""
    for name, amount in (result.consumed_capacity or {}).items():
        if name.rpartition("/")[2] == attributes.MEMORY:
            return quantities.parse(amount) // quantities.MEBIBYTE
    return None


def _order(holder: HolderClaim) -> tuple[str, ...]:
    return (holder.namespace, holder.name, holder.uid, holder.device, holder.share_id or "")
