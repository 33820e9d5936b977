# SPDX-License-Identifier: Apache-2.0
"""Metrics of the process mig-manager, each named once."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

registry = CollectorRegistry()

configured = Gauge(
    "gpudeck_mig_configured",
    "Whether the cards are partitioned as the config says.",
    registry=registry,
)
changes = Counter(
    "gpudeck_mig_changes_total",
    "Changes of the cards that have ended, by outcome.",
    ["outcome"],
    registry=registry,
)
apply_seconds = Histogram(
    "gpudeck_mig_apply_seconds",
    "Time in which the cards of a node were changed.",
    registry=registry,
    buckets=(0.5, 1, 2, 5, 10, 30, 60, 120, 300),
)


async def text() -> bytes:
    """The text of /metrics."""
    return generate_latest(registry)
