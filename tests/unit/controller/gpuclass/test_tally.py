# SPDX-License-Identifier: Apache-2.0
"""Counts follow the cards and end where they began."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import gpus

from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller.gpuclass.tally import Counts, Tally

ALL = GPUClassSpec()
H100 = msgspec.convert({"requirements": {"products": ["*H100*"]}}, GPUClassSpec)


def card(**fields: Any) -> PhysicalGPU:
    return msgspec.convert(gpus.gpu(**fields), PhysicalGPU)


READY = {"phase": "Ready", "occupancy": {"state": "Free"}}
HELD = {"phase": "InUse", "occupancy": {"state": "Full"}}


def test_a_class_counts_the_cards_it_selects() -> None:
    tally = Tally()
    tally.change(None, card(**READY))
    tally.change(None, card(**HELD))
    tally.change(None, card(product="NVIDIA A100-SXM4-40GB", **READY))
    assert tally.of(ALL) == Counts(gpus=3, devices=3, free=2, allocated=1)
    assert tally.of(H100) == Counts(gpus=2, devices=2, free=1, allocated=1)


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, Counts(gpus=1, devices=1)),
        (READY, Counts(gpus=1, devices=1, free=1)),
        (HELD, Counts(gpus=1, devices=1, allocated=1)),
        ({**READY, "states": {**gpus.HEALTHY, "Published": "False"}}, Counts(gpus=1)),
        ({**READY, "phase": "Faulty"}, Counts(gpus=1, devices=1)),
        ({**READY, "states": {**gpus.HEALTHY, "Discovered": "False"}}, Counts()),
    ],
)
def test_what_one_card_counts_as(fields: dict[str, Any], counts: Counts) -> None:
    tally = Tally()
    tally.change(None, card(**fields))
    assert tally.of(ALL) == counts


def test_counts_end_where_they_began() -> None:
    tally = Tally()
    free, held = card(**READY), card(**HELD)
    assert tally.change(None, free)
    assert tally.change(free, held)
    assert tally.of(ALL) == Counts(gpus=1, devices=1, allocated=1)
    assert not tally.change(held, held)
    assert tally.change(held, None)
    assert tally.of(ALL) == Counts()
    assert {phase: count for phase, count in tally.phases.items() if phase and count} == {}


def test_phases_are_counted() -> None:
    tally = Tally()
    for fields in (READY, READY, HELD):
        tally.change(None, card(**fields))
    assert (tally.phases["Ready"], tally.phases["InUse"]) == (2, 1)
