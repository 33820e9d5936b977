# SPDX-License-Identifier: Apache-2.0
"""Metrics of the process gfd, each named once."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

registry = CollectorRegistry()

labels = Gauge("gpudeck_gfd_labels", "Labels of the node's cards.", registry=registry)
config_valid = Gauge(
    "gpudeck_gfd_config_valid", "Whether the config file is in force as it is.", registry=registry
)
held = Gauge(
    "gpudeck_gfd_labels_held",
    "Whether labels are kept because the driver tells nothing of the cards.",
    registry=registry,
)
writes = Counter(
    "gpudeck_gfd_writes_total", "Writes of the labels.", ["outcome"], registry=registry
)
pass_seconds = Histogram(
    "gpudeck_gfd_pass_seconds",
    "Time from a known inventory to the labels written.",
    registry=registry,
    buckets=(0.001, 0.002, 0.005, 0.01, 0.05, 0.2, 1, 5),
)


async def text() -> bytes:
    """The text of /metrics."""
    return generate_latest(registry)
