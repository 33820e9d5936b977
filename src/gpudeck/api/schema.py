# SPDX-License-Identifier: Apache-2.0
"""What the fields of wire structs mean: descriptions and constraints for `openapi` to write out.

They constrain only what the API server admits: decoding stays lenient, so an
object that an older or newer schema admitted never stops a process.
"""

from __future__ import annotations

from typing import Any

import msgspec


def doc(description: str, **constraints: Any) -> msgspec.Meta:
    """Describe a field; `constraints` are schema keywords, `x_…` becomes `x-kubernetes-…`."""
    extra = {_keyword(name): value for name, value in constraints.items()}
    return msgspec.Meta(description=description, extra_json_schema=extra or None)


def _keyword(name: str) -> str:
    if name.startswith("x_"):
        return "x-kubernetes-" + name.removeprefix("x_").replace("_", "-")
    return name


def rule(expression: str, message: str, **more: str) -> dict[str, str]:
    """Return one entry of `x-kubernetes-validations`; `message` is what the user reads."""
    return {"rule": expression, "message": message, **more}
