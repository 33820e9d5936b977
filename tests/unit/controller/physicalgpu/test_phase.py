# SPDX-License-Identifier: Apache-2.0
"""The phase says what hinders a card most."""

from __future__ import annotations

import msgspec
import pytest
from tests.support import gpus

from gpudeck.api.v1alpha1.physicalgpu import Occupancy, OccupancyState, Phase, PhysicalGPU
from gpudeck.controller.physicalgpu import phase

FREE, FULL = OccupancyState.FREE, OccupancyState.FULL


@pytest.mark.parametrize(
    ("states", "state", "expected"),
    [
        ({}, FREE, "Discovered"),
        ({"Discovered": "True"}, FREE, "Discovered"),
        ({"Discovered": "True"}, FULL, "Discovered"),
        (gpus.HEALTHY, FREE, "Ready"),
        (gpus.HEALTHY, FULL, "InUse"),
        ({**gpus.HEALTHY, "Published": "False"}, FREE, "NotReady"),
        ({**gpus.HEALTHY, "Published": "False"}, FULL, "InUse"),
        ({**gpus.HEALTHY, "DriverReady": "False"}, FULL, "NotReady"),
        ({**gpus.HEALTHY, "DriverReady": "Unknown"}, FULL, "InUse"),
        ({**gpus.HEALTHY, "DriverReady": "Unknown"}, FREE, "NotReady"),
        ({**gpus.HEALTHY, "HardwareHealthy": "Unknown"}, FREE, "Ready"),
        ({**gpus.HEALTHY, "HardwareHealthy": "False"}, FULL, "Faulty"),
        ({**gpus.HEALTHY, "HardwareHealthy": "False", "Discovered": "False"}, FULL, "Lost"),
    ],
)
def test_the_phase_follows_from_conditions_and_occupancy(
    states: dict[str, str], state: OccupancyState, expected: str
) -> None:
    card = msgspec.convert(gpus.gpu(states=states), PhysicalGPU)
    assert phase.of(card, Occupancy(state=state), attended=True) == expected


def test_a_card_without_a_status_is_discovered() -> None:
    assert phase.of(PhysicalGPU(), Occupancy(state=FREE), attended=True) is Phase.DISCOVERED


def test_when_a_card_was_lost_is_told_by_the_agent_or_by_the_condition() -> None:
    states = {"Discovered": "False"}
    told = msgspec.convert(gpus.gpu(states=states, lostSince="2026-02-02T00:00:00Z"), PhysicalGPU)
    derived = msgspec.convert(gpus.gpu(states=states), PhysicalGPU)
    assert phase.lost_since(told) == "2026-02-02T00:00:00Z"
    assert phase.lost_since(derived) == gpus.SINCE


def test_the_reason_of_a_bad_phase_is_that_of_its_condition() -> None:
    raw = gpus.gpu()
    raw["status"]["conditions"] = [
        gpus.condition("HardwareHealthy", "False", reason="XidError", message="Xid 79 at 12:00")
    ]
    card = msgspec.convert(raw, PhysicalGPU)
    assert phase.reason(card, Phase.FAULTY) == "XidError: Xid 79 at 12:00"
    assert phase.reason(card, Phase.READY) == ""


def test_a_condition_without_a_sentence_has_its_reason_alone() -> None:
    raw = gpus.gpu()
    raw["status"]["conditions"] = [gpus.condition("Discovered", "False", reason="CardLost")]
    assert phase.reason(msgspec.convert(raw, PhysicalGPU), Phase.LOST) == "CardLost"


def test_a_card_that_nobody_answers_for_is_not_ready_but_stays_held() -> None:
    card = msgspec.convert(gpus.gpu(), PhysicalGPU)
    assert phase.of(card, Occupancy(state=FREE), attended=False) is Phase.NOT_READY
    assert phase.of(card, Occupancy(state=FULL), attended=False) is Phase.IN_USE
