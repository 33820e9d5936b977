# SPDX-License-Identifier: Apache-2.0
"""Inventories of made-up nodes for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpudeck.deviceplugin import offering
from gpudeck.pluginconfig import reading
from gpudeck.vendors import contract, health, records

READY = contract.DriverState(ready=True, reason="DriverReady", message="ok", version="1")
ENABLED = contract.PartitioningMode.ENABLED


def card(
    number: int,
    *,
    profiles: Sequence[str] = (),
    fault: str = "",
    confined_to: tuple[str, ...] = (),
    numa_node: int | None = 0,
    **reading_: Any,
) -> records.CardState:
    """Card `number`; with `profiles` it is partitioned."""
    address = f"0000:{number + 1:02x}:00.0"
    parts = tuple(
        contract.Partition(
            profile=name,
            uuid=f"MIG-{number}-{place}",
            start=place,
            size=1,
            driver_id=f"{place + 1}/0",
        )
        for place, name in enumerate(profiles)
    )
    if parts:
        reading_.setdefault("mode", ENABLED)
    verdict = health.Verdict.UNHEALTHY if fault else health.Verdict.HEALTHY
    return records.CardState(
        site=contract.Site(address=address, numa_node=numa_node, pcie_root=f"root{number}"),
        reading=contract.CardReading(
            address=address,
            uuid=f"GPU-{number}",
            minor=number,
            product_name="NVIDIA A100-SXM4-40GB",
            partitions=parts,
            memory_bytes=40 << 30,
            **reading_,
        ),
        driver=READY,
        health=health.Health(
            verdict=verdict, reason="Why", message=fault, since=0, confined_to=confined_to
        ),
    )


def inventory(*cards: records.CardState) -> records.Inventory:
    """All cards of a node."""
    return records.Inventory(cards=cards, driver=READY)


def offer(config: str, *cards: records.CardState) -> offering.Offer:
    """What a node offers by a config."""
    found = inventory(*cards)
    seen = offering.remember(offering.Seen(), found)
    return offering.offer(found, seen, reading.parse(config))


def counts(found: offering.Offer) -> dict[str, int]:
    """Devices by resource, as the Node's capacity tells them."""
    return {each.name: len(each.devices) for each in found.resources}
