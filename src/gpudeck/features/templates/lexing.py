# SPDX-License-Identifier: Apache-2.0
"""Cut a template into text and the tokens of its actions; `parsing` calls it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from gpudeck.features.templates.tree import TemplateError

TEXT, OPEN, CLOSE, END = "text", "open", "close", "end"
WORD, FIELD, VARIABLE, STRING, NUMBER, SIGN = (
    "word",
    "field",
    "variable",
    "string",
    "number",
    "sign",
)
_TRIMMING = re.compile(r"\{\{-\s")
_COMMENT = re.compile(r"\{\{(?:-\s)?\s*/\*.*?\*/\s*?(?:\s-)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<close>\s+-\}\}|\s*\}\})
    |(?P<space>\s+)
    |(?P<field>\.[A-Za-z_]\w*)
    |(?P<variable>\$\w*)
    |(?P<quoted>"(?:[^"\\\n]|\\.)*"|`[^`]*`)
    |(?P<character>'(?:[^'\\\n]|\\.[^']*)')
    |(?P<number>[+-]?(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+
        |(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?))
    |(?P<word>[A-Za-z_]\w*)
    |(?P<sign>:=|[=|(),.])""",
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True)
class Token:
    kind: str
    value: str
    line: int
    is_joined: bool = False
    """Whether it follows the one before without a blank: `$x.y` is not `$x .y`."""


def tokens(text: str) -> list[Token]:
    """Return all tokens, the last of kind END. TemplateError for what is none."""
    found: list[Token] = []
    place, trims = 0, False
    while True:
        start = text.find("{{", place)
        stretch = text[place:] if start < 0 else text[place:start]
        if trims:
            stretch = stretch.lstrip()
        if start >= 0 and _TRIMMING.match(text, start):
            stretch = stretch.rstrip()
        if stretch:
            found.append(Token(TEXT, stretch, _line(text, place)))
        if start < 0:
            return [*found, Token(END, "", _line(text, len(text)))]
        comment = _COMMENT.match(text, start)
        if comment is not None:
            place, trims = comment.end(), comment[0].endswith("-}}")
            continue
        found.append(Token(OPEN, "", _line(text, start)))
        place, trims = _action(text, start, found)


def _action(text: str, start: int, found: list[Token]) -> tuple[int, bool]:
    """Add the tokens of one action; return where it ends, and whether text after is trimmed."""
    place = start + (3 if _TRIMMING.match(text, start) else 2)
    is_joined = False
    while True:
        token = _TOKEN.match(text, place)
        line = _line(text, place)
        if token is None:
            rest = text[place : place + 10].splitlines()
            what = f"{rest[0]!r} is not understood" if rest else "an action has no }}"
            raise TemplateError(line, what)
        place, kind = token.end(), str(token.lastgroup)
        if kind == "close":
            found.append(Token(CLOSE, "", line))
            return place, token[0].endswith("-}}")
        if kind == "quoted":
            found.append(Token(STRING, _unquoted(token[0], line), line, is_joined))
        elif kind == "character":
            number = str(ord(_unquoted(token[0], line)[0]))
            found.append(Token(NUMBER, number, line, is_joined))
        elif kind != "space":
            found.append(Token(kind, token[0], line, is_joined))
        is_joined = kind != "space"


def _unquoted(text: str, line: int) -> str:
    if text.startswith("`"):
        return text[1:-1]
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError) as error:
        raise TemplateError(line, f"{text} is not a string") from error


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
