# SPDX-License-Identifier: Apache-2.0
"""Make the tree of a template; `features.templates` calls it and says what is understood."""

from __future__ import annotations

from gpudeck.features.templates import functions, lexing, tree
from gpudeck.features.templates.lexing import Token
from gpudeck.features.templates.tree import TemplateError

_BRANCHES = ("if", "range", "with")
_LITERALS = {"true": True, "false": False, "nil": None}
_DEEPEST = 50


def parse(text: str) -> tuple[tree.Node, ...]:
    """Return the nodes of a template. TemplateError if it cannot be read."""
    reader = _Reader(lexing.tokens(text))
    nodes, end = reader.nodes(loops=0, depth=0)
    if end.kind != lexing.END:
        raise TemplateError(end.line, f"{end.value} without a beginning")
    return nodes


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._place = 0

    def _peek(self) -> Token:
        return self._tokens[min(self._place, len(self._tokens) - 1)]

    def _take(self, kind: str = "", value: str = "") -> Token:
        token = self._peek()
        if (kind and token.kind != kind) or (value and token.value != value):
            wanted = value or kind
            raise TemplateError(token.line, f"{token.value or token.kind!r} instead of {wanted}")
        self._place += 1
        return token

    def _is_next(self, kind: str, *values: str) -> bool:
        token = self._peek()
        return token.kind == kind and (not values or token.value in values)

    def nodes(self, *, loops: int, depth: int) -> tuple[tuple[tree.Node, ...], Token]:
        """Read until `end`, `else` or the end of the text, and return that token too."""
        found: list[tree.Node] = []
        while True:
            token = self._take()
            if token.kind == lexing.END:
                return tuple(found), token
            if token.kind == lexing.TEXT:
                found.append(tree.Text(token.value))
            elif self._is_next(lexing.WORD, "end", "else"):
                return tuple(found), self._take()
            else:
                found.append(self._action(loops=loops, depth=depth))

    def _action(self, *, loops: int, depth: int) -> tree.Node:
        token = self._peek()
        if token.kind == lexing.WORD and token.value in _BRANCHES:
            self._take()
            return self._branch(token, loops=loops, depth=depth + 1)
        if token.kind == lexing.WORD and token.value in ("break", "continue"):
            if not loops:
                raise TemplateError(token.line, f"{token.value} outside of a range")
            self._take()
            self._take(lexing.CLOSE)
            return tree.Leave(token.value)
        pipeline = self._pipeline(lexing.CLOSE, depth=depth)
        return tree.Action(pipeline)

    def _branch(self, word: Token, *, loops: int, depth: int) -> tree.Branch:
        if depth > _DEEPEST:
            raise TemplateError(word.line, f"more than {_DEEPEST} levels")
        pipeline = self._pipeline(lexing.CLOSE, depth=depth)
        inner = loops + (word.value == "range")
        body, end = self.nodes(loops=inner, depth=depth)
        otherwise: tuple[tree.Node, ...] = ()
        if end.kind == lexing.WORD and end.value == "else":
            if self._is_next(lexing.WORD, "if", "with"):
                again = self._take()
                return tree.Branch(
                    word.value,
                    pipeline,
                    body,
                    (self._branch(again, loops=loops, depth=depth + 1),),
                )
            self._take(lexing.CLOSE)
            otherwise, end = self.nodes(loops=loops, depth=depth)
        if end.kind != lexing.WORD or end.value != "end":
            raise TemplateError(word.line, f"{word.value} without an end")
        self._take(lexing.CLOSE)
        return tree.Branch(word.value, pipeline, body, otherwise)

    def _pipeline(self, closing: str, *, depth: int) -> tree.Pipeline:
        if depth > _DEEPEST:
            raise TemplateError(self._peek().line, f"more than {_DEEPEST} levels")
        line = self._peek().line
        variables, is_declaration = self._variables()
        commands = [self._command(depth)]
        while self._is_next(lexing.SIGN, "|"):
            self._take()
            commands.append(self._command(depth))
            if not isinstance(commands[-1].operands[0], tree.Function):
                raise TemplateError(line, "only a function can be called with a value")
        if closing == lexing.CLOSE:
            self._take(lexing.CLOSE)
        else:
            self._take(lexing.SIGN, closing)
        return tree.Pipeline(tuple(commands), line, variables, is_declaration)

    def _variables(self) -> tuple[tuple[str, ...], bool]:
        """Read `$x :=`, `$x =` or `$x, $y :=` if that is what comes."""
        start, names = self._place, []
        while self._is_next(lexing.VARIABLE):
            names.append(self._take().value[1:])
            if self._is_next(lexing.SIGN, ":=", "="):
                return tuple(names), self._take().value == ":="
            if len(names) > 1 or not self._is_next(lexing.SIGN, ","):
                break
            self._take()
        self._place = start
        return (), False

    def _command(self, depth: int) -> tree.Command:
        line = self._peek().line
        operands = []
        while not self._is_next(lexing.CLOSE) and not self._is_next(lexing.SIGN, "|", ")"):
            operands.append(self._operand(depth))
        if not operands:
            raise TemplateError(line, "a value is missing")
        if len(operands) > 1 and not isinstance(operands[0], tree.Function):
            raise TemplateError(line, "only a function can be called with values")
        return tree.Command(tuple(operands), line)

    def _operand(self, depth: int) -> tree.Operand:
        base = self._base(depth)
        fields = []
        while self._is_next(lexing.FIELD) and self._peek().is_joined:
            fields.append(self._take().value[1:])
        return tree.Chain(base, tuple(fields)) if fields else base

    def _base(self, depth: int) -> tree.Operand:
        token = self._take()
        if token.kind == lexing.SIGN and token.value == "(":
            return self._pipeline(")", depth=depth + 1)
        found = _simple(token)
        if found is None:
            known = ", ".join(sorted(functions.KNOWN))
            raise TemplateError(
                token.line,
                f"{token.value or token.kind!r} is not known here; the functions are {known}",
            )
        return found


def _simple(token: Token) -> tree.Operand | None:
    """The operand that is one token; None if it is none."""
    found: tree.Operand | None = None
    match token.kind:
        case lexing.FIELD:
            found = tree.Chain(tree.Dot(), (token.value[1:],))
        case lexing.VARIABLE:
            found = tree.Variable(token.value[1:])
        case lexing.STRING:
            found = tree.Literal(token.value)
        case lexing.NUMBER:
            found = tree.Literal(_number(token.value))
        case lexing.WORD if token.value in _LITERALS:
            found = tree.Literal(_LITERALS[token.value])
        case lexing.WORD if token.value in functions.KNOWN:
            found = tree.Function(token.value)
        case lexing.SIGN if token.value == ".":
            found = tree.Dot()
    return found


def _number(text: str) -> int | float:
    if "." in text:
        return float(text)
    is_decimal = "x" not in text.lower()
    return int(text) if is_decimal else int(text, 16)
