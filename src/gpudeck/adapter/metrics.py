# SPDX-License-Identifier: Apache-2.0
"""Metrics of the process adapter, each named once; the dra-plugin of its pod serves them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gpudeck.vendors import records

registry = CollectorRegistry()

_healthy = Gauge(
    "gpudeck_adapter_card_healthy",
    "Verdict about a card: 1 healthy, 0 unhealthy, -1 unknown.",
    ["address"],
    registry=registry,
)
_driver_ready = Gauge(
    "gpudeck_adapter_driver_ready", "Whether the maker's driver can be used.", registry=registry
)
_inventories = Counter(
    "gpudeck_adapter_inventory_changes_total",
    "Inventories that differed from the one before.",
    registry=registry,
)
call_seconds = Histogram(
    "gpudeck_adapter_call_seconds",
    "Time of a call of the dra-plugin, all its claims together.",
    ["call"],
    registry=registry,
    buckets=(0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.25, 1, 4, 10),
)
_VERDICTS = {"Healthy": 1, "Unhealthy": 0}


def published(inventory: records.Inventory) -> None:
    """Count an inventory that replaces the one before."""
    _inventories.inc()
    _driver_ready.set(inventory.driver.ready)
    _healthy.clear()  # A card that left has no verdict any more.
    for card in inventory.cards:
        verdict = _VERDICTS.get(str(card.health.verdict.value), -1)
        _healthy.labels(card.site.address).set(verdict)


def render() -> bytes:
    """The text of the metrics."""
    return generate_latest(registry)
