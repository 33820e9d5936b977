# SPDX-License-Identifier: Apache-2.0
"""Kubernetes quantities (`80Gi`, `40G`, `1e9`) as whole numbers and back.

Pure. The grammar is that of apimachinery's `resource.Quantity`; a fraction of one
is rounded up as `Quantity.Value` does (Kubernetes 1.37).
"""

from __future__ import annotations

import decimal
import re

from gpudeck.errors import InvalidError

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<power>[+-]?\d{1,3}))?",
    re.ASCII,
)
_LONGEST = 64
MEBIBYTE = 1024 * 1024


def parse(text: str | int, field: str = "quantity") -> int:
    """Return the quantity as a whole number, rounded up. Raises InvalidError naming `field`."""
    if isinstance(text, int):
        return text
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        allowed = "a Kubernetes quantity such as 40G, 80Gi or 1500M"
        raise InvalidError(
            f"{field}: {text!r} is not a quantity; allowed: {allowed}",
            reason="InvalidQuantity",
            field=field,
            allowed=allowed,
        )
    return _rounded_up(match)


def _rounded_up(match: re.Match[str]) -> int:
    suffix, power = match["suffix"] or "", match["power"]
    with decimal.localcontext(prec=1200):
        number = decimal.Decimal(match["number"])
        if suffix in _BINARY:
            number *= 1024 ** _BINARY[suffix]
        else:
            number = number.scaleb(int(power) if power else _DECIMAL[suffix])
        return int(number.to_integral_value(rounding=decimal.ROUND_CEILING))


def render(number: int) -> str:
    """Return `number` with the largest binary suffix that divides it: 85520809984 is `81559Mi`."""
    for suffix, power in reversed(_BINARY.items()):
        if number and number % 1024**power == 0:
            return f"{number // 1024**power}{suffix}"
    return str(number)


def short(value: int) -> str:
    """Return bytes as people say them, with three digits: `9.62 GiB`, `512 MiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value} bytes"
