# SPDX-License-Identifier: Apache-2.0
"""What whoever reads a card says of it in its PhysicalGPU."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cards import card, conditions

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api.meta import Condition
from gpudeck.api.v1alpha1 import physicalgpu
from gpudeck.statuses import cards


def test_a_card_without_memory_of_its_own_says_nothing_of_it() -> None:
    unified = card()
    unified.ClearField("memory_bytes")
    capabilities = cards.adapter_status(unified, "nvidia").capabilities
    assert capabilities
    assert capabilities.memory_mib is None
    capabilities = cards.adapter_status(card(), "nvidia").capabilities
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
    capabilities = cards.adapter_status(card(partition_support=support), "nvidia").capabilities
    assert capabilities
    assert capabilities.partition_support
    (found,) = capabilities.partition_support.profiles or ()
    assert (found.name, found.profile_id, found.max_instances) == ("1g.5gb+me", 20, 1)
    assert found.engines == physicalgpu.PartitionEngines(decoders=1, ofa=1)


def test_a_profile_without_engines_says_nothing_of_them() -> None:
    support = adapter_pb2.PartitionSupport(
        supported=True, profiles=[adapter_pb2.PartitionProfile(name="1g.5gb", slices=1)]
    )
    capabilities = cards.adapter_status(card(partition_support=support), "nvidia").capabilities
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
    found = cards.adapter_status(card(health=health), "nvidia")
    assert conditions(found)["HardwareHealthy"] == (said, "Because")


def test_facts_outlive_the_card_and_the_adapter_and_verdicts_do_not() -> None:
    known = cards.adapter_status(card(), "nvidia")
    for found, reason in (
        (cards.absent_status(known), "CardNotSeen"),
        (cards.away_status(known), "AdapterUnavailable"),
    ):
        assert found.capabilities == known.capabilities
        assert found.current_state == known.current_state
        assert set(conditions(found).values()) == {("Unknown", reason)}


def test_the_same_is_the_same_whatever_others_wrote() -> None:
    wanted = cards.adapter_status(card(), "nvidia")
    found = cards.adapter_status(card(), "nvidia")
    assert found.current_state
    found.current_state.driver_type = physicalgpu.DriverType.NVIDIA
    foreign = Condition(type="Discovered", status="True", reason="CardFound")
    found.conditions = [foreign, *(found.conditions or ())]
    assert cards.same(wanted, found)
    assert not cards.same(wanted, None)


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
    found = cards.adapter_status(card(), "nvidia")
    assert not cards.same(cards.adapter_status(card(**change), "nvidia"), found)
