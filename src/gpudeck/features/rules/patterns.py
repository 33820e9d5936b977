# SPDX-License-Identifier: Apache-2.0
"""Regular expressions of rules, as node-feature-discovery has them (RE2), in linear time.

Python's own matcher needs exponential time for patterns such as `(a+)+$`, and whoever may
write a rule could hold up the master with one. So a pattern is run as a set of states: each
character of the value is looked at once. Which set follows which is remembered, because nodes
have most of their values in common.

`search` says whether a pattern is found, `every` also where, as templates need it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import msgspec

from gpudeck.errors import InvalidError
from gpudeck.features.rules import effort, syntax
from gpudeck.features.rules.characters import Accepts

_STATE_LIMIT = 10_000
_REMEMBERED = 4000
"""Pairs of a set of states and a character whose result is kept."""
_SHOWN = 100
_PLACED = 4
"""Steps of a state that remembers places."""
_STEP_LIMIT = 500_000
"""States times characters of one call: less than a second."""
Holds = Callable[[str, str], bool]
"""Whether a place is between two characters; the end of the text is an empty one."""
Places = dict[int, int]
"""Where a match begins (0) and ends (1), and its group n (2n, 2n + 1) if it is part of it."""


class _Set(msgspec.Struct):
    """Where a search may be after a character, and what follows each next one."""

    states: frozenset[int]
    before: str = ""
    """What places ask of the character: see `_kind`."""
    cost: int = 0
    """States that were looked at to come here."""
    is_match: bool = False
    after: dict[str, _Set] = msgspec.field(default_factory=dict)


class Pattern:
    """A compiled pattern: states that accept a character, hold at a place, or lead on."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._accepts: list[Accepts | None] = []
        self._holds: list[Holds | None] = []
        self._saves: list[int | None] = []
        self._next: list[list[int]] = []
        """The states that follow, the preferred one first."""
        parsed = syntax.parse(text)
        self._groups = parsed.groups
        self._end = self._state()
        self._start = self._node(parsed.tree, self._end)
        self._forget()

    def _forget(self) -> None:
        """Begin to remember anew: a pattern with very many sets of states must not fill memory."""
        self._sets: dict[tuple[frozenset[int], str, int], _Set] = {}
        self._first = _Set(frozenset())
        self._known = 0

    def search(self, text: str) -> bool:
        """Whether the pattern is found anywhere in `text`. InvalidError if it takes too long."""
        held, steps = self._first, 0
        for character in (*text, ""):
            held = held.after.get(character) or self._follow(held, character)
            steps += held.cost
            if held.is_match or steps > _STEP_LIMIT:
                break
        self._spend(steps, steps)
        return held.is_match

    def _follow(self, held: _Set, character: str) -> _Set:
        """Look at one more character, empty at the end; a match may begin at any."""
        reached = self._reach({*held.states, self._start}, held.before, character)
        if self._end in reached:
            following = _Set(frozenset(), cost=len(reached), is_match=True)
        else:
            states = frozenset(
                self._next[state][0]
                for state in reached
                if character and (accepts := self._accepts[state]) and accepts(character)
            )
            key = (states, _kind(character), len(reached))
            following = self._sets.setdefault(key, _Set(*key))
        self._known += 1
        if self._known > _REMEMBERED:
            self._forget()
        held.after[character] = following
        return following

    def group(self, name: str, places: Places) -> tuple[int, int]:
        """Where a group begins and ends, by its name or number; of one that is none, nothing."""
        for number in self._groups.get(name, ()):
            if 2 * number + 1 in places:
                return places[2 * number], places[2 * number + 1]
        return 0, 0

    def every(self, text: str) -> Iterator[Places]:
        """The matches from left to right, without overlap. InvalidError if it takes too long."""
        place, last, steps = 0, -1, 0
        while place <= len(text):
            found, steps = self._first_match(text, place, steps)
            if found is None:
                return
            is_empty = found[0] == found[1]
            if not is_empty or found[0] != last:  # As Go: no empty match beside another.
                yield found
            last = found[1]
            place = found[1] + 1 if is_empty else found[1]

    def _first_match(self, text: str, start: int, steps: int) -> tuple[Places | None, int]:
        """The first match from `start` on; of several at one place the preferred, as Perl."""
        found: Places | None = None
        threads: list[tuple[int, Places]] = []
        for index in range(start, len(text) + 1):
            if found is None:
                threads.append((self._start, {0: index}))
            reached, count = self._ordered(threads, text, index)
            steps += count * _PLACED
            self._spend(count * _PLACED, steps)
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
    ) -> tuple[list[tuple[int, Places]], int]:
        """The states that want a character, and the end, in the order of preference.

        And how many were looked at.
        """
        before, after = text[index - 1 : index] if index else "", text[index : index + 1]
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
            if holds and not holds(before, after):
                continue
            if slot is not None:
                places = {**places, slot: index}
            waiting += [(each, places) for each in reversed(self._next[state])]
        return reached, len(seen)

    def _reach(self, states: set[int], before: str, after: str) -> set[int]:
        """All states that can be had from `states` without another character."""
        found, waiting = states, list(states)
        while waiting:
            state = waiting.pop()
            holds = self._holds[state]
            if self._accepts[state] is not None or (holds and not holds(before, after)):
                continue
            for following in self._next[state]:
                if following not in found:
                    found.add(following)
                    waiting.append(following)
        return found

    def _spend(self, steps: int, total: int) -> None:
        effort.spend(steps)
        if total > _STEP_LIMIT:
            allowed = "a simpler pattern or a shorter text"
            raise InvalidError(
                f"{self._text!r} takes too long; allowed: {allowed}", allowed=allowed
            )

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

    def _node(self, node: syntax.Node, following: int) -> int:
        """Make the states of a part, and return where it begins."""
        match node:
            case syntax.One():
                return self._state(following, accepts=node.accepts)
            case syntax.Place():
                return self._state(following, holds=_PLACES[node.kind])
            case syntax.Group():
                end = self._state(following, saves=2 * node.number + 1)
                return self._state(self._node(node.inner, end), saves=2 * node.number)
            case syntax.Choice():
                return self._state(*(self._node(each, following) for each in node.options))
            case syntax.Repeat():
                return self._repeat(node, following)
            case syntax.Sequence():
                for each in reversed(node.parts):
                    following = self._node(each, following)
        return following

    def _repeat(self, node: syntax.Repeat, following: int) -> int:
        def ways(again: int) -> list[int]:
            return [again, following] if node.is_greedy else [following, again]

        first, copies = following, node.least
        if node.most is None:
            loop = self._state()
            first = self._node(node.inner, loop)
            self._next[loop] = ways(first)
            if copies == 0:  # As Go: if x may be empty, x* is (x+)?, which prefers otherwise.
                return self._state(*ways(first)) if node.inner.may_be_empty else loop
            copies -= 1
        else:
            for _ in range(node.most - node.least):
                first = self._state(*ways(self._node(node.inner, first)))
        for _ in range(copies):
            first = self._node(node.inner, first)
        return first


_built = functools.lru_cache(maxsize=512)(Pattern)


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


def _kind(character: str) -> str:
    """A character for all that places cannot tell from this one."""
    if character in ("", "\n"):
        return character
    return "a" if _is_word(character) else " "


def _is_word(character: str) -> bool:
    return character == "_" or (character.isascii() and character.isalnum())


_PLACES: dict[str, Holds] = {
    "begin": lambda before, _after: not before,
    "end": lambda _before, after: not after,
    "line begin": lambda before, _after: before in ("", "\n"),
    "line end": lambda _before, after: after in ("", "\n"),
    "boundary": lambda before, after: _is_word(before) is not _is_word(after),
    "no boundary": lambda before, after: _is_word(before) is _is_word(after),
}
