# SPDX-License-Identifier: Apache-2.0
"""Run the tree of a template on a value, in bounded time; `features.templates` calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpudeck.features.rules import effort
from gpudeck.features.templates import functions, tree, values
from gpudeck.features.templates.tree import TemplateError

_ROUNDS = 10_000
_BYTES = 64 * 1024
_DEEPEST = 20
_LEVELS = 200
_WALK = 4
"""Steps of going into a part of a template."""
_STEP_CHARACTERS = 256
"""Characters of text that a function goes through in the time of a step."""


class _Break(Exception):  # noqa: N818 (a way out of a loop, not an error)
    pass


class _Continue(Exception):  # noqa: N818 (a way out of a round, not an error)
    pass


def run(program: tree.Program, value: Any) -> str:
    """Return the text. TemplateError for a name that is not there and the like."""
    runner = _Runner(program.named, value)
    runner.walk(program.nodes, value)
    return "".join(runner.pieces)


class _Runner:
    def __init__(self, named: Mapping[str, Sequence[tree.Node]], value: Any) -> None:
        self.pieces: list[str] = []
        self._named = named
        self._depth = 0
        self._levels = 0
        self._length = 0
        self._rounds = 0
        self._variables: list[tuple[str, Any]] = [("", value)]

    def walk(self, nodes: Sequence[tree.Node], dot: Any) -> None:
        self._levels += 1
        try:
            self._walk(nodes, dot)
        finally:
            self._levels -= 1

    def _walk(self, nodes: Sequence[tree.Node], dot: Any) -> None:
        effort.spend(_WALK + len(nodes))
        for node in nodes:
            match node:
                case tree.Text():
                    self._write(node.text, 0)
                case tree.Action():
                    value = self._pipeline(node.pipeline, dot)
                    if not node.pipeline.variables:
                        self._write(values.shown(value), node.pipeline.line)
                case tree.Leave():
                    raise _Break if node.kind == "break" else _Continue
                case tree.Call():
                    self._call(node, dot)
                case tree.Branch():
                    known = len(self._variables)
                    try:
                        self._branch(node, dot)
                    finally:
                        del self._variables[known:]

    def _call(self, call: tree.Call, dot: Any) -> None:
        """Run a named template, which sees its own value and none of the caller's variables."""
        value = self._pipeline(call.pipeline, dot) if call.pipeline is not None else None
        if self._depth >= _DEEPEST:
            raise TemplateError(call.line, f"templates call each other over {_DEEPEST} times")
        outer, self._variables = self._variables, [("", value)]
        self._depth += 1
        try:
            self.walk(self._named[call.name], value)
        finally:
            self._depth -= 1
            self._variables = outer

    def _write(self, text: str, line: int) -> None:
        self._length += len(text)
        if self._length > _BYTES:
            raise TemplateError(line, f"the text is longer than {_BYTES} characters")
        self.pieces.append(text)

    def _branch(self, node: tree.Branch, dot: Any) -> None:
        if self._levels > _LEVELS:
            line = node.pipeline.line
            raise TemplateError(line, f"actions stand in each other over {_LEVELS} times")
        if node.kind == "range":
            self._range(node, dot)
            return
        value = self._pipeline(node.pipeline, dot)
        inner = value if node.kind == "with" else dot
        if values.is_true(value):
            self.walk(node.body, inner)
        else:
            self.walk(node.otherwise, dot)

    def _range(self, node: tree.Branch, dot: Any) -> None:
        pipeline = node.pipeline
        value = self._commands(pipeline, dot)
        known, count = len(self._variables), 0
        for key, element in _elements(value, pipeline.line):
            count += 1
            self._rounds += 1
            if self._rounds > _ROUNDS:
                raise TemplateError(pipeline.line, f"it loops more than {_ROUNDS} times")
            self._loop_variables(pipeline, key, element)
            try:
                self.walk(node.body, element)
            except _Continue:
                pass
            except _Break:
                break
            finally:
                if pipeline.is_declaration:
                    del self._variables[known:]
        if not count:
            self.walk(node.otherwise, dot)

    def _loop_variables(self, pipeline: tree.Pipeline, key: Any, element: Any) -> None:
        names = pipeline.variables
        given = (key, element) if len(names) == 2 else (element,)
        for name, value in zip(names, given, strict=False):
            self._set(name, value, declares=pipeline.is_declaration, line=pipeline.line)

    def _set(self, name: str, value: Any, *, declares: bool, line: int) -> None:
        if declares:
            self._variables.append((name, value))
            return
        for index in range(len(self._variables) - 1, -1, -1):
            if self._variables[index][0] == name:
                self._variables[index] = (name, value)
                return
        raise TemplateError(line, f"there is no variable ${name}")

    def _pipeline(self, pipeline: tree.Pipeline, dot: Any) -> Any:
        value = self._commands(pipeline, dot)
        if len(pipeline.variables) > 1:
            raise TemplateError(pipeline.line, "two variables are for range only")
        for name in pipeline.variables:
            self._set(name, value, declares=pipeline.is_declaration, line=pipeline.line)
        return value

    def _commands(self, pipeline: tree.Pipeline, dot: Any) -> Any:
        carried: tuple[Any, ...] = ()
        for command in pipeline.commands:
            carried = (self._command(command, dot, carried),)
        return carried[0]

    def _command(self, command: tree.Command, dot: Any, carried: tuple[Any, ...]) -> Any:
        first, *rest = command.operands
        if not isinstance(first, tree.Function):
            return self._operand(first, dot, command.line)
        if first.name in ("and", "or"):
            return self._logic(first.name, command, dot, carried)
        given = [self._operand(each, dot, command.line) for each in rest]
        effort.spend(1 + sum(map(_weight, (*given, *carried))))
        try:
            result = functions.CALLABLE[first.name](*given, *carried)
        except TypeError as error:
            raise TemplateError(command.line, f"{first.name} takes other values") from error
        except ArithmeticError as error:
            raise TemplateError(command.line, f"{first.name}: {error}") from error
        except ValueError as error:
            raise TemplateError(command.line, str(error)) from error
        effort.spend(_weight(result))
        if isinstance(result, str) and len(result) > _BYTES:
            raise TemplateError(command.line, f"{first.name} makes more than {_BYTES} characters")
        return result

    def _logic(self, name: str, command: tree.Command, dot: Any, carried: tuple[Any, ...]) -> Any:
        """The first value that settles it, else the last; later operands are not looked at."""
        if len(command.operands) + len(carried) < 2:
            raise TemplateError(command.line, f"{name} takes a value or more")
        value: Any = None
        for operand in command.operands[1:]:
            value = self._operand(operand, dot, command.line)
            if values.is_true(value) is (name == "or"):
                return value
        return carried[0] if carried else value

    def _operand(self, operand: tree.Operand, dot: Any, line: int) -> Any:
        match operand:
            case tree.Literal():
                return operand.value
            case tree.Dot():
                return dot
            case tree.Variable():
                return self._variable(operand.name, line)
            case tree.Pipeline():
                return self._pipeline(operand, dot)
            case tree.Function():
                return self._command(tree.Command((operand,), line), dot, ())
            case tree.Chain():
                value = self._operand(operand.base, dot, line)
                for name in operand.fields:
                    value = _field(value, name, line)
                return value

    def _variable(self, name: str, line: int) -> Any:
        for known, value in reversed(self._variables):
            if known == name:
                return value
        raise TemplateError(line, f"there is no variable ${name}")


def _weight(value: Any) -> int:
    if isinstance(value, str):
        return len(value) // _STEP_CHARACTERS
    return len(value) if isinstance(value, list | dict) else 0


def _field(value: Any, name: str, line: int) -> Any:
    if not isinstance(value, dict):
        raise TemplateError(line, f"{values.shown(value)[:40]!r} has no field {name}")
    if name not in value:
        known = ", ".join(sorted(value)[:10]) or "none"
        raise TemplateError(line, f"there is no {name}; the names are {known}")
    return value[name]


def _elements(value: Any, line: int) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from sorted(value.items())
    elif isinstance(value, list):
        yield from enumerate(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from ((each, each) for each in range(value))
    elif value is not None:
        raise TemplateError(line, f"range over {values.shown(value)[:40]!r}")
