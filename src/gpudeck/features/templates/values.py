# SPDX-License-Identifier: Apache-2.0
"""What Go thinks of a template's values: which are true, and how they are written."""

from __future__ import annotations

from typing import Any


def is_true(value: Any) -> bool:
    """Go's truth: not zero, not nil, not empty."""
    return bool(value)


def shown(value: Any) -> str:
    """The text of a value as `%v` has it."""
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{shown(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(shown, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)
