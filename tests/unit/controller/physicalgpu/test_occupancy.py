# SPDX-License-Identifier: Apache-2.0
"""A whole card is free or full."""

from __future__ import annotations

import msgspec
from tests.support import gpus

from gpudeck.api.v1alpha1.physicalgpu import HeldMemory, HolderClaim, PhysicalGPU
from gpudeck.controller.physicalgpu import occupancy

HOLDER = HolderClaim(namespace="t", name="c", uid="u", device="gpu-0000-1b-00-0")


def card(memory_mib: int | None = 81559) -> PhysicalGPU:
    return msgspec.convert(gpus.gpu(memory_mib=memory_mib), PhysicalGPU)


def test_a_card_without_holders_is_free() -> None:
    found = occupancy.of(card(), [])
    assert found.state == "Free"
    assert found.memory_mib == HeldMemory(total=81559, used=0)
    assert found.claims is None


def test_a_card_with_a_holder_is_full() -> None:
    found = occupancy.of(card(), [HOLDER])
    assert found.state == "Full"
    assert found.memory_mib == HeldMemory(total=81559, used=81559)
    assert found.claims == [HOLDER]


def test_memory_that_is_not_known_is_not_made_up() -> None:
    assert occupancy.of(card(memory_mib=None), [HOLDER]).memory_mib is None


def test_a_card_that_nobody_looked_at_yet_can_be_free() -> None:
    assert occupancy.of(PhysicalGPU(), []).state == "Free"
