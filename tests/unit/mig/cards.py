# SPDX-License-Identifier: Apache-2.0
"""Cards as their drivers tell them, from the machines of the lab, with partitions as wanted."""

from __future__ import annotations

import functools

from gpudeck.lab import machine
from gpudeck.vendors import contract, health, records

Mode = contract.PartitioningMode
READY = contract.DriverState(ready=True, reason="DriverReady", message="")
IDS = {
    "a30-x2": 0x20B710DE,
    "a100-40gb-x4": 0x20B010DE,
    "a100-80gb-x8": 0x20B210DE,
    "h100-x8": 0x233010DE,
    "h200-x8": 0x233510DE,
    "b200-x8": 0x290110DE,
}
"""Machines of the lab whose cards have MIG, and their PCI ids."""

Placed = tuple[str, int]
"""Name of a profile and where its partition starts."""


@functools.cache
def profiles(name: str) -> tuple[contract.PartitionProfile, ...]:
    """The profiles of a machine's first card, by id, as the library tells them."""
    host = machine.load(name)
    mig = host.model_of(host.cards[0]).mig
    assert mig is not None
    return tuple(
        contract.PartitionProfile(
            name=each.name,
            profile_id=each.id,
            memory_mib=each.memory_mib,
            max_instances=each.maximum,
            slices=each.slices,
            multiprocessors=each.multiprocessors,
            placements=tuple(
                contract.Placement(start=start, size=each.size) for start in each.starts
            ),
            copy_engines=each.copy,
            decoders=each.decoder,
            jpeg_engines=each.jpeg,
            ofa_engines=each.ofa,
        )
        for each in sorted(mig.profiles, key=lambda each: each.id)
    )


def partition(name: str, profile: str, start: int) -> contract.Partition:
    """A partition of use; its UUID says what it is."""
    found = next(each for each in profiles(name) if each.name == profile)
    return contract.Partition(
        profile=profile,
        uuid=f"MIG-{profile}-{start}",
        start=start,
        size=found.placements[0].size,
        profile_id=found.profile_id,
    )


def reading(
    name: str = "a100-40gb-x4",
    *placed: Placed,
    mode: Mode = Mode.ENABLED,
    pending: Mode | None = None,
    index: int = 0,
    dynamic: bool = False,
) -> contract.CardReading:
    """A card of a machine."""
    host = machine.load(name)
    model = host.model_of(host.cards[0])
    assert model.mig is not None
    return contract.CardReading(
        address=f"0000:{index + 1:02x}:00.0",
        uuid=f"GPU-{index}",
        product_name=model.name,
        total_slices=model.mig.compute_slices,
        profiles=profiles(name),
        mode=mode,
        pending_mode=pending or mode,
        dynamic=dynamic,
        partitions=tuple(partition(name, profile, start) for profile, start in placed),
    )


def state(
    card: contract.CardReading | None, *, index: int = 0, pci_id: int | None = None,
    served: bool = True, driver: str = "nvidia",
) -> records.CardState:  # fmt: skip
    """A card in the inventory."""
    address = card.address if card is not None else f"0000:{index + 1:02x}:00.0"
    return records.CardState(
        site=contract.Site(address=address, served=served, driver=driver, pci_id=pci_id),
        reading=card,
        driver=READY,
        health=health.start(health.Moment(steady=0.0, unix=0)).health,
    )


def node(
    name: str, count: int, *placed: Placed, mode: Mode = Mode.ENABLED
) -> list[records.CardState]:
    """A node with equal cards."""
    return [
        state(reading(name, *placed, mode=mode, index=index), pci_id=IDS[name])
        for index in range(count)
    ]


def no_mig(index: int = 0) -> contract.CardReading:
    """A T4."""
    return contract.CardReading(
        address=f"0000:{index + 1:02x}:00.0", uuid=f"GPU-{index}", product_name="Tesla T4"
    )
