# SPDX-License-Identifier: Apache-2.0
"""Regular expressions of rules, which node-feature-discovery v0.19 writes for Go's `regexp`: RE2's.

RE2 itself reads and runs them, in a time that grows with the text alone; Python's own matcher
needs exponential time for patterns such as `(a+)+$`, and whoever may write a rule could hold up
the master with one. Where Go's package differs from the library, it is as Go has it: `\\C` is
refused, and an empty match beside another is none.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, Protocol

from gpudeck.errors import InvalidError
from gpudeck.features.rules import effort

_LONGEST = 16 * 1024
_MEMORY = 1024 * 1024
"""Bytes of one pattern, what it remembers of texts included; RE2's own limit is 8 MiB."""
_KEPT = 128
"""Patterns that are kept ready."""
_CALL_STEPS, _STEP_CHARACTERS = 8, 512
"""A search takes 8 µs, and another for so many characters."""
_WORK = 50_000_000
"""Instructions of a pattern times characters: less than a second, should RE2 lack the memory."""
_SHOWN = 100
_HALF = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(.)", re.DOTALL)


class Match(Protocol):
    """Where a pattern was found; -1 is the place of a group that is no part of it."""

    def start(self, group: int = 0) -> int: ...
    def end(self, group: int = 0) -> int: ...


class Pattern:
    """A compiled pattern. ValueError says why a text is none."""

    def __init__(self, text: str) -> None:
        import re2  # noqa: PLC0415 - who has no rules with patterns need not hold its 2 MB.

        self._text = text
        if len(text) > _LONGEST:
            raise ValueError(f"it has more than {_LONGEST} characters")
        if any(each[1] == "C" for each in _ESCAPE.finditer(text)):
            raise ValueError("invalid escape sequence: \\C")
        options = re2.Options()
        options.log_errors, options.max_mem = False, _MEMORY
        try:
            self._found: Any = re2.compile(_encodable(text), options)
        except re2.error as error:
            raise ValueError(error.args[0].decode(errors="replace")) from error

    def search(self, text: str) -> bool:
        """Whether the pattern is found anywhere in `text`. InvalidError if it takes too long."""
        self._spend(text)
        return self._found.search(_encodable(text)) is not None

    def every(self, text: str) -> Iterator[Match]:
        """The matches from left to right, without overlap; of several at one place as Perl's."""
        last = -1
        self._spend(text)
        for found in self._found.finditer(_encodable(text)):
            if found.start() != found.end() or found.start() != last:
                yield found
            last = found.end()
            self._spend(text)

    def group(self, name: str, found: Match) -> tuple[int, int]:
        """Where a group begins and ends, by its name or number; of one that is none, nothing."""
        number = int(name) if name.isdecimal() else self._found.groupindex.get(name, -1)
        if not 0 <= number <= self._found.groups or found.start(number) < 0:
            return 0, 0
        return found.start(number), found.end(number)

    def _spend(self, text: str) -> None:
        effort.spend(_CALL_STEPS + len(text) // _STEP_CHARACTERS)
        if self._found.programsize * len(text) > _WORK:
            allowed = "a simpler pattern or a shorter text"
            raise InvalidError(
                f"{self._text!r} takes too long; allowed: {allowed}", allowed=allowed
            )


_built = functools.lru_cache(maxsize=_KEPT)(Pattern)


def compiled(text: str, path: str) -> Pattern:
    """The pattern of `text`. InvalidError with `path` if it is none."""
    try:
        return _built(text)
    except ValueError as error:
        allowed = "a regular expression (RE2)"
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise InvalidError(
            f"{path}: {shown!r} is not valid: {error}; allowed: {allowed}",
            field=path,
            allowed=allowed,
        ) from error


def _encodable(text: str) -> str:
    """The text, with a mark for each half of a character, which UTF-8 cannot say."""
    return text if text.isascii() else _HALF.sub("\N{REPLACEMENT CHARACTER}", text)
