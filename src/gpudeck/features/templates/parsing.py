# SPDX-License-Identifier: Apache-2.0
"""Make the tree of a template; `features.templates` calls it and says what is understood."""

from __future__ import annotations

from gpudeck.features.templates import functions, lexing, tree
from gpudeck.features.templates.lexing import Token
from gpudeck.features.templates.tree import TemplateError

_BRANCHES = ("if", "range", "with")
_LITERALS = {"true": True, "false": False, "nil": None}
_DEEPEST = 50
_LONGEST = 64 * 1024


def parse(text: str) -> tree.Program:
    """Return a template and those that it defines. TemplateError if it cannot be read."""
    if len(text) > _LONGEST:
        raise TemplateError(1, f"a template of more than {_LONGEST} characters")
    reader = _Reader(lexing.tokens(text))
    nodes, end = reader.nodes(loops=0, depth=0)
    if end.kind != lexing.END:
        raise TemplateError(end.line, f"{end.value} without a beginning")
    for call in reader.calls:
        if call.name not in reader.named:
            known = ", ".join(map(repr, reader.named)) or "none"
            raise TemplateError(call.line, f"there is no template {call.name!r}; defined: {known}")
    return tree.Program(nodes, reader.named)


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._place = 0
        self.named: dict[str, tuple[tree.Node, ...]] = {}
        self.calls: list[tree.Call] = []

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
            elif self._is_next(lexing.WORD, "define"):
                self._define(depth)
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
        if token.kind == lexing.WORD and token.value in ("template", "block"):
            self._take()
            return self._call(token, depth=depth)
        pipeline = self._pipeline(lexing.CLOSE, depth=depth)
        return tree.Action(pipeline)

    def _define(self, depth: int) -> None:
        word = self._take()
        if depth:
            raise TemplateError(word.line, "define inside of another action")
        name = self._take(lexing.STRING).value
        self._take(lexing.CLOSE)
        self._add(name, self._body(word, depth=1), word.line)

    def _call(self, word: Token, *, depth: int) -> tree.Call:
        """Read `template`, or `block`, which defines what it calls."""
        name = self._take(lexing.STRING).value
        pipeline = None
        if word.value == "template" and self._is_next(lexing.CLOSE):
            self._take()
        else:
            pipeline = self._pipeline(lexing.CLOSE, depth=depth)
        if word.value == "block":
            self._add(name, self._body(word, depth=depth + 1), word.line)
        self.calls.append(tree.Call(name, pipeline, word.line))
        return self.calls[-1]

    def _body(self, word: Token, *, depth: int) -> tuple[tree.Node, ...]:
        if depth > _DEEPEST:
            raise TemplateError(word.line, f"more than {_DEEPEST} levels")
        body, end = self.nodes(loops=0, depth=depth)
        if end.kind != lexing.WORD or end.value != "end":
            raise TemplateError(word.line, f"{word.value} without an end")
        self._take(lexing.CLOSE)
        return body

    def _add(self, name: str, body: tuple[tree.Node, ...], line: int) -> None:
        """Keep a template. As Go: an empty one replaces none, two others may not share a name."""
        if not _is_empty(body) and not _is_empty(self.named.get(name, ())):
            raise TemplateError(line, f"the template {name!r} is defined twice")
        if name not in self.named or not _is_empty(body):
            self.named[name] = body

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
            what = token.value or token.kind
            raise TemplateError(token.line, f"{what!r} is not known here{functions.why(what)}")
        return found


def _is_empty(nodes: tuple[tree.Node, ...]) -> bool:
    return all(isinstance(each, tree.Text) and not each.text.strip() for each in nodes)


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
            found = tree.Literal(_number(token))
        case lexing.WORD if token.value in _LITERALS:
            found = tree.Literal(_LITERALS[token.value])
        case lexing.WORD if token.value in functions.KNOWN:
            found = tree.Function(token.value)
        case lexing.SIGN if token.value == ".":
            found = tree.Dot()
    return found


def _number(token: Token) -> int | float:
    try:
        return _read(token.value.lower().replace("_", ""))
    except ValueError as error:
        raise TemplateError(token.line, f"{token.value[:40]!r} is no number") from error


def _read(digits: str) -> int | float:
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    for start, base in (("0x", 16), ("0o", 8), ("0b", 2)):
        if digits.startswith(start):
            return sign * int(digits.removeprefix(start), base)
    return sign * (float(digits) if set(digits) & set(".e") else int(digits))
