# SPDX-License-Identifier: Apache-2.0
"""Whether one expression of a NodeFeatureRule holds for a name or a value. Pure.

The operators mean what they mean in node-feature-discovery v0.19: one on a value that is
not there is false, but for DoesNotExist. An expression that makes no sense raises
InvalidError with its path; a value of a node that is no number is merely not matched,
since the node is not to blame for the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from gpudeck import errors
from gpudeck.api.nodefeatures import OPERATORS, VALUE_TYPES, Expression
from gpudeck.features.rules import patterns

Ordered = tuple[int, ...]
Predicate = Callable[[str | None], bool]
"""Whether something holds for a value; None is a value that is not there."""
_VERSION = re.compile(r"v?([0-9]+(?:\.[0-9]+)*)(?:[-+~_.][0-9A-Za-z.+~_-]*)?")
_LONGEST_VERSION = 256
"""Characters: to see that a text is none takes the square of its length."""
_COMPARE: dict[str, Callable[[Ordered, Sequence[Ordered]], bool]] = {
    "Gt": lambda found, given: found > given[0],
    "Ge": lambda found, given: found >= given[0],
    "Lt": lambda found, given: found < given[0],
    "Le": lambda found, given: found <= given[0],
    "GtLt": lambda found, given: given[0] < found < given[1],
    "GeLe": lambda found, given: given[0] <= found <= given[1],
}
_COUNTS = {**dict.fromkeys(_COMPARE, 1), "GtLt": 2, "GeLe": 2}
PRESENCE = ("", "Exists", "DoesNotExist")
"""Operators that ask whether something is there."""
_ALONE = (*PRESENCE, "IsTrue", "IsFalse")


def check(expression: Expression, path: str) -> None:
    """Return if the expression makes sense. InvalidError with its path says why not."""
    op, given = expression.op, expression.value or []
    if op and op not in OPERATORS:
        _refuse(f"{path}.op", op, "one of " + ", ".join(OPERATORS))
    if op in _COMPARE:
        _check_order(expression, path)
    elif op in _ALONE:
        if given:
            _refuse(f"{path}.value", given, f"none, with {op or 'an empty op'}")
    elif not given:
        _refuse(f"{path}.value", given, f"one value or more, with {op}")
    elif op == "InRegexp":
        for each in given:
            patterns.compiled(each, f"{path}.value")


def predicate(expression: Expression, path: str) -> Predicate:
    """What says whether the expression holds for a value. InvalidError as `check`.

    It is made once and asked often: of every name of a feature, or every device.
    """
    check(expression, path)
    op, given = expression.op, expression.value or []
    if op in PRESENCE:
        return lambda value: _of_presence(op, value is not None)
    if op in ("IsTrue", "IsFalse"):
        wanted = "true" if op == "IsTrue" else "false"
        return lambda value: value == wanted
    if op in _COMPARE:
        return _ordered(expression)
    if op == "InRegexp":
        compiled = [patterns.compiled(each, f"{path}.value") for each in given]
        return lambda value: value is not None and any(each.search(value) for each in compiled)
    values = frozenset(given)
    return lambda value: value is not None and (value in values) is (op == "In")


def of_flag(expression: Expression, is_there: bool) -> bool:
    """Whether it holds for a flag, which has no value: what asks for one is false of it."""
    return _of_presence(expression.op, is_there)


def _of_presence(op: str, is_there: bool) -> bool:
    return {"": True, "Exists": is_there, "DoesNotExist": not is_there}.get(op, False)


def _ordered(expression: Expression) -> Predicate:
    read, compare = _reader(expression), _COMPARE[expression.op]
    bounds = [read(each) or () for each in expression.value or ()]

    def holds(value: str | None) -> bool:
        found = read(value) if value is not None else None
        return found is not None and compare(found, bounds)

    return holds


def _reader(expression: Expression) -> Callable[[str], Ordered | None]:
    return _version if expression.type == "version" else _number


def _check_order(expression: Expression, path: str) -> None:
    op, given = expression.op, expression.value or []
    if len(given) != _COUNTS[op]:
        wanted = "one value" if _COUNTS[op] == 1 else "two values"
        _refuse(f"{path}.value", given, f"{wanted}, with {op}")
    if (expression.type or "") not in VALUE_TYPES:
        _refuse(f"{path}.type", expression.type or "", "version, or none for whole numbers")
    numbers = [_reader(expression)(each) for each in given]
    known = [each for each in numbers if each is not None]
    if len(known) != len(numbers):
        kind = "versions" if expression.type == "version" else "whole numbers"
        _refuse(f"{path}.value", given, kind)
    if op == "GtLt" and known[0] >= known[1]:
        _refuse(f"{path}.value", given, "the lower one first, with GtLt")


def _number(text: str) -> Ordered | None:
    return (int(text),) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None


def _version(text: str) -> Ordered | None:
    """The numbers of a dotted version without zeros at the end: 5.10 and 5.10.0 are equal."""
    found = _VERSION.fullmatch(text.strip()) if len(text) <= _LONGEST_VERSION else None
    if found is None:
        return None
    numbers = [int(each[:18]) for each in found[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _refuse(field: str, value: object, allowed: str) -> None:
    raise errors.not_valid(field, value, allowed)
