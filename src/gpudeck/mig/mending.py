# SPDX-License-Identifier: Apache-2.0
"""Load YAML as people paste it from web pages: with no-break spaces and a line indented wrongly.

Both happen to the ConfigMap `nvidia-mig-config` as guides print it. Such a text has no
other meaning in YAML (a key cannot stand below a value), so it is read as it was meant
and a note says what was read. Everything else that YAML refuses is refused, and so is a
key that stands twice, of which YAML's readers would silently take the last.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml

from gpudeck.api import documents

_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
"""Blanks that are no blanks to YAML."""
_NOTHING = re.compile("[\u200b-\u200d\u2060\ufeff]")
"""Characters without width."""
_TOO_DEEP = "mapping values are not allowed"
"""PyYAML 6 on a line `key: value` that is deeper than the line `key: value` above it."""
_LINE = re.compile(r"( *)((?:- +)*)[^\s#:][^:]*:( +\S.*)?")


class Loaded(msgspec.Struct, frozen=True):
    document: Any
    notes: tuple[str, ...] = ()
    """What was not as YAML has it, one sentence each."""


def load(text: str, name: str) -> Loaded:
    """Load one document; `name` is what errors and notes call it. Raises InvalidError."""
    plain = _NOTHING.sub("", _SPACES.sub(" ", text))
    notes = []
    if plain != text:
        notes.append(f"{name}: no-break spaces were read as spaces.")
    lines = plain.splitlines()
    while True:
        try:
            return Loaded(documents.load("\n".join(lines) + "\n"), tuple(notes))
        except yaml.YAMLError as error:
            number = _mend(lines, error)
            if number is None:
                raise documents.refused(error, name, reason="InvalidMigConfig") from error
            notes.append(f"{name}: line {number + 1} was read as indented like the one above it.")


def _mend(lines: list[str], error: yaml.YAMLError) -> int | None:
    """Dedent the line that the error is about, if that is what ails it; return its number."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return None
    mark = error.problem_mark
    if mark is None or _TOO_DEEP not in (error.problem or "") or not 0 < mark.line < len(lines):
        return None
    above, line = _LINE.fullmatch(lines[mark.line - 1]), _LINE.fullmatch(lines[mark.line])
    if above is None or line is None or above[3] is None or line[2]:
        return None
    indent = len(above[1]) + len(above[2])
    if len(line[1]) <= indent:
        return None
    lines[mark.line] = " " * indent + lines[mark.line].lstrip(" ")
    return mark.line
