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
def test_repetitions_in_each_other_are_soon_refused(pattern: str) -> None:
    with pytest.raises(InvalidError, match="repeats more than 1000 times"):
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
    assert [text[each[0] : each[1]] for each in found] == expected


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        (r"\p{Greek}", r"\p{Greek} is not known; there are Any and general categories"),
        (r"\C", r"\C is not known"),
        (r"\Z", r"\Z is not known"),
        (r"\u0041", r"\u is not known"),
        (r"(a)\1", r"\1 is not known"),
        ("(?=a)", "(?=a is not known"),
        ("(?<!a)b", "(?<! is not known"),
        ("(?>a)", "(?>a is not known"),
        ("(?x)a", "(?x) is not known"),
        ("(?P=n)", "(?P= is not known"),
        ("(?#c)", "(?#c is not known"),
        ("a**", "a repetition of a repetition"),
        ("a++", "a repetition of a repetition"),
        ("a{2}{3}", "a repetition of a repetition"),
        ("|*", "a repetition of nothing"),
        ("(?i)*", "a repetition of nothing"),
        ("a{1001}", "at most 1000 times"),
        ("a{2,1}", "at most 1000 times"),
        ("(a{100}){11}", "repeats more than 1000 times"),
        ("(a{1000}){1}(b{1000}){1}" * 6, "too long"),
        ("a" * 20_000, "more than 16384 characters"),
        ("(" * 300 + ")" * 300, "more than 100 times"),
        ("[b-a]", "b-a is no range"),
        ("[a", "a [ without a ]"),
        ("(a", "a ( without a )"),
        ("a)", "a ) without a ("),
        ("a\\", "a \\ without a character"),
        ("[[:letter:]]", "[:letter:] is not known; there are alnum, alpha"),
    ],
)
def test_what_is_not_known_is_refused_by_name(pattern: str, fault: str) -> None:
    with pytest.raises(InvalidError) as caught:
        patterns.compiled(pattern, "p")
    assert fault in caught.value.message
    assert caught.value.message.startswith("p: ")
    assert len(caught.value.message) < 400


def test_a_name_of_two_groups_is_that_of_the_first_that_matched() -> None:
    found = patterns.compiled("(?P<n>a)|(?P<n>b)", "p")
    (places,) = found.every("b")
    assert found.group("n", places) == (0, 1)
    assert found.group("1", places) == found.group("none", places) == (0, 0)


def test_what_is_remembered_of_a_pattern_changes_nothing() -> None:
    pattern = patterns.compiled("(a|b)*a(a|b|c){8}$", "p")
    texts = [f"{number:012b}".replace("0", "a").replace("1", "b") for number in range(4096)]
    wanted = [bool(re.search("a[abc]{8}$", text)) for text in texts]
    assert [pattern.search(text) for text in texts] == wanted
    assert [pattern.search(text) for text in texts] == wanted


def test_the_work_of_one_rule_is_bounded() -> None:
    pattern = patterns.compiled("(a|b|c)*d", "p")
    with effort.bounded(), pytest.raises(InvalidError, match="it takes too long"):
        all(not pattern.search("abc" * 1000) for _ in range(1000))
    assert not pattern.search("abc" * 1000)


def test_what_is_begun_in_a_hurry_is_not_refused_but_put_off() -> None:
    pattern = patterns.compiled("(a|b|c)*d", "p")
    with effort.hurried(), effort.bounded(), pytest.raises(effort.NotSoonError):
        all(not pattern.search("abc" * 1000) for _ in range(1000))
    with effort.hurried(), effort.bounded():
        assert not pattern.search("abc")
