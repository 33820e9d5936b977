# SPDX-License-Identifier: Apache-2.0
"""What is said of a card in its PhysicalGPU."""

from __future__ import annotations

from typing import Any

from tests.support.cards import card, conditions

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api.meta import Condition
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.dra import offering, status
from gpudeck.statuses import cards

NAME = "gpu-0000-01-00-0"


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


def test_a_condition_of_ours_that_is_said_no_more_is_a_difference() -> None:
    applied = Condition(type="PartitioningApplied", status="True", reason="Applied")
    with_it = status.published_status(card(), {}, "node-0", applied=applied)
    without = status.published_status(card(), {}, "node-0")
    owned = ("Published", "PartitioningApplied")
    assert conditions(with_it)["PartitioningApplied"] == ("True", "Applied")
    assert cards.same(with_it, with_it, owned)
    assert not cards.same(without, with_it, owned)
    assert cards.same(without, with_it)
