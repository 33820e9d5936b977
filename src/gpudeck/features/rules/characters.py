# SPDX-License-Identifier: Apache-2.0
"""Which characters a pattern accepts: classes of RE2, and what differs in case alone. Pure.

RE2's own classes (`\\d`, `\\s`, `\\w`, `[:alpha:]`) are ASCII; `\\p` asks Unicode, whose general
categories are those of the standard library. Letters are equal but for case as RE2 has it, by
simple folding: `k` and the Kelvin sign are, `ß` and `ss` are not, nor `i` and the dotless one.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterable

import msgspec

Accepts = Callable[[str], bool]
_CASED = 0x20000
"""No letter beyond has two cases."""
_DIGITS, _LOWER, _UPPER = ("0", "9"), ("a", "z"), ("A", "Z")
CLASSES: dict[str, tuple[tuple[str, str], ...]] = {
    "alnum": (_DIGITS, _LOWER, _UPPER),
    "alpha": (_LOWER, _UPPER),
    "ascii": (("\0", "\x7f"),),
    "blank": (("\t", "\t"), (" ", " ")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": (_DIGITS,),
    "graph": (("!", "~"),),
    "lower": (_LOWER,),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (("\t", "\r"), (" ", " ")),
    "upper": (_UPPER,),
    "word": (_DIGITS, _LOWER, _UPPER, ("_", "_")),
    "xdigit": (_DIGITS, ("a", "f"), ("A", "F")),
}
"""Named classes, as ranges."""
ESCAPES = {
    "d": CLASSES["digit"],
    "s": (("\t", "\n"), ("\f", "\r"), (" ", " ")),  # Without the vertical tab, as Perl of old.
    "w": CLASSES["word"],
}
CATEGORIES = frozenset(
    f"{group}{kind}"
    for group, kinds in {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios",
                         "S": "ckmo", "Z": "lps"}.items()
    for kind in ("", *kinds)
)  # fmt: skip
"""What `\\p` knows, besides `Any`."""


class Part(msgspec.Struct, frozen=True):
    """A part of a class: what it accepts, or all but that."""

    accepts: Accepts
    is_negated: bool = False


def within(ranges: Iterable[tuple[str, str]]) -> Accepts:
    """Whether a character stands in one of the ranges, both ends included."""
    held = tuple(ranges)
    return lambda found: any(low <= found <= high for low, high in held)


def category(name: str) -> Accepts:
    """Whether a character is of a general category (`Lu`) or of a group of them (`L`)."""
    if name == "Any":
        return lambda _found: True
    return lambda found: unicodedata.category(found).startswith(name)


def one_of(parts: Iterable[Part], *, folds: bool, is_negated: bool = False) -> Accepts:
    """Whether one part accepts a character, or with `folds` one that differs in case alone."""
    held = tuple(parts)

    def accepts(found: str) -> bool:
        forms = alike(found) if folds else (found,)
        return (
            any(any(map(part.accepts, forms)) is not part.is_negated for part in held)
            is not is_negated
        )

    return accepts


def alike(character: str) -> tuple[str, ...]:
    """The characters that differ from this one in case alone, itself among them."""
    return _families().get(_folded(character), (character,))


@functools.cache
def _families() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for each in map(chr, range(_CASED)):
        found.setdefault(_folded(each), []).append(each)
    return {name: tuple(family) for name, family in found.items() if len(family) > 1}


def _folded(character: str) -> str:
    """Unicode's simple case folding, of which the standard library has but the full one."""
    for text in (character.casefold(), character.lower()):
        if len(text) == 1:
            return text
    return character
