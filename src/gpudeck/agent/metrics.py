# SPDX-License-Identifier: Apache-2.0
"""Metrics of the process node-agent, each named once."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

registry = CollectorRegistry()

cards = Gauge("gpudeck_agent_cards", "Cards of the node, by vendor.", ["vendor"], registry=registry)
unreadable_devices = Gauge(
    "gpudeck_agent_unreadable_devices",
    "PCI functions that are on the bus and cannot be read.",
    registry=registry,
)
scan_success = Gauge(
    "gpudeck_agent_scan_success", "Whether the last look at the bus succeeded.", registry=registry
)
scan_seconds = Histogram(
    "gpudeck_agent_scan_seconds",
    "Time of one look at the PCI bus.",
    registry=registry,
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2),
)
vendors_valid = Gauge(
    "gpudeck_agent_supported_vendors_valid",
    "Whether the ConfigMap gpu-supported-vendors is in force as it is.",
    registry=registry,
)
writes = Counter(
    "gpudeck_agent_writes_total", "Writes to the API server.", ["what"], registry=registry
)


async def text() -> bytes:
    """The text of /metrics."""
    return generate_latest(registry)
