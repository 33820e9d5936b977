# SPDX-License-Identifier: Apache-2.0
"""Operators of rules: each with what holds, what does not, and what makes no sense."""

from __future__ import annotations

import re

import pytest

from gpudeck.api.nodefeatures import Expression
from gpudeck.errors import InvalidError
from gpudeck.features.rules import expressions, patterns


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
    assert expressions.of_value(expression, found, "e") is expected


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
    assert expressions.of_value(expression, found, "e") is expected


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
        expressions.of_value(Expression(op=op, value=value or None), "x", "e")
    assert caught.value.field == field
    assert "allowed:" in caught.value.message


def test_a_flag_has_presence_only() -> None:
    assert expressions.of_name(Expression(op="Exists"), True, "e")
    assert not expressions.of_name(Expression(op="In", value=["x"]), True, "e")
    assert not expressions.of_name(Expression(op="NotIn", value=["x"]), True, "e")


@pytest.mark.parametrize(
    "pattern",
    [
        "abc",
        "^a",
        "c$",
        "a|b",
        "(ab)+",
        "a{2,3}",
        "^a{2}$",
        "[a-c]+x",
        "[^a]",
        r"\d+",
        r"\bfoo\b",
        r"\w+\s\w+",
        "(?i)ABC",
        "a*?b",
        "(?:x|y)z",
        ".",
        "^$",
        "(a|b)*c",
        r"\.",
        "(?P<n>a)b",
        "a?b?c?",
        r"\Bo",
        r"[\d.]+$",
        "(?s)a.c",
        "(|a)+b",
        "^(5|6)[.]",
    ],
)
def test_a_pattern_finds_what_the_standard_library_finds(pattern: str) -> None:
    texts = [
        "",
        "abc",
        "aab",
        "aaab",
        "xaax",
        "foo",
        "a foo b",
        "ab 12",
        "ABC",
        "yz",
        "a\nc",
        "5.10",
        "6.8.0",
        "cab",
        "food",
        ".",
        "b",
    ]
    for text in texts:
        assert patterns.compiled(pattern, "p").search(text) is bool(re.search(pattern, text)), text


@pytest.mark.parametrize(
    "pattern",
    ["a", "a*", "a+?", "(a|ab)(c|bcd)?", "(?P<first>[a-z]+) ?([0-9]*)", "b|", "x*", "(a)|b",
     "^a|c$", r"\b", "(ab|a)*", "a{1,2}?", "[^b]+"],
)  # fmt: skip
def test_a_pattern_finds_each_place_that_the_standard_library_finds(pattern: str) -> None:
    found = patterns.compiled(pattern, "p")
    for text in ["", "abcd", "aab ab", "ab12 cd34", "xaxx", "cab", "bbb", "abab"]:
        places = [
            [text[at[2 * number] : at[2 * number + 1]] if 2 * number + 1 in at else None
             for number in range(re.compile(pattern).groups + 1)]
            for at in ({**each, 0: each[0], 1: each[1]} for each in found.every(text))
        ]  # fmt: skip
        wanted = [
            [each[0], *each.groups()]
            for each in re.finditer(pattern, text)
            # Unlike Go, the standard library has an empty match beside another.
            if each[0] or not any(o.end() == each.start() and o != each and o.start() < o.end()
                                  for o in re.finditer(pattern, text))
        ]  # fmt: skip
        assert places == wanted, text


def test_a_pattern_that_takes_too_long_says_so() -> None:
    long = patterns.compiled("(a|b|c|d|e)*(a|b|c|d|e)*(a|b|c|d|e)*f", "p")
    with pytest.raises(InvalidError, match="takes too long"):
        long.search("abcde" * 12_000)


def test_posix_classes_are_understood() -> None:
    assert patterns.compiled(r"^[[:digit:]]+[[:alpha:]]\z", "p").search("12a")


@pytest.mark.parametrize("pattern", ["((((){999}){999}){999}){999}", "(((?:){999}){999}){999}x"])
def test_a_pattern_that_repeats_nothing_is_soon_made(pattern: str) -> None:
    assert patterns.compiled(pattern, "p").search("x")


def test_a_pattern_that_explodes_elsewhere_ends() -> None:
    assert not patterns.compiled("^(a+)+$", "p").search("a" * 500 + "b")
