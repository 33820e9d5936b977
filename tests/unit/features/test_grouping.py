# SPDX-License-Identifier: Apache-2.0
"""Groups know their nodes, and a change asks about what has changed alone."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.api.nodefeatures import NodeFeatureGroup
from gpudeck.errors import InvalidError
from gpudeck.features.grouping import Membership
from gpudeck.features.known import Known

CARD, NONE = Known(attributes={"gpu.card": {"model": "x"}}), Known()


def group(op: str = "Exists") -> NodeFeatureGroup:
    terms = [{"feature": "gpu.card", "matchExpressions": {"model": {"op": op}}}]
    rules = [{"name": "x", "matchFeatures": terms}]
    return msgspec.convert(
        {"metadata": {"name": "g"}, "spec": {"featureGroupRules": rules}}, NodeFeatureGroup
    )


def names(held: Membership, key: str = "own/g") -> list[str]:
    found = held.status(key)
    return [each.name for each in (found.nodes if found else None) or ()]


def whole(**nodes: Known) -> Membership:
    held = Membership()
    assert held.begin("own/g", group())
    for name, known in nodes.items():
        held.ask("own/g", name, known)
    held.whole("own/g")
    return held


def test_a_group_lists_the_nodes_that_fit_by_name() -> None:
    assert names(whole(b=CARD, a=CARD, c=NONE)) == ["a", "b"]


def test_a_group_whose_rules_are_the_same_asks_nobody_again() -> None:
    held = whole(a=CARD)
    assert not held.begin("own/g", group())
    assert held.begin("own/g", group("DoesNotExist"))
    assert names(held) == []


def test_a_pass_that_was_cut_short_is_begun_again() -> None:
    held = Membership()
    assert held.begin("own/g", group())
    held.ask("own/g", "a", CARD)
    assert held.begin("own/g", group())


def test_a_change_of_a_node_names_the_groups_that_change_with_it() -> None:
    held = whole(a=NONE)
    held.begin("own/others", group("DoesNotExist"))
    assert held.changed("a", NONE) == []
    assert held.changed("a", CARD) == ["own/g"]
    assert held.changed("a", CARD) == []
    assert held.changed("a", NONE) == ["own/g"]


def test_a_node_that_goes_leaves_its_groups() -> None:
    held = whole(a=CARD, b=CARD)
    assert held.gone("a") == ["own/g"]
    assert held.gone("c") == []
    assert names(held) == ["b"]


def test_a_group_that_goes_is_asked_no_more() -> None:
    held = whole(a=CARD)
    held.end("own/g")
    assert held.status("own/g") is None
    assert held.changed("a", NONE) == []


def test_rules_that_make_no_sense_are_said_once_and_asked_no_more() -> None:
    held = Membership()
    held.begin("own/g", group("Near"))
    assert held.ask("own/g", "a", CARD)
    assert not held.ask("own/g", "b", CARD)
    with pytest.raises(InvalidError, match=r"spec\.featureGroupRules\[0\]"):
        held.status("own/g")
