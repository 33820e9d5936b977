# SPDX-License-Identifier: Apache-2.0
"""Verdicts in the kubelet's words."""

from __future__ import annotations

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.dra import health
from gpudeck.kubelet.wire import health_pb2


def card(verdict: adapter_pb2.Verdict, **more: str) -> adapter_pb2.Card:
    return adapter_pb2.Card(health=adapter_pb2.Health(verdict=verdict, **more))


def test_every_device_is_named_with_its_verdict_and_the_time() -> None:
    cards = {
        "gpu-0000-02-00-0": card(adapter_pb2.VERDICT_UNHEALTHY, reason="GpuLost", message="Gone."),
        "gpu-0000-01-00-0": card(adapter_pb2.VERDICT_HEALTHY, reason="Healthy"),
        "gpu-0000-03-00-0": card(adapter_pb2.VERDICT_UNKNOWN, reason="NotReadYet"),
    }
    found = health.report(cards, cards, "node-0", 7).devices
    assert [(each.device.device_name, each.health, each.message) for each in found] == [
        ("gpu-0000-01-00-0", health_pb2.HEALTHY, ""),
        ("gpu-0000-02-00-0", health_pb2.UNHEALTHY, "GpuLost: Gone."),
        ("gpu-0000-03-00-0", health_pb2.UNKNOWN, "NotReadYet"),
    ]
    assert {each.device.pool_name for each in found} == {"node-0"}
    assert {each.last_updated_time for each in found} == {7}
    assert {each.health_check_timeout_seconds for each in found} == {30}


def test_a_long_message_is_cut_at_a_character() -> None:
    cards = {
        "gpu-0000-01-00-0": card(adapter_pb2.VERDICT_UNHEALTHY, reason="R", message="ж" * 2000)
    }
    (found,) = health.report(cards, cards, "n", 1).devices
    assert 1020 < len(found.message.encode()) <= 1024


def test_a_part_of_a_card_is_as_healthy_as_the_card() -> None:
    cards = {"gpu-0000-01-00-0": card(adapter_pb2.VERDICT_UNHEALTHY, reason="GpuLost")}
    devices = ["gpu-0000-01-00-0", "mig-0000-01-00-0-1g10gb-19-0", "share-0000-02-00-0"]
    found = health.report(cards, devices, "node-0", 7).devices
    assert [(each.device.device_name, each.health) for each in found] == [
        ("gpu-0000-01-00-0", health_pb2.UNHEALTHY),
        ("mig-0000-01-00-0-1g10gb-19-0", health_pb2.UNHEALTHY),
    ]
