# SPDX-License-Identifier: Apache-2.0
"""Functions of Sprig on numbers, which node-feature-discovery offers from v0.18 on.

What is no number is 0, as there; a result of more than 64 bits is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gpudeck.features.templates.values import shown

_MOST = 10_000
"""Numbers that until and seq make at most."""


def whole(value: Any) -> int:
    """The whole number of a value; 0 if it is none."""
    if isinstance(value, bool | int):
        return int(value)
    try:
        return int(value) if isinstance(value, float) else int(str(value), 0)
    except (ValueError, OverflowError):
        return 0


def real(value: Any) -> float:
    """The number of a value; 0 if it is none."""
    try:
        return float(value) if isinstance(value, int | float) else float(shown(value))
    except (ValueError, OverflowError):
        return 0.0


def _fitting(number: int) -> int:
    if abs(number) >= 1 << 63:
        raise ValueError("the result has more than 64 bits")
    return number


def _divided(first: Any, second: Any) -> int:
    low = whole(second)
    if low == 0:
        raise ValueError("division by zero")
    quotient = abs(whole(first)) // abs(low)  # Towards zero, as Go divides.
    return quotient if (whole(first) < 0) == (low < 0) else -quotient


def _product(*values: Any) -> int:
    total = 1
    for each in values:
        total = _fitting(total * whole(each))
    return total


def _real_product(*values: Any) -> float:
    return float(math.prod(map(real, values)))


def _real_quotient(first: Any, *others: Any) -> float:
    total = real(first)
    for each in others:
        if real(each) == 0:
            raise ValueError("division by zero")
        total /= real(each)
    return total


def _rounded(value: Any, places: Any, half: Any = 0.5) -> float:
    scale = float(10 ** min(max(whole(places), 0), 15))
    scaled = real(value) * scale
    is_up = scaled - math.floor(scaled) >= real(half)
    return (math.ceil(scaled) if is_up else math.floor(scaled)) / scale


def _counted(begin: int, end: int, step: int) -> list[int]:
    numbers = range(begin, end, step) if step else range(0)
    if len(numbers) > _MOST:
        raise ValueError(f"more than {_MOST} numbers")
    return list(numbers)


def _sequence(*bounds: Any) -> str:
    """As the program seq: the end; the beginning and the end; or with the step between."""
    if not 1 <= len(bounds) <= 3:
        raise ValueError("seq takes one, two or three numbers")
    numbers = [whole(each) for each in bounds]
    begin = numbers[0] if len(numbers) > 1 else 1
    end = numbers[-1]
    step = numbers[1] if len(numbers) == 3 else (1 if end >= begin else -1)
    return " ".join(map(str, _counted(begin, end + (1 if step > 0 else -1), step)))


def _decimal(value: Any) -> int:
    text = shown(value)
    return int(text) if text.removeprefix("-").isdecimal() else 0


def _octal(value: Any) -> int:
    try:
        return int(shown(value), 8)
    except ValueError:
        return 0


CALLABLE: dict[str, Callable[..., Any]] = {
    "add": lambda *values: _fitting(sum(map(whole, values))),
    "add1": lambda value: _fitting(whole(value) + 1),
    "addf": lambda *values: sum(map(real, values)),
    "atoi": _decimal,
    "ceil": lambda value: float(math.ceil(real(value))),
    "div": _divided,
    "divf": _real_quotient,
    "float64": real,
    "floor": lambda value: float(math.floor(real(value))),
    "int": whole,
    "int64": whole,
    "max": lambda *values: max(map(whole, values)),
    "maxf": lambda *values: max(map(real, values)),
    "min": lambda *values: min(map(whole, values)),
    "minf": lambda *values: min(map(real, values)),
    "mod": lambda first, second: whole(first) - whole(second) * _divided(first, second),
    "mul": _product,
    "mulf": _real_product,
    "round": _rounded,
    "seq": _sequence,
    "sub": lambda first, second: _fitting(whole(first) - whole(second)),
    "subf": lambda first, *others: real(first) - sum(map(real, others)),
    "toDecimal": _octal,
    "until": lambda count: _counted(0, whole(count), 1 if whole(count) >= 0 else -1),
    "untilStep": lambda begin, end, step: _counted(whole(begin), whole(end), whole(step)),
}
