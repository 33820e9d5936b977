# SPDX-License-Identifier: Apache-2.0
"""Read a regular expression as RE2 does, which node-feature-discovery's rules are written for.

The syntax is that of Go's regexp package, decision by decision: `patterns` runs the tree. What
RE2 does not know (look-around, references back, `\\Z`) is refused by name, and so are `\\C` and
the scripts of `\\p{Greek}`, which would need a table that Python does not have.
"""

from __future__ import annotations

import re
import sys

import msgspec

from gpudeck.features.rules import characters
from gpudeck.features.rules.characters import Accepts, Part

REPEAT_LIMIT = 1000  # RE2's own, also of repetitions in each other.
_DEEPEST = 100
_LONGEST = 16 * 1024
_PLACES = {
    "^": "begin",
    "$": "end",
    r"\A": "begin",
    r"\z": "end",
    r"\b": "boundary",
    r"\B": "no boundary",
}
_SIMPLE = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_REPEAT = re.compile(r"\{(0|[1-9][0-9]*)(?:(,)(0|[1-9][0-9]*)?)?\}")
_GROUP = re.compile(r"\?P?<([0-9A-Za-z_]+)>")
_FLAGS = re.compile(r"\?([imsU]*)(?:-([imsU]+))?([:)])")
_CODE = re.compile(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]+)\}|(0[0-7]{0,2}|[1-7][0-7]{1,2})")
_NAMED = re.compile(r"\[:(.*?):\]", re.DOTALL)
_UNICODE = re.compile(r"\\([pP])(?:\{([^}]*)\}|(.))", re.DOTALL)


class One(msgspec.Struct, frozen=True):
    """A character."""

    accepts: Accepts

    @property
    def may_be_empty(self) -> bool:
        return False


class Place(msgspec.Struct, frozen=True):
    """A place between characters."""

    kind: str
    """begin, end, line begin, line end, boundary or no boundary."""

    @property
    def may_be_empty(self) -> bool:
        return True


class Group(msgspec.Struct, frozen=True):
    """A part that is remembered by its number."""

    number: int
    inner: Node

    @property
    def may_be_empty(self) -> bool:
        return self.inner.may_be_empty


class Sequence(msgspec.Struct, frozen=True):
    """Parts, one after another."""

    parts: tuple[Node, ...]

    @property
    def may_be_empty(self) -> bool:
        return all(each.may_be_empty for each in self.parts)


class Choice(msgspec.Struct, frozen=True):
    """One of several, the preferred one first."""

    options: tuple[Node, ...]

    @property
    def may_be_empty(self) -> bool:
        return any(each.may_be_empty for each in self.options)


class Repeat(msgspec.Struct, frozen=True):
    """A part again and again; `most` is None without an end."""

    inner: Node
    least: int
    most: int | None
    is_greedy: bool

    @property
    def may_be_empty(self) -> bool:
        return self.least == 0 or self.inner.may_be_empty


Node = One | Place | Group | Sequence | Choice | Repeat


class Parsed(msgspec.Struct, frozen=True):
    """A pattern."""

    tree: Node
    groups: dict[str, list[int]]
    """Numbers of groups by their names, of which several may have one; a number is a name too."""


def parse(text: str) -> Parsed:
    """Return the tree of a pattern. ValueError says what is wrong."""
    if len(text) > _LONGEST:
        raise ValueError(f"it has more than {_LONGEST} characters")
    reader = _Reader(text)
    tree = reader.choice(frozenset(), depth=0)
    if not reader.is_done:
        raise ValueError("a ) without a (")
    numbers = {str(number): [number] for number in range(reader.count + 1)}
    return Parsed(tree, {**reader.named, **numbers})


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.named: dict[str, list[int]] = {}
        self.count = 0
        """Groups, the whole pattern not among them."""

    @property
    def is_done(self) -> bool:
        """Whether all has been read."""
        return self._at >= len(self._text)

    def _is_next(self, start: str) -> bool:
        return self._text.startswith(start, self._at)

    def _take(self, start: str) -> bool:
        if not self._is_next(start):
            return False
        self._at += len(start)
        return True

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _character(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def choice(self, flags: frozenset[str], *, depth: int) -> Node:
        """Read until a ) or the end. Flags that are set inside count until there."""
        if depth > _DEEPEST:
            raise ValueError(f"groups stand in each other more than {_DEEPEST} times")
        options: list[list[Node]] = [[]]
        is_repeated = False
        while not self.is_done and not self._is_next(")"):
            parts, was_repeated, is_repeated = options[-1], is_repeated, False
            if self._take("|"):
                options.append([])
            elif self._is_next("(?") and (new := self._flags(flags)) is not None:
                flags = new
            elif self._take(r"\Q"):
                parts += self._quoted(flags)
            elif (times := self._times()) is not None:
                if was_repeated:
                    raise ValueError("a repetition of a repetition")
                self._repeat(parts, times, flags)
                is_repeated = True
            else:
                parts.append(self._part(flags, depth))
        found = [_sequence(parts) for parts in options]
        return found[0] if len(found) == 1 else Choice(tuple(found))

    def _flags(self, flags: frozenset[str]) -> frozenset[str] | None:
        """Read `(?flags)`; None if that is not what comes."""
        found = _FLAGS.match(self._text, self._at + 1)
        if found is None or found[3] != ")":
            return None
        self._at = found.end()
        return _changed(flags, found)

    def _quoted(self, flags: frozenset[str]) -> list[Node]:
        text, end, _ = self._text[self._at :].partition(r"\E")
        self._at += len(text) + len(end)
        return [_literal(each, flags) for each in text]

    def _times(self) -> tuple[int, int | None] | None:
        """Read `*`, `+`, `?` or `{n,m}`; None if that is not what comes."""
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return times
        found = self._match(_REPEAT)
        if found is None:
            return None
        least = int(found[1][:9])
        most = int(found[3][:9]) if found[3] else None if found[2] else least
        if max(least, most or 0) > REPEAT_LIMIT or (most is not None and most < least):
            raise ValueError(f"{found[0][:20]} is no repetition of at most {REPEAT_LIMIT} times")
        return least, most

    def _repeat(
        self, parts: list[Node], times: tuple[int, int | None], flags: frozenset[str]
    ) -> None:
        if not parts:
            raise ValueError("a repetition of nothing")
        is_greedy = self._take("?") is ("U" in flags)
        parts[-1] = Repeat(parts[-1], *times, is_greedy)
        if max(times[0], times[1] or 0) > 1 and not _is_within(parts[-1], REPEAT_LIMIT):
            raise ValueError(f"it repeats more than {REPEAT_LIMIT} times")

    def _part(self, flags: frozenset[str], depth: int) -> Node:
        if self._take("("):
            return self._group(flags, depth)
        if self._is_next("["):
            return self._class(flags)
        if self._take("."):
            return One(_anything if "s" in flags else _no_line_feed)
        for start, kind in _PLACES.items():
            if self._take(start):
                return Place(f"line {kind}" if "m" in flags and start in "^$" else kind)
        parts = self._named_part()
        if parts is not None:
            return One(characters.one_of([parts], folds="i" in flags))
        return _literal(self._escaped(), flags)

    def _group(self, flags: frozenset[str], depth: int) -> Node:
        found = self._match(_FLAGS)
        if found is not None:
            inner = self.choice(_changed(flags, found), depth=depth + 1)
        else:
            self._name()
            self.count += 1
            number = self.count
            inner = Group(number, self.choice(flags, depth=depth + 1))
        if not self._take(")"):
            raise ValueError("a ( without a )")
        return inner

    def _name(self) -> None:
        """Read the name of a group, if it has one."""
        found = self._match(_GROUP)
        if found is not None:
            self.named.setdefault(found[1], []).append(self.count + 1)
        elif self._is_next("?"):
            raise ValueError(f"({self._text[self._at : self._at + 3]} is not known")

    def _named_part(self) -> Part | None:
        """Read a class that is one escape: `\\d`, `\\pL`; None if that is not what comes."""
        if self._text[self._at : self._at + 1] != "\\":
            return None
        name = self._text[self._at + 1 : self._at + 2]
        if name and name.lower() in characters.ESCAPES:
            self._at += 2
            return Part(characters.within(characters.ESCAPES[name.lower()]), name.isupper())
        found = self._match(_UNICODE)
        if found is None:
            return None
        wanted = found[3] if found[2] is None else found[2]
        is_negated = (found[1] == "P") is not wanted.startswith("^")
        wanted = wanted.removeprefix("^")
        if wanted != "Any" and wanted not in characters.CATEGORIES:
            known = "Any and general categories such as L, Lu and Nd, but no scripts"
            raise ValueError(f"{found[0][:40]} is not known; there are {known}")
        return Part(characters.category(wanted), is_negated)

    def _escaped(self) -> str:
        """Read one character, spelled as itself or by an escape."""
        found = self._character()
        if found != "\\":
            return found
        code = self._match(_CODE)
        if code is not None:
            number = int(code[1] or code[2] or code[3], 8 if code[3] else 16)
            if number <= sys.maxunicode:
                return chr(number)
        elif not self.is_done:
            name = self._character()
            if name in _SIMPLE:
                return _SIMPLE[name]
            if name.isascii() and not name.isalnum():
                return name
            raise ValueError(f"\\{name} is not known")
        raise ValueError("a \\ without a character")

    def _class(self, flags: frozenset[str]) -> Node:
        self._at += 1
        is_negated = self._take("^")
        parts: list[Part] = []
        is_first = True
        while is_first or not self._take("]"):
            is_first = False
            if self.is_done:
                raise ValueError("a [ without a ]")
            parts.append(self._posix() or self._named_part() or self._range())
        return One(characters.one_of(parts, folds="i" in flags, is_negated=is_negated))

    def _posix(self) -> Part | None:
        found = self._match(_NAMED)
        if found is None:
            return None
        name = found[1].removeprefix("^")
        if name not in characters.CLASSES:
            known = ", ".join(characters.CLASSES)
            raise ValueError(f"{found[0][:40]} is not known; there are {known}")
        return Part(characters.within(characters.CLASSES[name]), found[1] != name)

    def _range(self) -> Part:
        low = high = self._escaped()
        if self._is_next("-") and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
            self._at += 1
            high = self._escaped()
        if high < low:
            raise ValueError(f"{low}-{high} is no range")
        return Part(characters.within([(low, high)]))


def _sequence(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def _literal(character: str, flags: frozenset[str]) -> Node:
    part = Part(characters.within([(character, character)]))
    return One(characters.one_of([part], folds="i" in flags))


def _anything(_character: str) -> bool:
    return True


def _no_line_feed(character: str) -> bool:
    return character != "\n"


def _changed(flags: frozenset[str], found: re.Match[str]) -> frozenset[str]:
    return (flags | set(found[1])) - set(found[2] or "")


def _is_within(node: Node, limit: int) -> bool:
    """Whether no part is repeated more often than that, with the repetitions around it."""
    match node:
        case Repeat():
            times = node.least if node.most is None else node.most
            if times > limit:
                return False
            return times == 0 or _is_within(node.inner, limit // max(times, 1))
        case Group():
            return _is_within(node.inner, limit)
        case Sequence():
            return all(_is_within(each, limit) for each in node.parts)
        case Choice():
            return all(_is_within(each, limit) for each in node.options)
    return True
