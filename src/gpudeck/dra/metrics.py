# SPDX-License-Identifier: Apache-2.0
"""Metrics of the process dra-plugin, each named once."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

registry = CollectorRegistry()

call_seconds = Histogram(
    "gpudeck_dra_call_seconds",
    "Time of the kubelet's calls, a pod's claims together.",
    ["call"],
    registry=registry,
    buckets=(0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.25, 1, 4, 16, 45),
)
claim_errors = Counter(
    "gpudeck_dra_claim_errors_total",
    "Claims that a call refused, by reason.",
    ["call", "reason"],
    registry=registry,
)
prepared_claims = Gauge(
    "gpudeck_dra_prepared_claims", "Claims that are prepared on this node.", registry=registry
)
published_devices = Gauge(
    "gpudeck_dra_published_devices", "Devices in this node's ResourceSlices.", registry=registry
)
slice_writes = Counter(
    "gpudeck_dra_resource_slice_writes_total",
    "Writes of ResourceSlices.",
    ["verb"],
    registry=registry,
)
adapter_connected = Gauge(
    "gpudeck_dra_adapter_connected", "Whether the maker's adapter answers.", registry=registry
)
registered = Gauge(
    "gpudeck_dra_registered", "Whether the kubelet accepted the plugin.", registry=registry
)


async def text() -> bytes:
    """The text of /metrics."""
    return generate_latest(registry)
