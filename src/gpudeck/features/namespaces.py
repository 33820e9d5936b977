# SPDX-License-Identifier: Apache-2.0
"""Which namespaces an administrator selects by their labels. Pure.

`configuring` reads the selector of nfd-master.conf, `master` asks it of each NodeFeature.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gpudeck.pluginconfig.fields import Field

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class Requirement(msgspec.Struct, frozen=True):
    """One requirement on a label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


def selector(field: Field) -> tuple[Requirement, ...] | None:
    """Read a label selector as everywhere in Kubernetes; None for an empty one."""
    parts = field.mapping("matchLabels", "matchExpressions")
    found = []
    if "matchLabels" in parts:
        values = parts["matchLabels"].value
        if not isinstance(values, dict) or not all(
            isinstance(each, str) for each in values.values()
        ):
            raise parts["matchLabels"].refuse("labels with their values, as texts")
        found += [Requirement(key, "In", (value,)) for key, value in values.items()]
    if "matchExpressions" in parts:
        found += map(_requirement, parts["matchExpressions"].items("a list of requirements"))
    return tuple(found) or None


def fulfils(labels: Mapping[str, str], requirements: Iterable[Requirement]) -> bool:
    """Whether all requirements hold; as in Kubernetes, NotIn holds of a label that is not there."""
    return all(_holds(labels.get(each.key), each) for each in requirements)


def _holds(value: str | None, wanted: Requirement) -> bool:
    match wanted.operator:
        case "In":
            return value in wanted.values
        case "NotIn":
            return value not in wanted.values
        case "Exists":
            return value is not None
        case _:
            return value is None


def _requirement(field: Field) -> Requirement:
    parts = field.mapping("key", "operator", "values")
    operator = parts.get("operator")
    if "key" not in parts or operator is None:
        raise field.refuse("key and operator")
    if operator.value not in _OPERATORS:
        raise operator.refuse(", ".join(_OPERATORS))
    values = tuple(
        each.text() for each in (parts["values"].items("a list") if "values" in parts else ())
    )
    if (operator.value in ("In", "NotIn")) is not bool(values):
        raise field.refuse("values with In and NotIn, and none with the others")
    return Requirement(parts["key"].text(), operator.value, values)
