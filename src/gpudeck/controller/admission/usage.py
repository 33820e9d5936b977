# SPDX-License-Identifier: Apache-2.0
"""Whether a namespace's labels fit the selector of a GPUClass (meta/v1 LabelSelector). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gpudeck.api.v1alpha1.gpuclass import LabelSelector, SelectorRequirement


def fits(selector: LabelSelector | None, found: Mapping[str, str]) -> bool:
    """Say whether the labels meet every requirement; no selector and an empty one take all."""
    if selector is None:
        return True
    exact = (selector.match_labels or {}).items()
    return all(found.get(key) == value for key, value in exact) and all(
        _holds(each, found) for each in selector.match_expressions or ()
    )


def _holds(wanted: SelectorRequirement, found: Mapping[str, str]) -> bool:
    """One requirement; NotIn holds for a label that is absent, as everywhere in Kubernetes."""
    match wanted.operator:
        case "In":
            return found.get(wanted.key) in (wanted.values or ())
        case "NotIn":
            return found.get(wanted.key) not in (wanted.values or ())
        case "Exists":
            return wanted.key in found
        case _:
            return wanted.key not in found


def sentence(selector: LabelSelector) -> str:
    """Return the selector for people: `team=ml, tier in (a, b)`."""
    parts = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    for each in selector.match_expressions or ():
        match each.operator:
            case "In":
                parts.append(f"{each.key} in ({', '.join(each.values or ())})")
            case "NotIn":
                parts.append(f"{each.key} not in ({', '.join(each.values or ())})")
            case "Exists":
                parts.append(f"{each.key} present")
            case _:
                parts.append(f"{each.key} absent")
    return ", ".join(parts)
