# SPDX-License-Identifier: Apache-2.0
"""Several NodeFeatures and rules of one node: order, overrides, refusals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpudeck.api.meta import ObjectMeta
from gpudeck.api.nodefeatures import (
    Attributes,
    Features,
    NodeFeature,
    NodeFeatureRule,
    NodeFeatureSpec,
)
from gpudeck.features import deciding, packing, presence
from gpudeck.features.known import gathered
from gpudeck.features.permitting import Policy

OWN = "gpudeck-system"


def feature(name: str, namespace: str = OWN, **labels: str) -> NodeFeature:
    values = Attributes(elements={"from": name})
    return NodeFeature(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            labels={"nfd.node.kubernetes.io/node-name": "n"},
        ),
        spec=NodeFeatureSpec(labels=labels, features=Features(attributes={"a.b": values})),
    )


def rule(name: str, *rules: dict[str, Any]) -> NodeFeatureRule:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"rules": rules}}, NodeFeatureRule)


def wanted(
    features: list[NodeFeature], *rules: NodeFeatureRule, policy: Policy | None = None
) -> deciding.Wanted:
    in_order = deciding.ordered(features, OWN)
    known = deciding.known(in_order)
    return deciding.wanted(in_order, deciding.named(rules), OWN, policy or Policy(), known=known)


def test_the_own_namespace_comes_first_and_later_ones_override() -> None:
    found = wanted(
        [feature("b", "other", x="2"), feature("z", x="1"), feature("a", "other", x="3")]
    )
    assert found.labels == {"feature.node.kubernetes.io/x": "2"}
    kept = wanted([feature("b", "other", x="2"), feature("z", x="1")],
                  policy=Policy(allows_overwrite=False))  # fmt: skip
    assert kept.labels == {"feature.node.kubernetes.io/x": "1"}
    mine = wanted([feature("b", "other", x="2"), feature("z", x="1")],
                  policy=Policy(takes_foreign_labels=False))  # fmt: skip
    assert mine.labels == {"feature.node.kubernetes.io/x": "1"}


def test_what_gpudeck_is_told_to_do_comes_from_the_own_namespace_or_a_rule() -> None:
    order = "nvidia.com/mig.config"
    foreign = feature("x", "team", **{order: "all-disabled", "nvidia.com/gpu.count": "4"})
    found = wanted([feature("a", **{order: "all-1g.5gb"}), foreign])
    assert found.labels == {order: "all-1g.5gb", "nvidia.com/gpu.count": "4"}
    (refusal,) = found.refused
    assert (refusal.origin, "NodeFeature team/x" in refusal.message) == ("", True)
    by_rule = wanted([foreign], rule("r", {"name": "x", "labels": {order: "all-2g.10gb"}}))
    assert by_rule.labels[order] == "all-2g.10gb"


def test_rules_are_used_by_the_names_of_their_objects() -> None:
    found = wanted(
        [feature("a", x="1")],
        rule("20", {"name": "r", "labels": {"x": "3", "example.com/y": "@a.b.from"}}),
        rule("10", {"name": "r", "labels": {"x": "2"}}),
    )
    assert found.labels == {"feature.node.kubernetes.io/x": "3", "example.com/y": "a"}


def test_what_is_refused_takes_nothing_else_along() -> None:
    found = wanted(
        [feature("a", **{"kubernetes.io/role": "master", "good": "1"})],
        rule("r", {"name": "x", "labels": {"example.com/v": "not valid"},
                   "taints": [{"key": "example.com/t", "effect": "NoSchedule"}]}),
        policy=Policy(has_taints=True),
    )  # fmt: skip
    assert found.labels == {"feature.node.kubernetes.io/good": "1"}
    assert [each.key for each in found.taints] == ["example.com/t"]
    said = {each.origin: each.message for each in found.refused}
    assert "kubernetes.io/role" in said[""]
    assert "example.com/v" in said["r"]


def test_taints_wait_for_the_administrator() -> None:
    taint = {"key": "example.com/t", "effect": "NoSchedule"}
    assert wanted([feature("a")], rule("r", {"name": "x", "taints": [taint]})).taints == []


def packed(name: str, namespace: str = OWN, **labels: str) -> packing.PackedFeature:
    """A NodeFeature as it comes from the API server, packed."""
    given = msgspec.json.encode(feature(name, namespace, **labels))
    found = packing.pack(msgspec.json.decode(given, type=packing.PackedFeature))
    assert found is not None
    return found


def test_a_feature_is_the_same_after_packing() -> None:
    assert packing.unpack(packed("a", x="1")) == feature("a", x="1")


def test_what_two_nodes_have_in_common_is_held_once_and_stays_as_it_is() -> None:
    one, two, other = packed("a", x="1"), packed("a", x="1"), packed("b", x="1")
    assert one.parts == two.parts
    assert one.parts[0] is two.parts[0]
    assert [each.name for each in one.parts if each not in other.parts] == ["a.b"]
    both = [packing.unpack(one), packing.unpack(other)]
    given = {"name": "r", "labels": {"y": "@a.b.from"}, "vars": {"seen": "true"}}
    for _ in range(2):
        assert wanted(both, rule("r", given)).labels["feature.node.kubernetes.io/y"] == "b"
        assert wanted(both[:1], rule("r", given)).labels["feature.node.kubernetes.io/y"] == "a"
    assert both == [feature("a", x="1"), feature("b", x="1")]


def decided(held: list[packing.PackedFeature]) -> deciding.Wanted:
    found, _ = deciding.decide(held, [], own_namespace=OWN, policy=Policy(), groups={})
    return found


def test_of_thousands_of_features_of_one_node_the_own_and_some_others_count() -> None:
    others = [packed(f"x{number:04d}", "team", **{f"l{number}": "1"}) for number in range(3000)]
    found = decided([*others, packed("zz", mine="1")])
    assert len(found.labels) == deciding.MOST_FEATURES
    assert found.labels["feature.node.kubernetes.io/mine"] == "1"
    (refusal,) = found.refused
    assert refusal.message.startswith("2901 NodeFeatures do not count, team/x0099 the first of")


def test_a_large_feature_leaves_no_room_for_what_comes_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deciding, "FEATURES_BYTES", 500)
    large = packed("a", "team", **{f"l{number}": "1" for number in range(99)})
    found = decided([packed("z", mine="1"), large, packed("b", "team", other="1")])
    assert set(found.labels) == {f"feature.node.kubernetes.io/{name}" for name in ("mine", "other")}


def test_labels_of_other_namespaces_never_fill_a_node() -> None:
    many = {f"l{number:05d}": "1" for number in range(20_000)}
    found = decided([packed("a", "team", **many), packed("z", mine="1"), packed("b", own="1")])
    texts = [name + value for name, value in found.labels.items()]
    assert sum(map(len, texts)) <= deciding.FOREIGN_BYTES + 100
    assert found.labels["feature.node.kubernetes.io/mine"] == "1"
    assert len(found.refused) == deciding.MOST_SAID + 1
    assert "labels of NodeFeature team/a: 'feature.node.kubernetes.io/l" in found.refused[0].message
    assert "more are refused" in found.refused[-1].message


def test_very_many_features_of_one_kind_are_gathered_soon() -> None:
    parts = [
        Features(
            attributes={"a.b": Attributes(elements={f"{number}-{each}": "1" for each in range(50)})}
        )
        for number in range(2000)
    ]
    assert len(gathered(parts).attributes["a.b"]) == 100_000


def test_a_feature_without_a_node_or_a_readable_spec_is_left_out() -> None:
    for text in (
        b'{"metadata":{"name":"a","namespace":"b"},"spec":{}}',
        b'{"metadata":{"name":"a","namespace":"b","labels":'
        b'{"nfd.node.kubernetes.io/node-name":"n"}},"spec":{"labels":[1]}}',
    ):
        assert packing.pack(msgspec.json.decode(text, type=packing.PackedFeature)) is None


def test_a_feature_that_is_gone_counts_for_a_while() -> None:
    held = presence.Presence(30)
    held.begin(0)
    one, two = packed("a"), packed("b", "other")
    held.change("own/a", None, one, 0)
    held.change("other/b", None, two, 0)
    held.change("own/a", one, None, 100)
    assert held.of("n", 110) == ([one, two], 20)
    assert held.of("n", 130) == ([two], None)
    held.change("own/a", None, one, 131)
    assert len(held.of("n", 132)[0]) == 2


def test_a_feature_that_returns_in_time_counts_on() -> None:
    held = presence.Presence(30)
    one = packed("a", x="1")
    held.change("own/a", None, one, 0)
    held.change("own/a", one, None, 100)
    new = packed("a", x="2")
    held.change("own/a", None, new, 120)
    assert held.of("n", 500) == ([new], None)


def test_a_node_without_any_is_left_alone_after_the_start() -> None:
    held = presence.Presence(30)
    held.begin(1000)
    assert held.patience(1010) == 20
    assert held.patience(1030) is None


def faults(policy: Policy | None = None, **given: Any) -> list[str]:
    """What is told of a rule before any node fits it."""
    (named,) = deciding.named([rule("r", {"name": "x", **given})])
    return list(deciding.faults(named, policy or Policy(has_taints=True)))


def test_what_a_rule_gives_and_nobody_may_write_is_told_before_a_node_fits() -> None:
    said = faults(
        labels={"node-role.kubernetes.io/gpu": "true", "good": "@a.b.c", "example.com/v": "no way"},
        annotations={"kubernetes.io/a": "v"},
        extendedResources={"example.com/amount": "many", "example.com/found": "@a.b.c"},
        taints=[{"key": "example.com/t", "effect": "Now"}],
    )
    assert len(said) == 5
    assert all(each.startswith("spec.rules[0]: ") and "allowed" in each for each in said)


def test_a_rule_says_what_the_settings_keep_it_from() -> None:
    given = {
        "labels": {"a": "b"},
        "annotations": {"example.com/a": "b"},
        "extendedResources": {"example.com/a": "1"},
        "taints": [{"key": "example.com/t", "effect": "NoSchedule"}],
    }
    nothing = Policy(has_labels=False, has_annotations=False, has_extended_resources=False)
    assert [each.split(":")[0] for each in faults(nothing, **given)] == [
        f"spec.rules[0].{field}"
        for field in ("labels", "annotations", "extendedResources", "taints")
    ]
    assert faults(**given) == []
