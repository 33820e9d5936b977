# SPDX-License-Identifier: Apache-2.0
"""Short spellings of expressions, as rules of a worker's own may have them. Pure.

node-feature-discovery reads them in nfd-worker.conf and custom.d, but not in a NodeFeatureRule,
whose fields the API server checks: `vendor: "10de"` and `vendor: ["10de"]` are In, `vendor:` is
Exists, and a list of names (`[AVX, LSM=yes]`) stands for a whole set of expressions.
"""

from __future__ import annotations

from typing import Any


def expanded(rule: Any) -> Any:
    """The rule with all its expressions spelled out; what is no rule comes back as it is."""
    if not isinstance(rule, dict):
        return rule
    found = {**rule}
    if isinstance(rule.get("matchFeatures"), list):
        found["matchFeatures"] = [_term(each) for each in rule["matchFeatures"]]
    if isinstance(rule.get("matchAny"), list):
        found["matchAny"] = [expanded(each) for each in rule["matchAny"]]
    return found


def _term(term: Any) -> Any:
    if not isinstance(term, dict):
        return term
    found = {**term}
    if "matchExpressions" in term:
        found["matchExpressions"] = _expressions(term["matchExpressions"])
    if "matchName" in term:
        found["matchName"] = _expression(term["matchName"])
    return found


def _expressions(given: Any) -> Any:
    if isinstance(given, list) and all(isinstance(each, str) for each in given):
        parts = [each.partition("=") for each in given]
        return {
            name: {"op": "In", "value": [value]} if equals else {"op": "Exists"}
            for name, equals, value in parts
        }
    if not isinstance(given, dict):
        return given
    return {
        str(name): {"op": "Exists"} if each is None else _expression(each)
        for name, each in given.items()
    }


def _expression(given: Any) -> Any:
    if isinstance(given, dict):
        return {**given, "value": _values(given["value"])} if "value" in given else given
    return {"op": "In", "value": _values(given)}


def _values(given: Any) -> Any:
    if isinstance(given, list):
        return given
    return [_text(given)] if given is not None else None


def _text(given: Any) -> Any:
    """A number or a boolean as it is written; anything else stays and is refused later."""
    if isinstance(given, bool):
        return "true" if given else "false"
    return f"{given:g}" if isinstance(given, (int, float)) else given
