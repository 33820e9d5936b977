# SPDX-License-Identifier: Apache-2.0
"""The status of a class tells people in one sentence how it is."""

from __future__ import annotations

import msgspec
from tests.support import gpus

from gpudeck.api import conditions
from gpudeck.api.v1alpha1.gpuclass import GPUClass, Matching
from gpudeck.controller.gpuclass import statuses
from gpudeck.controller.gpuclass.tally import Counts

CLASS = msgspec.convert(gpus.gpu_class("h100"), GPUClass)
NOW = "2026-03-01T00:00:00Z"


def test_a_ready_class_says_how_many_cards_are_free() -> None:
    outcome = statuses.ready("h100", "gpu.deckhouse.io/h100")
    found = statuses.of(CLASS, outcome, Counts(gpus=8, devices=8, free=5, allocated=3), NOW)
    assert found.message == "5 of 8 matching cards free, 3 held"
    assert (found.device_class_name, found.extended_resource_name) == (
        "h100",
        "gpu.deckhouse.io/h100",
    )
    ready = conditions.find(found.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.last_transition_time, ready.observed_generation) == ("True", NOW, 1)


def test_a_class_that_selects_nothing_says_so() -> None:
    found = statuses.of(CLASS, statuses.ready("h100", ""), Counts(), NOW)
    assert found.message == "no card of the cluster meets the requirements"


def test_a_refused_class_has_the_reason_as_condition_and_sentence() -> None:
    outcome = statuses.Outcome(ready=False, reason="DeviceClassConflict", message="taken")
    found = statuses.of(CLASS, outcome, Counts(gpus=1), NOW)
    ready = conditions.find(found.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason, found.message) == ("False", "DeviceClassConflict", "taken")


def test_an_unchanged_status_is_equal_at_any_time() -> None:
    outcome, counts = statuses.ready("h100", ""), Counts(gpus=1)
    first = statuses.of(CLASS, outcome, counts, NOW)
    again = msgspec.structs.replace(CLASS, status=first)
    assert statuses.of(again, outcome, counts, "2027-01-01T00:00:00Z") == first


def test_a_class_of_parts_counts_cards_and_says_no_more_than_it_knows() -> None:
    raw = gpus.gpu_class("small", devices=["Partition"])
    found = statuses.of(
        msgspec.convert(raw, GPUClass), statuses.ready("small", ""), Counts(gpus=8, free=8), NOW
    )
    assert found.message == "parts of 8 matching cards, as far as the cards offer them"
    assert (found.matching, found.free, found.allocated) == (Matching(gpus=8), None, None)
