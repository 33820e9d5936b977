# SPDX-License-Identifier: Apache-2.0
"""A worker's own rules may spell expressions short."""

from __future__ import annotations

from typing import Any

import pytest

from gpudeck.features.rules import shorthand


def term(expressions: Any) -> Any:
    rule = {"name": "r", "matchFeatures": [{"feature": "f", "matchExpressions": expressions}]}
    return shorthand.expanded(rule)["matchFeatures"][0]["matchExpressions"]


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ({"vendor": "10de"}, {"vendor": {"op": "In", "value": ["10de"]}}),
        ({"vendor": ["10de", "1002"]}, {"vendor": {"op": "In", "value": ["10de", "1002"]}}),
        ({"enabled": True}, {"enabled": {"op": "In", "value": ["true"]}}),
        ({"count": 4}, {"count": {"op": "In", "value": ["4"]}}),
        ({"nvidia": None}, {"nvidia": {"op": "Exists"}}),
        (["AVX", "LSM=yes"], {"AVX": {"op": "Exists"}, "LSM": {"op": "In", "value": ["yes"]}}),
        ({"major": {"op": "Gt", "value": 5}}, {"major": {"op": "Gt", "value": ["5"]}}),
        ({"x": {"op": "Exists"}}, {"x": {"op": "Exists"}}),
    ],
)
def test_each_short_spelling_means_what_it_means_in_node_feature_discovery(
    short: Any, full: Any
) -> None:
    assert term(short) == full


def test_alternatives_and_names_are_spelled_out_too() -> None:
    rule = {
        "name": "r",
        "matchAny": [{"matchFeatures": [{"feature": "f", "matchName": ["a", "b"]}]}],
    }
    (alternative,) = shorthand.expanded(rule)["matchAny"]
    assert alternative["matchFeatures"] == [
        {"feature": "f", "matchName": {"op": "In", "value": ["a", "b"]}}
    ]


@pytest.mark.parametrize("odd", [None, "rule", 5, ["a"], {"matchFeatures": "all"}])
def test_what_is_no_rule_stays_and_is_refused_where_it_is_read(odd: Any) -> None:
    assert shorthand.expanded(odd) == odd
