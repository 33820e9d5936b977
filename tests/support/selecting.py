# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors on plain dicts, as the API server reads them in queries."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Test = Callable[[dict[str, Any]], bool]
_SET = re.compile(r"^\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*$")


def compile_both(labels: str, fields: str) -> Test:
    """Return whether an object is chosen by both selectors; "" chooses all."""
    tests = [_label(part) for part in _split(labels)] + [_field(part) for part in _split(fields)]
    return lambda value: all(test(value) for test in tests)


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    return [part for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _label(text: str) -> Test:
    match = _SET.match(text)
    if match:
        key, operator, values = match.groups()
        allowed = {value.strip() for value in values.split(",")}
        if operator == "in":
            return lambda value: _labels(value).get(key) in allowed
        return lambda value: _labels(value).get(key) not in allowed
    key, operator, wanted = _equation(text)
    if operator:
        return lambda value: (_labels(value).get(key) == wanted) == (operator != "!=")
    if key.startswith("!"):
        return lambda value: key[1:] not in _labels(value)
    return lambda value: key in _labels(value)


def _field(text: str) -> Test:
    key, operator, wanted = _equation(text)
    return lambda value: (_at(value, key) == wanted) == (operator != "!=")


def _equation(text: str) -> tuple[str, str, str]:
    match = re.match(r"^\s*([^=!\s]+|![^=\s]+)\s*(==|!=|=)?\s*(.*?)\s*$", text)
    if match is None:
        return text.strip(), "", ""
    return match.group(1), match.group(2) or "", match.group(3)


def _labels(value: dict[str, Any]) -> dict[str, str]:
    return value.get("metadata", {}).get("labels") or {}


def _at(value: Any, path: str) -> str:
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return "" if value is None else str(value)
