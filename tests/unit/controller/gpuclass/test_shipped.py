# SPDX-License-Identifier: Apache-2.0
"""Which classes gpudeck makes by itself, and which it takes away again."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.api.v1alpha1.gpuclass import GPUClass, Usage
from gpudeck.controller.gpuclass import shipped


def made(*profiles: str) -> dict[str, GPUClass]:
    plan = shipped.plan(profiles, (), {}, choice=shipped.AUTO)
    return {each.metadata.name: each for each in plan.create}


def plan(
    profiles: tuple[str, ...],
    classes: dict[str, GPUClass],
    *,
    used: tuple[str, ...] = (),
    choice: str = shipped.AUTO,
) -> tuple[list[str], list[str]]:
    found = shipped.plan(profiles, used, classes, choice=choice)
    return [each.metadata.name for each in found.create], [
        each.metadata.name for each in found.delete
    ]


def test_each_profile_has_a_class_under_the_name_of_nvidias_device_plugin() -> None:
    found = made("1g.10gb", "1g.10gb+me", "2g.48gb-me", "2g.48gb+me.all")
    assert {name: each.spec.extended_resource_name for name, each in found.items()} == {
        "mig-1g.10gb": "nvidia.com/mig-1g.10gb",
        "mig-1g.10gb.me": "nvidia.com/mig-1g.10gb.me",
        "mig-2g.48gb-me": "nvidia.com/mig-2g.48gb-me",
        "mig-2g.48gb.me.all": "nvidia.com/mig-2g.48gb.me.all",
    }
    media = found["mig-1g.10gb.me"].spec
    assert media.vendor == "nvidia"
    assert media.devices == ["Partition"]
    assert media.partition is not None
    assert media.partition.profiles == ["1g.10gb+me"]


def test_nothing_is_made_twice() -> None:
    assert plan(("1g.10gb",), made("1g.10gb")) == ([], [])


def test_a_class_of_somebody_else_under_the_name_is_left_alone() -> None:
    own = {"mig-1g.10gb": msgspec.convert({"metadata": {"name": "mig-1g.10gb"}}, GPUClass)}
    assert plan(("1g.10gb",), own) == ([], [])
    assert plan((), own) == ([], [])


def test_a_class_of_which_no_card_has_the_profile_goes() -> None:
    assert plan(("2g.20gb",), made("1g.10gb", "2g.20gb")) == ([], ["mig-1g.10gb"])


def test_a_class_whose_partitions_are_held_stays() -> None:
    found = made("1g.10gb", "1g.10gb+me")
    assert plan((), found, used=("1g10gbme",)) == ([], ["mig-1g.10gb"])


@pytest.mark.parametrize("used", [(), ("1g10gb",)])
def test_without_shipped_classes_those_that_are_there_go_unless_they_are_used(
    used: tuple[str, ...],
) -> None:
    found = made("1g.10gb")
    gone = [] if used else ["mig-1g.10gb"]
    assert plan(("1g.10gb",), found, used=used, choice=shipped.NONE) == ([], gone)
    assert plan(("1g.10gb",), {}, choice=shipped.NONE) == ([], [])


def test_a_class_that_an_administrator_changed_is_his() -> None:
    found = made("1g.10gb")
    found["mig-1g.10gb"].spec.usage = Usage(max_devices_per_claim=1)
    assert plan((), found) == ([], [])
    assert plan((), found, choice=shipped.NONE) == ([], [])


def test_a_class_without_the_label_is_an_administrators() -> None:
    found = made("1g.10gb")
    found["mig-1g.10gb"].metadata.labels = None
    assert plan((), found) == ([], [])


def test_a_class_that_goes_already_is_not_deleted_again() -> None:
    found = made("1g.10gb")
    found["mig-1g.10gb"].metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert plan((), found) == ([], [])


@pytest.mark.parametrize(
    "profile", ["", "x", "1g.10gb+", "1g.10gb/../x", "1g.10gb+me-", "1G.10GB", "1g.10gb+.me"]
)
def test_a_profile_that_makes_no_name_makes_no_class(profile: str) -> None:
    assert made(profile) == {}


def test_a_node_that_reports_nonsense_makes_no_flood_of_classes() -> None:
    assert len(made(*(f"1g.{number}gb" for number in range(1000)))) == 64
