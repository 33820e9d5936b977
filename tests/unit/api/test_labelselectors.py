# SPDX-License-Identifier: Apache-2.0
"""Label selectors hold where Kubernetes' own hold."""

from __future__ import annotations

from typing import Any

import pytest

from gpudeck import errors
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


def test_a_value_may_be_empty_as_that_of_a_label() -> None:
    """The labels of roles have none: node-role.kubernetes.io/gpu."""
    wanted: dict[str, Any] = {"key": "role", "operator": "In", "values": ["", "x"]}
    found = fields.read({"matchExpressions": [wanted]}, selector, reason="Wrong")
    assert found == (Requirement("role", "In", ("", "x")),)
    wanted["values"] = ["", 1]
    with pytest.raises(errors.InvalidError, match=r"values\[1\]"):
        fields.read({"matchExpressions": [wanted]}, selector, reason="Wrong")
