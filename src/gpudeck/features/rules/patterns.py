# SPDX-License-Identifier: Apache-2.0
"""Regular expressions of rules, as node-feature-discovery has them (RE2), in linear time.

Python's own matcher needs exponential time for patterns such as `(a+)+$`, and whoever may
write a rule could hold up the master with one. So a pattern is parsed by the standard
library and run as a set of states: each character of the value is looked at once. What RE2
does not know either (look-around, references back) is refused with the pattern's path.

`search` says whether a pattern is found, `every` also where, as templates need it.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

# The parser of `re` has no public name, and none at all among the types.
from re import _constants as words  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from gpudeck.errors import InvalidError

_REPEAT_LIMIT = 1000  # RE2's own.
_STATE_LIMIT = 10_000
_SHORT = 128
_STEP_LIMIT = 500_000
"""States times characters of one call: less than a second."""
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
Accepts = Callable[[str], bool]
Holds = Callable[[str, int], bool]
Places = dict[int, int]
"""Where a match begins (0) and ends (1), and its group n (2n, 2n + 1) if it is part of it."""


class Pattern:
    """A compiled pattern: states that accept a character, hold at a place, or lead on."""

    def __init__(self, text: str, tree: Any) -> None:
        self._text = text
        self._accepts: list[Accepts | None] = []
        self._holds: list[Holds | None] = []
        self._saves: list[int | None] = []
        self._next: list[list[int]] = []
        """The states that follow, the preferred one first."""
        self.groups: dict[str, int] = {str(number): number for number in range(tree.state.groups)}
        """Numbers of groups by their names; a number is a name too."""
        self.groups |= tree.state.groupdict
        self._end = self._state()
        self._start = self._sequence(tree, self._end, tree.state.flags)

    def search(self, text: str) -> bool:
        """Whether the pattern is found anywhere in `text`. InvalidError if it takes too long."""
        current: set[int] = set()
        steps = 0
        for index in range(len(text) + 1):
            current = self._reach({*current, self._start}, text, index)
            steps = self._count(steps + len(current))
            if self._end in current:
                return True
            if index < len(text):
                current = self._step(current, text[index])
        return False

    def every(self, text: str) -> Iterator[Places]:
        """The matches from left to right, without overlap. InvalidError if it takes too long."""
        place, last, steps = 0, -1, 0
        while place <= len(text):
            found, steps = self._first(text, place, steps)
            if found is None:
                return
            is_empty = found[0] == found[1]
            if not is_empty or found[0] != last:  # As Go: no empty match beside another.
                yield found
            last = found[1]
            place = found[1] + 1 if is_empty else found[1]

    def _first(self, text: str, start: int, steps: int) -> tuple[Places | None, int]:
        """The first match from `start` on; of several at one place the preferred, as Perl."""
        found: Places | None = None
        threads: list[tuple[int, Places]] = []
        for index in range(start, len(text) + 1):
            if found is None:
                threads.append((self._start, {0: index}))
            reached = self._ordered(threads, text, index)
            steps = self._count(steps + len(reached))
            threads = []
            for state, places in reached:
                accepts = self._accepts[state]
                if accepts is None:
                    found = {**places, 1: index}
                    break  # Those that follow are less preferred.
                if index < len(text) and accepts(text[index]):
                    threads.append((self._next[state][0], places))
            if not threads and found is not None:
                break
        return found, steps

    def _ordered(
        self, threads: list[tuple[int, Places]], text: str, index: int
    ) -> list[tuple[int, Places]]:
        """The states that want a character, and the end, in the order of preference."""
        reached, seen = [], set()
        waiting = threads[::-1]
        while waiting:
            state, places = waiting.pop()
            if state in seen:
                continue
            seen.add(state)
            if state == self._end or self._accepts[state] is not None:
                reached.append((state, places))
                continue
            holds, slot = self._holds[state], self._saves[state]
            if holds and not holds(text, index):
                continue
            if slot is not None:
                places = {**places, slot: index}
            waiting += [(each, places) for each in reversed(self._next[state])]
        return reached

    def _count(self, steps: int) -> int:
        if steps > _STEP_LIMIT:
            allowed = "a simpler pattern or a shorter text"
            raise InvalidError(
                f"{self._text!r} takes too long; allowed: {allowed}", allowed=allowed
            )
        return steps

    def _step(self, current: Iterable[int], character: str) -> set[int]:
        after: set[int] = set()
        for state in current:
            accepts = self._accepts[state]
            if accepts is not None and accepts(character):
                after.update(self._next[state])
        return after

    def _reach(self, states: set[int], text: str, index: int) -> set[int]:
        """All states that can be had from `states` without another character."""
        found, waiting = set(states), list(states)
        while waiting:
            state = waiting.pop()
            holds = self._holds[state]
            if self._accepts[state] is not None or (holds and not holds(text, index)):
                continue
            for following in self._next[state]:
                if following not in found:
                    found.add(following)
                    waiting.append(following)
        return found

    def _state(
        self,
        *following: int,
        accepts: Accepts | None = None,
        holds: Holds | None = None,
        saves: int | None = None,
    ) -> int:
        if len(self._next) >= _STATE_LIMIT:
            raise ValueError("it is too long")
        self._accepts.append(accepts)
        self._holds.append(holds)
        self._saves.append(saves)
        self._next.append(list(following))
        return len(self._next) - 1

    def _sequence(self, items: Any, following: int, flags: int) -> int:
        for item in reversed(list(items)):
            following = self._item(item, following, flags)
        return following

    def _item(self, item: Any, following: int, flags: int) -> int:
        kind, argument = item
        if kind is words.SUBPATTERN:
            number, added, removed, inner = argument
            inner_flags = (flags | added) & ~removed
            if number is None:
                return self._sequence(inner, following, inner_flags)
            end = self._state(following, saves=2 * number + 1)
            first = self._sequence(inner, end, inner_flags)
            # A group of nothing has no place, so that repeating it is seen to be nothing too.
            return following if first == end else self._state(first, saves=2 * number)
        if kind is words.BRANCH:
            return self._state(*(self._sequence(each, following, flags) for each in argument[1]))
        if kind in (words.MAX_REPEAT, words.MIN_REPEAT):
            return self._repeat(argument, following, flags, greedy=kind is words.MAX_REPEAT)
        if kind is words.AT:
            return self._state(following, holds=_place(argument, flags))
        return self._state(following, accepts=_character(kind, argument, flags))

    def _repeat(self, argument: Any, following: int, flags: int, *, greedy: bool) -> int:
        least, most, inner = argument
        is_endless = most is words.MAXREPEAT
        if least > _REPEAT_LIMIT or (not is_endless and most > _REPEAT_LIMIT):
            raise ValueError(f"it repeats more than {_REPEAT_LIMIT} times")

        def ways(again: int) -> list[int]:
            return [again, following] if greedy else [following, again]

        first = following
        if is_endless:
            first = self._state()
            self._next[first] = ways(self._sequence(inner, first, flags))
        else:
            for _ in range(most - least):
                first = self._state(*ways(self._sequence(inner, first, flags)))
        for _ in range(least):
            before, first = first, self._sequence(inner, first, flags)
            if first == before:
                break  # It is empty, however often; a thousand times a thousand takes long.
        return first


@functools.lru_cache(maxsize=1024)
def _built(text: str) -> Pattern:
    return Pattern(text, parser.parse(_translated(text), re.ASCII))


def compiled(text: str, path: str) -> Pattern:
    """The pattern of `text`. InvalidError with `path` if it is none."""
    try:
        return _built(text)
    except (re.error, ValueError, RecursionError, OverflowError) as error:
        allowed = "a regular expression (RE2)"
        raise InvalidError(
            f"{path}: {text!r} is not valid: {error}; allowed: {allowed}",
            field=path,
            allowed=allowed,
        ) from error


@functools.lru_cache(maxsize=4096)
def _fits(pattern: Pattern, value: str) -> bool:
    return pattern.search(value)


def fits(text: str, value: str, path: str) -> bool:
    """Whether a pattern is found in a value of a node. InvalidError with `path` if it is none.

    Nodes and their devices have few different values, so short ones are remembered.
    """
    pattern = compiled(text, path)
    return _fits(pattern, value) if len(value) <= _SHORT else pattern.search(value)


def _translated(text: str) -> str:
    """Spell what RE2 and Python spell differently."""
    text = re.sub(r"\[:(\w+):\]", lambda found: _POSIX.get(found[1], found[0]), text)
    return re.sub(r"(?<!\\)((?:\\\\)*)\\z", r"\1\\Z", text)


def _place(kind: Any, flags: int) -> Holds:
    lines = bool(flags & re.MULTILINE)
    if kind is words.AT_BEGINNING:
        return lambda text, at: at == 0 or (lines and text[at - 1] == "\n")
    if kind is words.AT_BEGINNING_STRING:
        return lambda text, at: at == 0
    if kind is words.AT_END:  # Unlike Python's, RE2's `$` is not before a last line feed.
        return lambda text, at: at == len(text) or (lines and text[at] == "\n")
    if kind is words.AT_END_STRING:
        return lambda text, at: at == len(text)
    wanted = kind is words.AT_BOUNDARY
    return lambda text, at: (_is_word(text[at - 1 : at]) != _is_word(text[at : at + 1])) is wanted


def _is_word(character: str) -> bool:
    return character == "_" or (character.isascii() and character.isalnum())


def _character(kind: Any, argument: Any, flags: int) -> Accepts:
    folds = bool(flags & re.IGNORECASE)
    if kind is words.ANY:
        return lambda found: bool(flags & re.DOTALL) or found != "\n"
    if kind is words.NOT_LITERAL:
        return lambda found: not _literal(argument, folds)(found)
    if kind is words.IN:
        return _one_of(argument, folds)
    if kind is words.LITERAL:
        return _literal(argument, folds)
    raise ValueError(f"{str(kind).lower()} is not supported")


def _literal(code: int, folds: bool) -> Accepts:
    wanted = chr(code)
    if not folds:
        return lambda found: found == wanted
    return lambda found: found.casefold() == wanted.casefold()


def _one_of(items: Any, folds: bool) -> Accepts:
    is_negated = bool(items) and items[0][0] is words.NEGATE
    tests = [_member(*item) for item in items if item[0] is not words.NEGATE]

    def accepts(found: str) -> bool:
        forms = {found, found.lower(), found.upper()} if folds else {found}
        return any(test(each) for test in tests for each in forms) is not is_negated

    return accepts


def _member(kind: Any, argument: Any) -> Accepts:
    if kind is words.RANGE:
        low, high = argument
        return lambda found: len(found) == 1 and low <= ord(found) <= high
    if kind is words.CATEGORY:
        name = str(argument).removeprefix("CATEGORY_")
        is_negated, name = name.startswith("NOT_"), name.removeprefix("NOT_")
        test: Accepts = {
            "DIGIT": lambda found: found.isascii() and unicodedata.category(found) == "Nd",
            "SPACE": lambda found: found in "\t\n\f\r ",
            "WORD": _is_word,
        }[name]
        return lambda found: test(found) is not is_negated
    return _literal(argument, folds=False)
