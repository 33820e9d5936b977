# SPDX-License-Identifier: Apache-2.0
"""Opaque configuration of our driver in a claim's allocation, decoded strictly.

Pure. A typing error in a claim or class must be refused with its path, not ignored;
all errors of a claim are reported at once. Configuration of other drivers is not
looked at. What a checkpoint remembers never comes through here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpudeck.api import labels, resource
from gpudeck.errors import InvalidError

API_VERSION = "resource.gpu.deckhouse.io/v1alpha1"
FIELDS: Mapping[str, frozenset[str]] = {"GpuConfig": frozenset()}
"""The fields of each kind that a whole card knows, besides apiVersion and kind."""

_ROOT = "status.allocation.devices.config"


def check(found: Sequence[resource.AllocatedConfig]) -> None:
    """Raise InvalidError that names every field of our driver's configuration that is wrong."""
    problems = [
        problem
        for index, each in enumerate(found)
        if each.opaque is not None and each.opaque.driver == labels.DRIVER
        for problem in _problems(each.opaque.parameters, f"{_ROOT}[{index}].opaque.parameters")
    ]
    if problems:
        raise InvalidError(
            "; ".join(problem.message for problem in problems),
            reason="InvalidDeviceConfig",
            field=problems[0].field,
            allowed=problems[0].allowed,
        )


def _problems(parameters: object, path: str) -> list[InvalidError]:
    content = _decoded(parameters)
    if not isinstance(content, dict):
        return [_problem(path, content, f"an object with apiVersion {API_VERSION} and a kind")]
    found = []
    if content.get("apiVersion") != API_VERSION:
        found.append(_problem(f"{path}.apiVersion", content.get("apiVersion"), API_VERSION))
    fields = FIELDS.get(str(content.get("kind")))
    if fields is None:
        found.append(_problem(f"{path}.kind", content.get("kind"), ", ".join(FIELDS)))
        return found
    known = {"apiVersion", "kind", *fields}
    allowed = f"only {', '.join(sorted(known))}"
    return found + [
        _problem(f"{path}.{name}", value, allowed, "is not a field of " + content["kind"])
        for name, value in content.items()
        if name not in known
    ]


def _decoded(parameters: object) -> Any:
    if not isinstance(parameters, msgspec.Raw):
        return None
    try:
        return msgspec.json.decode(parameters)
    except msgspec.DecodeError:
        return bytes(parameters).decode(errors="replace")


def _problem(path: str, value: Any, allowed: str, what: str = "is not valid") -> InvalidError:
    text = msgspec.json.encode(value).decode()
    shown = text if len(text) <= 80 else text[:77] + "..."
    return InvalidError(f"{path}: {shown} {what}; allowed: {allowed}", field=path, allowed=allowed)
