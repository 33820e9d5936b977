# SPDX-License-Identifier: Apache-2.0
"""A card as an adapter tells it, and what is said of it, for tests of statuses."""

from __future__ import annotations

from typing import Any

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api.v1alpha1 import physicalgpu


def card(**changes: Any) -> adapter_pb2.Card:
    """A healthy A100, with fields of it changed."""
    made = adapter_pb2.Card(
        pci_address="0000:01:00.0",
        uuid="GPU-1",
        product_name="NVIDIA A100-SXM4-40GB",
        memory_bytes=40960 * 1024 * 1024,
        driver=adapter_pb2.DriverState(ready=True, reason="DriverReady", version="580.65.06"),
        health=adapter_pb2.Health(verdict=adapter_pb2.VERDICT_HEALTHY, reason="Healthy"),
    )
    for name in changes:
        made.ClearField(name)
    made.MergeFrom(adapter_pb2.Card(**changes))
    return made


def conditions(found: physicalgpu.PhysicalGPUStatus) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition, by type."""
    return {each.type: (each.status, each.reason) for each in found.conditions or ()}
