# SPDX-License-Identifier: Apache-2.0
"""Label selectors as an administrator writes them, read by field, and what they select. Pure.

The node features select namespaces by one (nfd-master.conf), the controller the nodes of a group
of the chart. Those of GPUClass are the API server's to judge, and are not read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gpudeck.api.fields import Field

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class Requirement(msgspec.Struct, frozen=True):
    """One requirement on a label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


def selector(field: Field) -> tuple[Requirement, ...] | None:
    """Read a label selector as everywhere in Kubernetes; None for an empty one."""
    parts = field.mapping("matchLabels", "matchExpressions")
    found = (
        *parts.read("matchLabels", _labels, ()),
        *parts.read("matchExpressions", _requirements, ()),
    )
    return found or None


def _labels(field: Field) -> tuple[Requirement, ...]:
    values = field.value
    if not isinstance(values, dict) or not all(isinstance(each, str) for each in values.values()):
        raise field.refuse("labels with their values, as texts")
    return tuple(Requirement(key, "In", (value,)) for key, value in values.items())


def _requirements(field: Field) -> tuple[Requirement, ...]:
    return field.each(_requirement, "a list of requirements")


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
    key = parts.need("key", Field.text, "")
    operator = parts.need("operator", _operator, "")
    values = parts.read("values", _values, ())
    if operator and (operator in ("In", "NotIn")) is not bool(values):
        raise field.refuse("values with In and NotIn, and none with the others")
    return Requirement(key, operator, values)


def _operator(field: Field) -> str:
    if field.value not in _OPERATORS:
        raise field.refuse(", ".join(_OPERATORS))
    return str(field.value)


def _values(field: Field) -> tuple[str, ...]:
    return field.each(_value, "a list of texts")


def _value(field: Field) -> str:
    if not isinstance(field.value, str):
        raise field.refuse("a text")
    return field.value
