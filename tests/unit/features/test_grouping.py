# SPDX-License-Identifier: Apache-2.0
"""Groups know their nodes, and a change asks about what has changed alone."""

from __future__ import annotations

import msgspec

from gpudeck.api.nodefeatures import NodeFeatureGroup
from gpudeck.features import grouping
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


def ask(held: Membership, node: str, known: Known) -> list[str]:
    """Ask a node of all groups; those that changed."""
    return held.tell(node, grouping.ask(held.rules(), known))


def whole(**nodes: Known) -> Membership:
    held = Membership()
    assert held.begin("own/g", group())
    for name, known in nodes.items():
        ask(held, name, known)
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
    ask(held, "a", CARD)
    assert held.begin("own/g", group())


def test_a_change_of_a_node_names_the_groups_that_change_with_it() -> None:
    held = whole(a=NONE)
    held.begin("own/others", group("DoesNotExist"))
    assert ask(held, "a", NONE) == []
    assert ask(held, "a", CARD) == ["own/g"]
    assert ask(held, "a", CARD) == []
    assert ask(held, "a", NONE) == ["own/g"]


def test_a_node_that_goes_leaves_its_groups() -> None:
    held = whole(a=CARD, b=CARD)
    assert held.gone("a") == ["own/g"]
    assert held.gone("c") == []
    assert names(held) == ["b"]


def test_a_group_that_goes_is_asked_no_more() -> None:
    held = whole(a=CARD)
    held.end("own/g")
    assert held.status("own/g") is None
    assert ask(held, "a", NONE) == []


def test_what_was_asked_of_other_rules_counts_no_more() -> None:
    held = whole(a=CARD)
    answers = grouping.ask(held.rules(), CARD)
    held.begin("own/g", group("DoesNotExist"))
    assert held.tell("a", answers) == []
    assert names(held) == []


def test_rules_that_make_no_sense_are_said_once() -> None:
    held = Membership()
    held.begin("own/g", group("Near"))
    assert ask(held, "a", CARD) == ["own/g"]
    assert ask(held, "b", CARD) == []
    assert "spec.featureGroupRules[0]" in held.complaint("own/g")
    assert held.complaint("own/g") == ""
    assert names(held) == []


def test_a_node_on_which_rules_fail_takes_the_group_from_no_other() -> None:
    terms = [{"feature": "gpu.card", "matchExpressions": {"model": {"op": "Exists"}}}]
    rule = {"name": "x", "matchFeatures": terms, "varsTemplate": "a={{ index .gpu.card 0 | len }}\n"
            "{{ range .gpu.card }}b={{ div 1 (len .Value) }}{{ end }}"}  # fmt: skip
    given = {"metadata": {"name": "g"}, "spec": {"featureGroupRules": [rule]}}
    held = Membership()
    held.begin("own/g", msgspec.convert(given, NodeFeatureGroup))
    ask(held, "a", CARD)
    ask(held, "sick", Known(attributes={"gpu.card": {"model": ""}}))
    assert names(held) == ["a"]
    assert "division by zero" in held.complaint("own/g")
