# SPDX-License-Identifier: Apache-2.0
"""The status of a class tells people in one sentence how it is."""

from __future__ import annotations

import msgspec
from tests.support import gpus

from gpudeck.api import conditions
from gpudeck.api.v1alpha1.gpuclass import GPUClass, GPUClassStatus, Matching
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


def of(counts: Counts, *devices: str) -> GPUClassStatus:
    found = msgspec.convert(gpus.gpu_class("c", devices=devices), GPUClass)
    return statuses.of(found, statuses.ready("c", ""), counts, NOW)


def test_a_class_of_partitions_says_how_many_more_could_be_had() -> None:
    found = of(Counts(gpus=8, devices=56, free=50, allocated=6), "Partition")
    assert found.message == "50 more could be had of 8 matching cards, 6 held"
    assert (found.matching, found.free, found.allocated) == (Matching(8, 56), 50, 6)


def test_a_class_with_shares_says_what_memory_is_left_and_no_number_of_shares() -> None:
    counts = Counts(gpus=1, devices=1, free=1, allocated=3, share_mib=40960)
    found = of(counts, "Share")
    assert found.message == "3 held on 1 matching card, 40 GiB of memory left for shares"
    assert (found.matching, found.free, found.allocated) == (Matching(1, 1), None, 3)


def test_a_class_of_whole_cards_says_how_many_are_held_in_parts() -> None:
    found = of(Counts(gpus=8, devices=8, free=5, allocated=1, held_otherwise=2), "Whole")
    assert found.message == "5 of 8 matching cards free, 1 held, 2 held in parts"
