# SPDX-License-Identifier: Apache-2.0
"""What cards of one model have in common is read once and never confused with another's."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from tests.support import gpus
from tests.unit.dra.test_offering import ANY_PART, hopper, offer

from gpudeck.api.v1alpha1.physicalgpu import PartitionSupport
from gpudeck.controller import models
from gpudeck.devices import cutting
from gpudeck.statuses import cards


def support(**changes: Any) -> PartitionSupport:
    raw = copy.deepcopy(gpus.FOUR_SLICES)
    return msgspec.convert(raw | changes, PartitionSupport)


def test_equal_ones_are_one_object_and_others_are_not() -> None:
    first = models.shared(support())
    assert models.shared(support()) is first
    other = models.shared(support(dynamic=False))
    assert other is not first
    assert other == support(dynamic=False)


def test_a_card_without_profiles_has_no_model() -> None:
    assert models.shared(support(profiles=[])) is None
    assert models.of(support(profiles=[])) is None
    assert models.of(None) is None


def test_a_model_has_the_drivers_figures() -> None:
    raw = copy.deepcopy(gpus.FOUR_SLICES)
    raw["profiles"][0]["engines"] = {"decoders": 1, "ofa": 1}
    made = models.of(msgspec.convert(raw, PartitionSupport))
    assert made is not None
    assert made.total_slices == 4
    assert made.profiles[0].engines == ((cutting.DECODERS, 1), (cutting.OFA, 1))
    assert made.profiles[1].places == (cutting.Place(0, 2), cutting.Place(2, 2))


def test_nonsense_of_some_node_does_not_grow_for_ever_and_harms_no_model() -> None:
    good = models.shared(support())
    for number in range(1000):
        models.shared(support(totalSlices=5 + number))
    assert models.of(good) == models.of(support())
    assert models.of(models.shared(support())) == models.of(support())


def test_the_controller_counts_with_the_counters_that_the_plugin_publishes() -> None:
    card = hopper()
    capabilities = cards.adapter_status(card, "nvidia").capabilities
    assert capabilities is not None
    model = models.of(models.shared(capabilities.partition_support))
    assert model is not None
    (published,) = offer([card], ANY_PART).counters
    assert cutting.totals(model) == {
        name: int(each.value) for name, each in published.counters.items()
    }
