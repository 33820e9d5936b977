# SPDX-License-Identifier: Apache-2.0
"""Functions of Sprig that rules use, which node-feature-discovery offers from v0.18 on.

Those that work on text, lists, numbers and defaults. What they work on comes last, so that
it can be piped in: `.x | trimPrefix "a" | upper`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gpudeck.errors import InvalidError
from gpudeck.features.rules import patterns
from gpudeck.features.templates.values import is_true, shown

_LONGEST = 64 * 1024


def _text(function: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: function(shown(value))


def _texts(function: Callable[[str, str], Any]) -> Callable[[Any, Any], Any]:
    """`first` is what Sprig names first, `value` what is worked on."""
    return lambda first, value: function(shown(value), shown(first))


def _number(value: Any) -> int:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return int(value)
    try:
        return int(str(value), 0)  # As Sprig: what is no number is 0.
    except ValueError:
        return 0


def _divided(first: Any, second: Any) -> int:
    low = _number(second)
    if low == 0:
        raise ValueError("division by zero")
    quotient = abs(_number(first)) // abs(low)  # Towards zero, as Go divides.
    return quotient if (_number(first) < 0) == (low < 0) else -quotient


def _repeat(count: Any, value: Any) -> str:
    text = shown(value)
    if _number(count) * len(text) > _LONGEST:
        raise ValueError(f"repeat makes more than {_LONGEST} characters")
    return text * max(_number(count), 0)


def _truncated(count: Any, value: Any) -> str:
    number = _number(count)
    return shown(value)[:number] if number >= 0 else shown(value)[number:]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{shown(value)} is no list")
    return value


def _end(value: Any, index: int) -> Any:
    found = _list(value)
    return found[index] if found else None


def _unique(value: Any) -> list[Any]:
    kept: list[Any] = []
    for each in _list(value):
        if each not in kept:
            kept.append(each)
    return kept


def _joined(separator: Any, value: Any) -> str:
    found: Iterable[Any] = value if isinstance(value, list) else [value]
    return shown(separator).join(map(shown, found))


def _until(count: Any) -> list[int]:
    if _number(count) > _LONGEST:
        raise ValueError(f"until makes more than {_LONGEST} numbers")
    return list(range(_number(count)))


def _matches(pattern: Any, value: Any) -> bool:
    try:
        return patterns.compiled(shown(pattern), "regexMatch").search(shown(value))
    except InvalidError as error:
        raise ValueError(error.message) from error


def _split(separator: Any, value: Any) -> list[str]:
    if not shown(separator):
        return list(shown(value))
    return shown(value).split(shown(separator))


def _product(*values: Any) -> int:
    total = 1
    for each in values:
        total *= _number(each)
        if abs(total) >= 1 << 63:
            raise ValueError("the product has more than 64 bits")
    return total


def _decimal(value: Any) -> int:
    text = shown(value)
    return int(text) if text.removeprefix("-").isdecimal() else 0


def _made(*values: Any) -> list[Any]:
    """A list; not of lists, lest one that holds itself twice, and so on, is written out."""
    if any(isinstance(each, list) for each in values):
        raise ValueError("list does not take lists")
    return list(values)


CALLABLE: dict[str, Callable[..., Any]] = {
    "add": lambda *values: sum(map(_number, values)),
    "add1": lambda value: _number(value) + 1,
    "atoi": _decimal,
    "coalesce": lambda *values: next((each for each in values if is_true(each)), None),
    "contains": _texts(lambda value, part: part in value),
    "default": lambda other, value=None: value if is_true(value) else other,
    "div": _divided,
    "empty": lambda value: not is_true(value),
    "first": lambda value: _end(value, 0),
    "has": lambda part, value: part in _list(value),
    "hasKey": lambda value, name: isinstance(value, dict) and name in value,
    "hasPrefix": _texts(lambda value, part: value.startswith(part)),
    "hasSuffix": _texts(lambda value, part: value.endswith(part)),
    "int": _number,
    "int64": _number,
    "join": _joined,
    "last": lambda value: _end(value, -1),
    "list": _made,
    "lower": _text(str.lower),
    "max": lambda *values: max(map(_number, values)),
    "min": lambda *values: min(map(_number, values)),
    "mod": lambda first, second: _number(first) - _number(second) * _divided(first, second),
    "mul": _product,
    "nospace": _text(lambda value: "".join(value.split())),
    "regexMatch": _matches,
    "repeat": _repeat,
    "replace": lambda old, new, value: shown(value).replace(shown(old), shown(new)),
    "sortAlpha": lambda value: sorted(map(shown, _list(value))),
    "splitList": _split,
    "sub": lambda first, second: _number(first) - _number(second),
    "ternary": lambda yes, no, value: yes if is_true(value) else no,
    "toString": shown,
    "trim": _text(str.strip),
    "trimAll": _texts(lambda value, part: value.strip(part)),
    "trimPrefix": _texts(lambda value, part: value.removeprefix(part)),
    "trimSuffix": _texts(lambda value, part: value.removesuffix(part)),
    "trunc": _truncated,
    "uniq": _unique,
    "until": _until,
    "upper": _text(str.upper),
}
