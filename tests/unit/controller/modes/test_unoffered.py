# SPDX-License-Identifier: Apache-2.0
"""Whether a node offers anything, by its pool and by what its cards say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import gpus

from gpudeck.api import conditions
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller.modes import unoffered


def pool(*slices: tuple[int, int, int]) -> int | None:
    """Count a pool of slices: generation, slices of the generation, devices of each."""
    found = [
        {
            "metadata": {"name": f"slice-{number}"},
            "spec": {
                "pool": {"name": "node-0", "generation": generation, "resourceSliceCount": count},
                **({"devices": [{"name": f"gpu-{each}"} for each in range(devices)]} if devices
                   else {}),
            },
        }
        for number, (generation, count, devices) in enumerate(slices)
    ]  # fmt: skip
    return unoffered.devices(msgspec.convert(found, list[unoffered.ResourceSlice]))


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ((), None),
        (((1, 1, 0),), 0),
        (((1, 1, 4),), 4),
        (((1, 2, 4),), None),
        (((1, 2, 0), (1, 2, 3)), 3),
        (((1, 1, 4), (2, 1, 0)), 0),
        (((1, 1, 0), (2, 2, 4)), None),
    ],
)
def test_a_pool_counts_once_the_slices_of_its_newest_generation_are_there(
    slices: tuple[tuple[int, int, int], ...], expected: int | None
) -> None:
    assert pool(*slices) == expected


def card(bus: str = "1b", *said: dict[str, Any]) -> PhysicalGPU:
    value = gpus.gpu(address=f"0000:{bus}:00.0")
    value["status"]["conditions"] = list(said)
    return msgspec.convert(value, PhysicalGPU)


def published(status: str, message: str = "", reason: str = "Tested") -> dict[str, Any]:
    return gpus.condition(conditions.PUBLISHED, status, reason=reason, message=message)


def why(cards: list[PhysicalGPU], **cordoned: str) -> str:
    """What is said of cards, some of which are cordoned, by the number of their bus."""
    said = {f"node-0-0000-{bus}-00-0": text for bus, text in cordoned.items()}
    return unoffered.why(cards, lambda name: said.get(name, ""))


WHOLE = published("False", "The card is in partitioning mode.")
OFFERED = published("True", "Offered.")
SICK = gpus.condition(conditions.HARDWARE_HEALTHY, "False", message="Xid 79: off the bus.")


def test_a_node_of_which_no_card_is_offered_says_why_of_the_first() -> None:
    found = why([card("1b", WHOLE), card("2a", OFFERED, SICK)])
    assert found == ("node-0-0000-1b-00-0: The card is in partitioning mode. So it is with 1 more.")
    assert why([card("2a", OFFERED, SICK)]).endswith(": Xid 79: off the bus.")


@pytest.mark.parametrize(
    "other",
    [
        card("2a", OFFERED),
        card("2a"),
        card("2a", published("False", "It leaves.", conditions.MODE_CHANGING)),
    ],
)
def test_a_node_with_a_card_that_is_offered_or_of_which_nobody_has_said_is_left(
    other: PhysicalGPU,
) -> None:
    assert why([card("1b", WHOLE), other]) == ""


def test_a_node_without_cards_says_nothing() -> None:
    assert why([]) == ""


def test_a_cordoned_card_is_not_offered_whatever_is_said_of_it() -> None:
    cards = [card("1b", OFFERED), card("2a", OFFERED), card("b3")]
    assert why(cards[:2], **{"1b": "It is cordoned."}) == ""
    every = dict.fromkeys(("1b", "2a", "b3"), "It is cordoned: loud.")
    assert why(cards, **every) == (
        "node-0-0000-1b-00-0: It is cordoned: loud. So it is with 2 more."
    )
    assert why([cards[0], card("2a", OFFERED, SICK)], **{"1b": "It is cordoned."}) == (
        "node-0-0000-1b-00-0: It is cordoned. So it is with 1 more."
    )
