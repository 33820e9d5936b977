# SPDX-License-Identifier: Apache-2.0
"""Label selectors hold where Kubernetes' own hold."""

from __future__ import annotations

import pytest

from gpudeck.api import fields
from gpudeck.api.labelselectors import Requirement, fulfils, selector


@pytest.mark.parametrize(
    ("requirement", "labels", "holds"),
    [
        (Requirement("a", "In", ("x", "y")), {"a": "y"}, True),
        (Requirement("a", "In", ("x",)), {"a": "z"}, False),
        (Requirement("a", "In", ("x",)), {}, False),
        (Requirement("a", "NotIn", ("x",)), {"a": "z"}, True),
        (Requirement("a", "NotIn", ("x",)), {"a": "x"}, False),
        (Requirement("a", "NotIn", ("x",)), {}, True),
        (Requirement("a", "Exists"), {"a": ""}, True),
        (Requirement("a", "Exists"), {}, False),
        (Requirement("a", "DoesNotExist"), {}, True),
        (Requirement("a", "DoesNotExist"), {"a": ""}, False),
    ],
)
def test_a_requirement_holds_as_in_kubernetes(
    requirement: Requirement, labels: dict[str, str], holds: bool
) -> None:
    assert fulfils(labels, [requirement]) is holds


def test_all_requirements_must_hold() -> None:
    both = [Requirement("a", "Exists"), Requirement("b", "Exists")]
    assert fulfils({"a": "", "b": ""}, both)
    assert not fulfils({"a": ""}, both)


def test_an_empty_selector_selects_all() -> None:
    assert fields.read({}, selector, reason="Wrong", path="selector") is None
