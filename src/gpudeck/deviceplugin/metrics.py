# SPDX-License-Identifier: Apache-2.0
"""Metrics of the process device-plugin, each named once."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gpudeck.kubelet import deviceplugins
from gpudeck.kubelet.wire import deviceplugin_pb2 as pb

registry = CollectorRegistry()

devices = Gauge(
    "gpudeck_deviceplugin_devices",
    "Devices in the last list that the kubelet was sent, by health.",
    ["resource", "health"],
    registry=registry,
)
registrations = Counter(
    "gpudeck_deviceplugin_registrations_total",
    "Registrations that a kubelet accepted.",
    ["resource"],
    registry=registry,
)
config_valid = Gauge(
    "gpudeck_deviceplugin_config_valid",
    "Whether the config that was chosen is in force.",
    registry=registry,
)
call_seconds = Histogram(
    "gpudeck_deviceplugin_call_seconds",
    "Time of a call of the kubelet.",
    ["call"],
    registry=registry,
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.004, 0.016, 0.064),
)


def listed(resource: str, found: Iterable[pb.Device]) -> None:
    """Count a list that is sent."""
    healths = [each.health for each in found]
    for health in (deviceplugins.HEALTHY, deviceplugins.UNHEALTHY):
        devices.labels(resource, health).set(healths.count(health))


async def text() -> bytes:
    """The text of /metrics."""
    return generate_latest(registry)
