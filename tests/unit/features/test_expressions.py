# SPDX-License-Identifier: Apache-2.0
"""Operators of rules: each with what holds, what does not, and what makes no sense."""

from __future__ import annotations

import time

import pytest

from gpudeck.api.nodefeatures import Expression
from gpudeck.errors import InvalidError
from gpudeck.features.rules import expressions


@pytest.mark.parametrize(
    ("op", "value", "found", "expected"),
    [
        ("", [], None, True),
        ("Exists", [], "", True),
        ("Exists", [], None, False),
        ("DoesNotExist", [], None, True),
        ("DoesNotExist", [], "x", False),
        ("In", ["10de", "1002"], "10de", True),
        ("In", ["10de"], "10d", False),
        ("In", ["10de"], None, False),
        ("NotIn", ["10de"], "15b3", True),
        ("NotIn", ["10de"], "10de", False),
        ("NotIn", ["10de"], None, False),
        ("InRegexp", ["^03(00|02)$"], "0302", True),
        ("InRegexp", ["^03(00|02)$"], "0200", False),
        ("InRegexp", ["x", "a.c"], "babcb", True),
        ("InRegexp", ["x"], None, False),
        ("Gt", ["4"], "5", True),
        ("Gt", ["5"], "5", False),
        ("Ge", ["5"], "5", True),
        ("Lt", ["-1"], "-2", True),
        ("Le", ["5"], "6", False),
        ("Gt", ["4"], "five", False),
        ("Gt", ["4"], None, False),
        ("GtLt", ["1", "10"], "5", True),
        ("GtLt", ["1", "10"], "10", False),
        ("GeLe", ["1", "10"], "10", True),
        ("IsTrue", [], "true", True),
        ("IsTrue", [], "1", False),
        ("IsFalse", [], "false", True),
        ("IsFalse", [], None, False),
    ],
)
def test_an_operator_holds_as_it_should(
    op: str, value: list[str], found: str | None, expected: bool
) -> None:
    expression = Expression(op=op, value=value or None)
    assert expressions.predicate(expression, "e")(found) is expected


@pytest.mark.parametrize(
    ("op", "value", "found", "expected"),
    [
        ("Gt", ["5.9"], "5.15.0", True),
        ("Ge", ["6.8"], "6.8.0-60-generic", True),
        ("Lt", ["v1.2.3"], "1.2.2", True),
        ("GeLe", ["535.54", "550"], "535.129.03", True),
        ("Ge", ["5.10"], "unknown", False),
        ("Le", ["5.10.0"], "5.10", True),
    ],
)
def test_versions_are_compared_part_by_part(
    op: str, value: list[str], found: str, expected: bool
) -> None:
    expression = Expression(op=op, value=value, type="version")
    assert expressions.predicate(expression, "e")(found) is expected


@pytest.mark.parametrize("value", ["1." * 100_000 + "!", "1" + ".1" * 100_000 + "!", "9" * 100_000])
def test_a_long_text_is_soon_seen_to_be_no_version(value: str) -> None:
    begin = time.process_time()
    newer = expressions.predicate(Expression(op="Gt", value=["1"], type="version"), "e")
    assert not newer(value)
    assert time.process_time() - begin < 1


@pytest.mark.parametrize(
    ("op", "value", "field"),
    [
        ("Like", ["x"], "e.op"),
        ("In", [], "e.value"),
        ("Gt", [], "e.value"),
        ("Gt", ["a"], "e.value"),
        ("GtLt", ["1"], "e.value"),
        ("GtLt", ["10", "1"], "e.value"),
        ("IsTrue", ["true"], "e.value"),
        ("Exists", ["y"], "e.value"),
        ("", ["y"], "e.value"),
        ("InRegexp", ["("], "e.value"),
        ("InRegexp", ["(?=x)"], "e.value"),
        ("InRegexp", [r"(a)\1"], "e.value"),
    ],
)
def test_an_expression_without_sense_names_its_field(op: str, value: list[str], field: str) -> None:
    with pytest.raises(InvalidError) as caught:
        expressions.predicate(Expression(op=op, value=value or None), "e")
    assert caught.value.field == field
    assert "allowed:" in caught.value.message


def test_a_flag_has_presence_only() -> None:
    assert expressions.of_flag(Expression(op="Exists"), True)
    assert not expressions.of_flag(Expression(op="In", value=["x"]), True)
    assert not expressions.of_flag(Expression(op="NotIn", value=["x"]), True)
