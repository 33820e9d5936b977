# SPDX-License-Identifier: Apache-2.0
"""Which cards a class has to excuse."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import gpus

from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller.gpuclass.withholding import Withheld


def card(bus: int, reason: str, product: str = "NVIDIA H100 80GB HBM3") -> PhysicalGPU:
    made = gpus.gpu(address=f"0000:{bus:02x}:00.0", product=product)
    for each in made["status"]["conditions"]:
        if each["type"] == "Published":
            each["reason"] = reason
    return msgspec.convert(made, PhysicalGPU)


def said(withheld: Withheld, **spec: Any) -> str:
    return withheld.sentence(msgspec.convert(spec, GPUClassSpec))


@pytest.mark.parametrize("devices", [["Partition"], ["Share"], ["Whole", "Share"]])
def test_a_class_of_parts_excuses_the_cards_that_it_selects(devices: list[str]) -> None:
    withheld = Withheld()
    assert withheld.change(None, card(1, "PartsWithheld"))
    assert withheld.change(None, card(2, "PartsWithheld"))
    assert withheld.change(None, card(3, "PartsWithheld", product="NVIDIA A100-SXM4-40GB"))
    h100 = {"products": ["*H100*"]}
    assert said(withheld, devices=devices, requirements=h100).startswith("2 of the cards are not")
    assert said(withheld, devices=devices).startswith("3 of the cards are not")
    assert said(withheld, devices=devices, requirements={"products": ["*L40*"]}) == ""
    assert said(withheld, devices=["Whole"]) == ""


def test_a_card_that_is_offered_or_gone_counts_no_more() -> None:
    withheld = Withheld()
    withheld.change(None, card(1, "PartsWithheld"))
    withheld.change(None, card(2, "PartsWithheld"))
    assert withheld.change(card(1, "PartsWithheld"), card(1, "Published"))
    assert said(withheld, devices=["Share"]).startswith("1 of the cards is not")
    assert withheld.change(card(2, "PartsWithheld"), None)
    assert said(withheld, devices=["Share"]) == ""
    assert not withheld.change(card(1, "Published"), None)


def test_a_lost_card_is_not_excused_beside_a_count_that_leaves_it_out() -> None:
    withheld = Withheld()
    withheld.change(None, card(1, "PartsWithheld"))
    lost = card(1, "PartsWithheld")
    assert lost.status is not None
    for each in lost.status.conditions or ():
        if each.type == "Discovered":
            each.status = "False"
    assert withheld.change(card(1, "PartsWithheld"), lost)
    assert said(withheld, devices=["Share"]) == ""
