# SPDX-License-Identifier: Apache-2.0
"""Metrics of the process controller, each named once."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

registry = CollectorRegistry()

leading = Gauge(
    "gpudeck_controller_leading", "Whether this replica holds the lease.", registry=registry
)
cards = Gauge("gpudeck_controller_cards", "PhysicalGPUs by phase.", ["phase"], registry=registry)
gpu_classes = Gauge(
    "gpudeck_controller_gpu_classes", "GPUClasses by readiness.", ["ready"], registry=registry
)
refused_groups = Gauge(
    "gpudeck_controller_refused_node_groups",
    "Groups of nodes that cannot be read and stay as they were.",
    registry=registry,
)
waiting = Gauge(
    "gpudeck_controller_waiting_keys", "Keys that wait in a queue.", ["queue"], registry=registry
)
writes = Counter(
    "gpudeck_controller_writes_total",
    "Writes to the API server, by kind of object.",
    ["kind"],
    registry=registry,
)


def render() -> bytes:
    """The text of /metrics."""
    return generate_latest(registry)
