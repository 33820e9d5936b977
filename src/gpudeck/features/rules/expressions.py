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

from gpudeck.api.nodefeatures import OPERATORS, VALUE_TYPES, Expression
from gpudeck.errors import InvalidError
from gpudeck.features.rules import patterns

Ordered = tuple[int, ...]
_VERSION = re.compile(r"v?([0-9]+(?:\.[0-9]+)*)(?:[-+~_.][0-9A-Za-z.+~_-]*)?")
_COMPARE: dict[str, Callable[[Ordered, Sequence[Ordered]], bool]] = {
    "Gt": lambda found, given: found > given[0],
    "Ge": lambda found, given: found >= given[0],
    "Lt": lambda found, given: found < given[0],
    "Le": lambda found, given: found <= given[0],
    "GtLt": lambda found, given: given[0] < found < given[1],
    "GeLe": lambda found, given: given[0] <= found <= given[1],
}
_COUNTS = {**dict.fromkeys(_COMPARE, 1), "GtLt": 2, "GeLe": 2}
_PRESENCE = ("", "Exists", "DoesNotExist")


def of_name(expression: Expression, is_there: bool, path: str) -> bool:
    """Whether it holds for a flag, which has no value; only presence can be asked for."""
    if expression.op not in _PRESENCE:
        raise InvalidError(
            f"{path}.op: {expression.op!r} is not valid for a feature without values; "
            f"allowed: Exists, DoesNotExist",
            field=f"{path}.op",
            allowed="Exists, DoesNotExist",
        )
    return {"": True, "Exists": is_there, "DoesNotExist": not is_there}[expression.op]


def of_value(expression: Expression, value: str | None, path: str) -> bool:
    """Whether it holds for a value; None is a value that is not there."""
    op = expression.op
    if op in _PRESENCE:
        return of_name(expression, value is not None, path)
    if op not in OPERATORS:
        _refuse(f"{path}.op", op, "one of " + ", ".join(OPERATORS))
    given = expression.value or []
    if op in ("IsTrue", "IsFalse"):
        if given:
            _refuse(f"{path}.value", given, f"none, with {op}")
        return value == ("true" if op == "IsTrue" else "false")
    if op in _COMPARE:
        return _compared(expression, value, path)
    if not given:
        _refuse(f"{path}.value", given, f"one value or more, with {op}")
    if op == "InRegexp":
        compiled = [patterns.compiled(each, f"{path}.value") for each in given]
        return value is not None and any(each.search(value) for each in compiled)
    return value is not None and (value in given) is (op == "In")


def _compared(expression: Expression, value: str | None, path: str) -> bool:
    op, given = expression.op, expression.value or []
    if len(given) != _COUNTS[op]:
        wanted = "one value" if _COUNTS[op] == 1 else "two values"
        _refuse(f"{path}.value", given, f"{wanted}, with {op}")
    if (expression.type or "") not in VALUE_TYPES:
        _refuse(f"{path}.type", expression.type or "", "version, or none for whole numbers")
    is_version = expression.type == "version"
    read = _version if is_version else _number
    numbers = [read(each) for each in given]
    if None in numbers:
        _refuse(f"{path}.value", given, "versions" if is_version else "whole numbers")
    known = [each for each in numbers if each is not None]
    if op == "GtLt" and known[0] >= known[1]:
        _refuse(f"{path}.value", given, "the lower one first, with GtLt")
    found = read(value) if value is not None else None
    return found is not None and _COMPARE[op](found, known)


def _number(text: str) -> Ordered | None:
    return (int(text),) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None


def _version(text: str) -> Ordered | None:
    """The numbers of a dotted version without zeros at the end: 5.10 and 5.10.0 are equal."""
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        return None
    numbers = [int(each[:18]) for each in found[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _refuse(field: str, value: object, allowed: str) -> None:
    raise InvalidError(
        f"{field}: {value!r} is not valid; allowed: {allowed}", field=field, allowed=allowed
    )
