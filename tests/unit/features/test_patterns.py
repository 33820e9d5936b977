# SPDX-License-Identifier: Apache-2.0
"""Patterns of rules: what RE2 finds is found, what it refuses is refused, and all of it soon."""

from __future__ import annotations

import re

import pytest

from gpudeck.errors import InvalidError
from gpudeck.features.rules import effort, patterns


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
            [text[slice(*found.group(str(number), each))] if each.start(number) >= 0 else None
             for number in range(re.compile(pattern).groups + 1)]
            for each in found.every(text)
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
    long = patterns.compiled("(a|b)*a(a|b|c){1000}$", "p")
    with pytest.raises(InvalidError, match="takes too long"):
        long.search("ab" * 20_000)
    assert not long.search("ab" * 300)


def test_posix_classes_are_understood() -> None:
    assert patterns.compiled(r"^[[:digit:]]+[[:alpha:]]\z", "p").search("12a")


@pytest.mark.parametrize("pattern", ["((((){999}){999}){999}){999}", "(((?:){999}){999}){999}x"])
def test_repetitions_in_each_other_are_soon_refused(pattern: str) -> None:
    with pytest.raises(InvalidError, match=r"invalid repetition size: \{999\}"):
        patterns.compiled(pattern, "p")


def test_a_pattern_that_explodes_elsewhere_ends() -> None:
    assert not patterns.compiled("^(a+)+$", "p").search("a" * 500 + "b")


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\Qa.b*\E", "xa.b*", True),
        (r"\Qa.b*\E", "aabb", False),
        (r"^\Qab\E*$", "abbb", True),
        (r"^\Qab\E*$", "abab", False),
        (r"\Qa+b", "a+b", True),
        (r"\pL", "é", True),
        (r"\pL", "1-", False),
        (r"\p{Lu}\P{Lu}", "aÉa", True),
        (r"^\p{^L}+$", "12", True),
        (r"[\pN_]{2}", "_٣", True),
        (r"^\p{Greek}+$", "λόγος", True),
        (r"\Q\C\E", r"\C", True),
        (r"\\C", r"\C", True),
        (r"(?i)\p{Lu}", "a", True),
        (r"^\d+$", "٣", False),
        (r"^\w$", "é", False),
        (r"\s", "\v", False),
        (r"[[:space:]]", "\v", True),
        (r"[[:^alpha:]]", "a1", True),
        (r"[:alpha:]", "b", False),
        (r"[:alpha:]", "h", True),
        (r"a\z", "a", True),
        ("a$", "a\n", False),
        ("(?m)a$", "a\nb", True),
        ("(?m)^b", "a\nb", True),
        ("a.b", "a\nb", False),
        ("(?s)a.b", "a\nb", True),
        ("(?i)k", "\u212a", True),
        ("(?i)s", "\u017f", True),
        ("(?i)ß", "ẞ", True),
        ("(?i)ß", "ss", False),
        ("(?i)\u0131", "I", False),
        (r"(?i)\W", "\u212a", False),
        ("a(?i)b", "aB", True),
        ("a(?i)b", "AB", False),
        ("(?i:a)b", "AB", False),
        ("(a(?i)b|c)d", "Cd", True),
        ("(?i)a(?-i)b", "Ab", True),
        ("(?<name>a)b", "ab", True),
        (r"\x{20AC}\x41\101\07", "€AA\a", True),
        ("^a{,2}$", "a{,2}", True),
        ("^a{,2}$", "aa", False),
        ("^{1}$", "{1}", False),
        (r"^\b*$", "", True),
        ("^*a", "a", True),
        ("[]-]+", "]-", True),
        (r"[^\D]", "7", True),
        ("^(|a)+$", "aa", True),
        ("(?:a{0}){5}b", "b", True),
        (r"\_\-\/", "_-/", True),
    ],
)
def test_a_pattern_means_what_it_means_to_go(pattern: str, text: str, expected: bool) -> None:
    """As regexp of Go 1.26 says."""
    assert patterns.compiled(pattern, "p").search(text) is expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("(?U)a+", "aab", ["a", "a"]),
        ("(?U)a+?", "aab", ["aa"]),
        ("(|a)*", "aa", ["", "", ""]),
        ("(a|)*", "aab", ["aa", ""]),
        (r"(?m:(\d{0,2}?){2}[[:^digit:]]*?)* {0,2}?\pL", "-é-ö", ["-é", "-ö"]),
        ("(a|ab)(c|bcd)(d*)", "abcd", ["abcd"]),
        ("a*?", "aa", ["", "", ""]),
        ("(?:a|b)??c", "bc", ["bc"]),
    ],
)
def test_of_several_ways_the_one_that_go_prefers_is_found(
    pattern: str, text: str, expected: list[str]
) -> None:
    found = patterns.compiled(pattern, "p").every(text)
    assert [text[each.start() : each.end()] for each in found] == expected


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        (r"\p{Klingon}", r"invalid character class range: \p{Klingon}"),
        (r"\C", r"invalid escape sequence: \C"),
        (r"[\C]", r"invalid escape sequence: \C"),
        (r"\Z", r"invalid escape sequence: \Z"),
        (r"\u0041", r"invalid escape sequence: \u"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("(?=a)", "invalid perl operator: (?="),
        ("(?<!a)b", "invalid perl operator: (?<!"),
        ("(?x)a", "invalid perl operator: (?x"),
        ("a**", "bad repetition operator: **"),
        ("|*", "no argument for repetition operator: *"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("a{2,1}", "invalid repetition size: {2,1}"),
        ("(a{100}){11}", "invalid repetition size: {11}"),
        (r"\pL{1000}", "pattern too large"),
        ("a" * 20_000, "more than 16384 characters"),
        ("[b-a]", "invalid character class range: b-a"),
        ("[a", "missing ]: [a"),
        ("(a", "missing ): (a"),
        ("a)", "unexpected ): a)"),
        ("a\\", "trailing \\"),
        ("[[:letter:]]", "invalid character class range: [:letter:]"),
    ],
)
def test_what_is_not_known_is_refused_by_name(pattern: str, fault: str) -> None:
    with pytest.raises(InvalidError) as caught:
        patterns.compiled(pattern, "p")
    assert fault in caught.value.message
    assert caught.value.message.startswith("p: ")
    assert len(caught.value.message) < 400


def test_a_group_is_found_by_its_name_or_number() -> None:
    pattern = patterns.compiled("(?P<first>a)|(?P<second>b)", "p")
    (found,) = pattern.every("-b")
    assert pattern.group("second", found) == pattern.group("2", found) == (1, 2)
    for name in ("first", "1", "none", "3", "-1"):
        assert pattern.group(name, found) == (0, 0)


def test_half_a_character_is_no_part_of_a_pattern_and_moves_no_place() -> None:
    pattern = patterns.compiled("b", "p")
    assert [found.start() for found in pattern.every("a\ud800b")] == [2]
    assert not patterns.compiled("\ud800", "p").search("a")


def test_the_work_of_one_rule_is_bounded() -> None:
    pattern = patterns.compiled("(a|b|c)*d", "p")
    with effort.bounded(), pytest.raises(InvalidError, match="it takes too long"):
        all(not pattern.search("abc" * 1000) for _ in range(100_000))
    assert not pattern.search("abc" * 1000)


def test_what_is_begun_in_a_hurry_is_not_refused_but_put_off() -> None:
    pattern = patterns.compiled("(a|b|c)*d", "p")
    with effort.hurried(), effort.bounded(), pytest.raises(effort.NotSoonError):
        all(not pattern.search("abc" * 1000) for _ in range(1000))
    with effort.hurried(), effort.bounded():
        assert not pattern.search("abc")
