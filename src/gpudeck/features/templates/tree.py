# SPDX-License-Identifier: Apache-2.0
"""The tree of a template, as `parsing` makes it and `running` walks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class TemplateError(Exception):
    """A template that cannot be read or run; says the line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")


@dataclass(frozen=True)
class Literal:
    value: Any


@dataclass(frozen=True)
class Dot:
    """The value that is looked at now."""


@dataclass(frozen=True)
class Variable:
    """`$` is the one with the empty name: the value that the template was given."""

    name: str


@dataclass(frozen=True)
class Chain:
    """Fields of something, one after another."""

    base: Operand
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Function:
    name: str


@dataclass(frozen=True)
class Command:
    """A value, or a function with what it is called with."""

    operands: tuple[Operand, ...]
    line: int


@dataclass(frozen=True)
class Pipeline:
    """Commands, each called with the result of the one before; variables get the last."""

    commands: tuple[Command, ...]
    line: int
    variables: tuple[str, ...] = ()
    is_declaration: bool = False


Operand = Literal | Dot | Variable | Chain | Function | Pipeline


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Action:
    """A pipeline whose value is written, unless it goes to a variable."""

    pipeline: Pipeline


@dataclass(frozen=True)
class Branch:
    """`if`, `with` or `range`."""

    kind: str
    pipeline: Pipeline
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]


@dataclass(frozen=True)
class Leave:
    """`break` or `continue`."""

    kind: str


@dataclass(frozen=True)
class Call:
    """`template`: the text of a named template for a value, None without a pipeline."""

    name: str
    pipeline: Pipeline | None
    line: int


Node = Text | Action | Branch | Leave | Call


@dataclass(frozen=True)
class Program:
    """A whole template, and those that it defines, by name."""

    nodes: tuple[Node, ...]
    named: Mapping[str, tuple[Node, ...]]
