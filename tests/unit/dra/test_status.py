# SPDX-License-Identifier: Apache-2.0
"""What is said of a card in its PhysicalGPU."""

from __future__ import annotations

from typing import Any

import pytest

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api.meta import Condition
from gpudeck.api.v1alpha1 import physicalgpu
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.dra import offering, status

NAME = "gpu-0000-01-00-0"


def card(**changes: Any) -> adapter_pb2.Card:
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
    return {each.type: (each.status, each.reason) for each in found.conditions or ()}


def published(found: adapter_pb2.Card, **more: Any) -> Condition:
    offered = offering.offer([found], offering.Rules(vendor="nvidia", **more))
    by_name = {each.name: each for each in offered.devices}
    (condition,) = (
        status.published_status(
            found, by_name, "node-0", parts_withheld=NAME in offered.withheld
        ).conditions
        or ()
    )
    return condition


def test_a_card_without_memory_of_its_own_says_nothing_of_it() -> None:
    unified = card()
    unified.ClearField("memory_bytes")
    capabilities = status.adapter_status(unified, "nvidia").capabilities
    assert capabilities
    assert capabilities.memory_mib is None
    capabilities = status.adapter_status(card(), "nvidia").capabilities
    assert capabilities
    assert capabilities.memory_mib == 40960


def test_profiles_are_named_as_the_driver_names_them() -> None:
    profile = adapter_pb2.PartitionProfile(
        name="1g.5gb+me",
        profile_id=20,
        memory_mib=4864,
        max_instances=1,
        slices=1,
        decoders=1,
        ofa_engines=1,
    )
    support = adapter_pb2.PartitionSupport(supported=True, total_slices=7, profiles=[profile])
    capabilities = status.adapter_status(card(partition_support=support), "nvidia").capabilities
    assert capabilities
    assert capabilities.partition_support
    (found,) = capabilities.partition_support.profiles or ()
    assert (found.name, found.profile_id, found.max_instances) == ("1g.5gb+me", 20, 1)
    assert found.engines == physicalgpu.PartitionEngines(decoders=1, ofa=1)


def test_a_profile_without_engines_says_nothing_of_them() -> None:
    support = adapter_pb2.PartitionSupport(
        supported=True, profiles=[adapter_pb2.PartitionProfile(name="1g.5gb", slices=1)]
    )
    capabilities = status.adapter_status(card(partition_support=support), "nvidia").capabilities
    assert capabilities
    assert capabilities.partition_support
    (found,) = capabilities.partition_support.profiles or ()
    assert found.engines is None


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (adapter_pb2.VERDICT_HEALTHY, "True"),
        (adapter_pb2.VERDICT_UNHEALTHY, "False"),
        (adapter_pb2.VERDICT_UNKNOWN, "Unknown"),
    ],
)
def test_a_verdict_is_a_condition_with_its_reason(verdict: Any, said: str) -> None:
    health = adapter_pb2.Health(verdict=verdict, reason="Because")
    found = status.adapter_status(card(health=health), "nvidia")
    assert conditions(found)["HardwareHealthy"] == (said, "Because")


def test_published_tells_the_device_and_its_taint() -> None:
    assert published(card()).message == "Offered in pool node-0: whole."
    sick = adapter_pb2.Health(verdict=adapter_pb2.VERDICT_UNHEALTHY, reason="GpuLost")
    assert published(card(health=sick)).message.endswith("It is tainted as unhealthy.")
    assert published(card(health=sick), taints_kept=False).reason == "Withheld"


def test_published_tells_that_parts_are_withheld() -> None:
    share = (GPUClassSpec(devices=["Share"]),)
    found = published(card(), classes=share, counters_kept=False)
    assert (found.status, found.reason) == ("True", "PartsWithheld")
    assert found.message.startswith("Offered in pool node-0: whole. Parts that GPUClasses select")
    held = frozenset({"share-0000-01-00-0"})
    found = published(card(), ours=held, counters_kept=False)
    assert (found.status, found.reason) == ("False", "PartsWithheld")
    assert "until the claim is gone" in found.message
    assert published(card(), counters_kept=False).reason == "Published"


def test_published_tells_why_not() -> None:
    no_driver = card()
    no_driver.driver.CopyFrom(adapter_pb2.DriverState(reason="DriverNotLoaded", message="Load it."))
    found = published(no_driver)
    assert (found.status, found.reason, found.message) == ("False", "DriverNotLoaded", "Load it.")
    gone = status.published_status(None, {}, "node-0")
    assert conditions(gone) == {"Published": ("False", "CardNotSeen")}
    rejected = status.published_status(card(), {}, "node-0", rejection="spec.devices: too many")
    assert conditions(rejected) == {"Published": ("False", "ResourceSlicesRejected")}


def test_facts_outlive_the_card_and_the_adapter_and_verdicts_do_not() -> None:
    known = status.adapter_status(card(), "nvidia")
    for found, reason in (
        (status.absent_status(known), "CardNotSeen"),
        (status.away_status(known), "AdapterUnavailable"),
    ):
        assert found.capabilities == known.capabilities
        assert found.current_state == known.current_state
        assert set(conditions(found).values()) == {("Unknown", reason)}


def test_the_same_is_the_same_whatever_others_wrote() -> None:
    wanted = status.adapter_status(card(), "nvidia")
    found = status.adapter_status(card(), "nvidia")
    assert found.current_state
    found.current_state.driver_type = physicalgpu.DriverType.NVIDIA
    foreign = Condition(type="Discovered", status="True", reason="CardFound")
    found.conditions = [foreign, *(found.conditions or ())]
    assert status.same(wanted, found)
    assert not status.same(wanted, None)


@pytest.mark.parametrize(
    "change",
    [
        {"uuid": "GPU-2"},
        {"product_name": "Other"},
        {"health": adapter_pb2.Health(message="new")},
        {"partitioning": adapter_pb2.Partitioning(mode=adapter_pb2.PARTITIONING_MODE_DISABLED)},
    ],
)
def test_every_change_is_a_difference(change: dict[str, Any]) -> None:
    found = status.adapter_status(card(), "nvidia")
    assert not status.same(status.adapter_status(card(**change), "nvidia"), found)


def test_a_condition_of_ours_that_is_said_no_more_is_a_difference() -> None:
    applied = Condition(type="PartitioningApplied", status="True", reason="Applied")
    with_it = status.published_status(card(), {}, "node-0", applied=applied)
    without = status.published_status(card(), {}, "node-0")
    owned = ("Published", "PartitioningApplied")
    assert conditions(with_it)["PartitioningApplied"] == ("True", "Applied")
    assert status.same(with_it, with_it, owned)
    assert not status.same(without, with_it, owned)
    assert status.same(without, with_it)
