# SPDX-License-Identifier: Apache-2.0
"""Warnings about classes that miss a card or a profile by a little."""

from __future__ import annotations

from tests.unit.controller.admission.test_fleet import card, fleet, partitioned, spec

from gpudeck.controller.admission import sizes

FLEET = fleet(partitioned(bus=1), card(bus=2, product="NVIDIA A30", memory_mib=24576))


def test_a_minimum_just_above_a_card_is_told_with_what_would_select_it() -> None:
    wanted = spec(requirements={"memory": {"min": "80Gi"}})
    assert sizes.warnings(wanted, FLEET) == [
        "spec.requirements.memory.min: 80Gi is more than NVIDIA H100 80GB HBM3 has, 79.6 GiB; "
        "81559Mi selects it"
    ]


def test_minimums_that_select_or_are_far_off_are_not_spoken_of() -> None:
    for least in ("80G", "24Gi", "100Gi"):
        assert sizes.warnings(spec(requirements={"memory": {"min": least}}), FLEET) == []


def test_a_partition_minimum_just_above_a_profile_is_told() -> None:
    wanted = spec(devices=["Partition"], partition={"memory": {"min": "10Gi"}})
    (said,) = sizes.warnings(wanted, FLEET)
    assert said == (
        "spec.partition.memory.min: 10Gi is more than 1g.10gb has, 9.62 GiB; 9856Mi selects it"
    )


def test_a_profile_that_no_card_has_is_told_with_those_that_there_are() -> None:
    wanted = spec(devices=["Partition"], partition={"profiles": ["1g.10gb", "1g.11gb"]})
    assert sizes.warnings(wanted, FLEET) == [
        "spec.partition.profiles: no card has the profile 1g.11gb; there are 1g.10gb, 3g.40gb"
    ]


def test_without_any_partition_nothing_is_known_about_profiles() -> None:
    wanted = spec(devices=["Partition"], partition={"profiles": ["1g.11gb"]})
    assert sizes.warnings(wanted, fleet()) == []
