# SPDX-License-Identifier: Apache-2.0
"""Mistakes in rules that show before a node fulfils them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpudeck.api.nodefeatures import Rule
from gpudeck.features.rules import checking


def faults(**rule: Any) -> list[str]:
    return list(checking.faults(msgspec.convert({"name": "r", **rule}, Rule), "spec.rules[0]"))


def term(feature: str = "pci.device", **expressions: Any) -> dict[str, Any]:
    return {"feature": feature, "matchExpressions": expressions}


def test_a_rule_that_makes_sense_has_no_fault() -> None:
    assert faults(matchFeatures=[term(vendor={"op": "In", "value": ["10de"]})]) == []
    assert (
        faults(labelsTemplate="a=b", varsTemplate="{{ range .x.y }}{{ .Name }}=1\n{{ end }}") == []
    )
    assert (
        faults(matchFeatures=[term("cpu.cpuid", AVX10_VERSION={"op": "Ge", "value": ["2"]})]) == []
    )


@pytest.mark.parametrize(
    ("rule", "start"),
    [
        ({"labelsTemplate": "{{ nothing }}"}, "spec.rules[0].labelsTemplate: line 1: 'nothing'"),
        ({"varsTemplate": "a=b\n{{ end }}"}, "spec.rules[0].varsTemplate: line 2: end"),
        (
            {"matchAny": [{}, {"matchFeatures": [term(vendor={"op": "In"})]}]},
            "spec.rules[0].matchAny[1].matchFeatures[0].matchExpressions[vendor].value: []",
        ),
        (
            {"matchFeatures": [{"feature": "pci.device", "matchName": {"op": "Near"}}]},
            "spec.rules[0].matchFeatures[0].matchName.op: 'Near'",
        ),
        ({"matchFeatures": [term("pci")]}, "spec.rules[0].matchFeatures[0].feature: 'pci'"),
        (
            {"matchFeatures": [term("kernel.loadedModule", kvm={"op": "IsTrue"})]},
            "spec.rules[0].matchFeatures[0].matchExpressions[kvm].op: 'IsTrue' is true of nothing",
        ),
    ],
)
def test_a_mistake_is_told_by_its_path(rule: dict[str, Any], start: str) -> None:
    said = faults(**rule)
    assert len(said) == 1
    assert said[0].startswith(start), said


def test_all_mistakes_are_told_at_once() -> None:
    assert len(faults(labelsTemplate="{{", matchFeatures=[term("pci", a={"op": "Gt"})])) == 3
