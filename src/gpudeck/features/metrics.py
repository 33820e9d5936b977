# SPDX-License-Identifier: Apache-2.0
"""Metrics of the process features, each named once; a role sets only its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

registry = CollectorRegistry()

scan_seconds = Histogram(
    "gpudeck_features_scan_seconds",
    "Time of one look at the host.",
    registry=registry,
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2),
)
left_out = Gauge(
    "gpudeck_features_left_out", "Parts of the host that could not be read.", registry=registry
)
source_success = Gauge(
    "gpudeck_features_source_success",
    "Whether the last look at a source succeeded.",
    ["source"],
    registry=registry,
)
config_success = Gauge(
    "gpudeck_features_config_success",
    "Whether the configuration file was read the last time that it changed.",
    registry=registry,
)
leading = Gauge(
    "gpudeck_features_leading", "Whether this replica holds the lease.", registry=registry
)
refused = Gauge(
    "gpudeck_features_refused",
    "Labels and the like that rules give nodes and that are not written.",
    registry=registry,
)
writes = Counter(
    "gpudeck_features_writes_total", "Writes to the API server.", ["what"], registry=registry
)
deleted = Counter(
    "gpudeck_features_deleted_total", "NodeFeatures of vanished nodes deleted.", registry=registry
)


async def text() -> bytes:
    """The text of /metrics."""
    return generate_latest(registry)
