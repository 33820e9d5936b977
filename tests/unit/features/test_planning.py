# SPDX-License-Identifier: Apache-2.0
"""What is written to a Node: own things come and go, all others stay."""

from __future__ import annotations

from typing import Any

from gpudeck.api import labels
from gpudeck.api.core import Node, NodeSpec, NodeStatus, Taint
from gpudeck.api.meta import ObjectMeta
from gpudeck.features import planning
from gpudeck.features.deciding import Wanted

PCI = "feature.node.kubernetes.io/pci-10de.present"


def node(**annotations: str) -> Node:
    """A node with labels from features and from people."""
    found = {
        labels.FEATURES_LABELS: "nvidia.com/gpu.count,pci-10de.present",
        labels.FEATURES_MASTER_VERSION: "1",
        **annotations,
    }
    return Node(
        metadata=ObjectMeta(
            name="n",
            labels={
                PCI: "true",
                "nvidia.com/gpu.count": "4",
                "team": "blue",
                "nvidia.com/mig.config": "all-disabled",
            },
            annotations=found,
        )
    )


def plan(held: Node, wanted: Wanted) -> planning.Plan:
    return planning.plan(held, wanted, "1")


def test_nothing_is_written_when_all_is_right() -> None:
    wanted = Wanted(labels={PCI: "true", "nvidia.com/gpu.count": "4"})
    assert plan(node(), wanted) == planning.Plan()


def test_a_workload_that_is_paused_stays_so_whatever_a_rule_says() -> None:
    held = node()
    assert held.metadata.labels is not None
    held.metadata.labels["nvidia.com/gpu.count"] = labels.PAUSED_FOR_MIG
    made = plan(held, Wanted(labels={PCI: "true", "nvidia.com/gpu.count": "true"}))
    assert made == planning.Plan()


def test_stale_labels_go_and_those_of_people_stay() -> None:
    made = plan(node(), Wanted(labels={PCI: "true"}))
    assert made.first == {
        "metadata": {
            "labels": {"nvidia.com/gpu.count": None},
            "annotations": {labels.FEATURES_LABELS: "pci-10de.present"},
        }
    }
    made = plan(node(), Wanted())
    assert made.first is not None
    assert made.first["metadata"]["labels"] == {PCI: None, "nvidia.com/gpu.count": None}
    assert made.first["metadata"]["annotations"] == {
        labels.FEATURES_LABELS: None,
        labels.FEATURES_MASTER_VERSION: None,
    }


def test_a_label_and_whose_it_is_are_written_together() -> None:
    held = Node(metadata=ObjectMeta(name="n", labels={"team": "blue"}))
    made = plan(held, Wanted(labels={PCI: "true", "example.com/a": "b"}))
    assert made.first == {
        "metadata": {
            "labels": {PCI: "true", "example.com/a": "b"},
            "annotations": {
                labels.FEATURES_LABELS: "example.com/a,pci-10de.present",
                labels.FEATURES_MASTER_VERSION: "1",
            },
        }
    }


def test_a_node_without_features_gets_no_annotation() -> None:
    assert plan(Node(metadata=ObjectMeta(name="n")), Wanted()) == planning.Plan()


def test_an_annotation_is_removed_with_its_reason() -> None:
    held = node(**{labels.FEATURES_ANNOTATIONS: "example.com/a", "example.com/a": "b", "own": "c"})
    made = plan(held, Wanted(labels={PCI: "true", "nvidia.com/gpu.count": "4"}))
    assert made.first is not None
    assert made.first["metadata"]["annotations"] == {
        "example.com/a": None,
        labels.FEATURES_ANNOTATIONS: None,
    }


def test_taints_of_others_stay_as_they_are() -> None:
    foreign = Taint(
        key="node.kubernetes.io/unreachable", effect="NoExecute", time_added="2026-01-01T00:00:00Z"
    )
    old = Taint(key="example.com/old", value="x", effect="NoSchedule")
    new = Taint(key="example.com/new", effect="NoSchedule")
    held = node(**{labels.FEATURES_TAINTS: "example.com/old=x:NoSchedule"})
    held.spec = NodeSpec(taints=[foreign, old])
    made = plan(held, Wanted(labels={PCI: "true", "nvidia.com/gpu.count": "4"}, taints=[new]))
    assert made.needs_version
    assert made.first is not None
    assert made.first["spec"]["taints"] == [
        {
            "key": "node.kubernetes.io/unreachable",
            "effect": "NoExecute",
            "timeAdded": "2026-01-01T00:00:00Z",
        },
        {"key": "example.com/new", "effect": "NoSchedule"},
    ]
    assert made.first["metadata"]["annotations"] == {
        labels.FEATURES_TAINTS: "example.com/new:NoSchedule"
    }


def _apply(held: Node, patch: dict[str, Any] | None) -> None:
    """Merge what a patch says of annotations and capacity."""
    for name, value in ((patch or {}).get("metadata", {}).get("annotations") or {}).items():
        _put(held.metadata.annotations or {}, name, value)
    for name, value in ((patch or {}).get("status", {}).get("capacity") or {}).items():
        assert held.status is not None
        assert held.status.capacity is not None
        _put(held.status.capacity, name, value)


def _put(into: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        into.pop(name, None)
    else:
        into[name] = value


def test_a_resource_has_an_owner_before_it_comes_and_until_it_has_gone() -> None:
    held = Node(
        metadata=ObjectMeta(name="n", annotations={"own": "c"}),
        status=NodeStatus(capacity={"cpu": "4"}),
    )
    made = plan(held, Wanted(extended_resources={"example.com/cards": "8000"}))
    assert made.first is not None
    assert made.first["metadata"]["annotations"][labels.FEATURES_RESOURCES] == "example.com/cards"
    assert made.status == {"status": {"capacity": {"example.com/cards": "8000"}}}
    assert made.last is None
    _apply(held, made.first)
    _apply(held, {"status": {"capacity": {"example.com/cards": "8k"}}})
    assert plan(held, Wanted(extended_resources={"example.com/cards": "8000"})) == planning.Plan()

    made = plan(held, Wanted())
    assert made.first is None
    assert made.status == {
        "status": {
            "capacity": {"example.com/cards": None},
            "allocatable": {"example.com/cards": None},
        }
    }
    assert made.last == {"metadata": {"annotations": {labels.FEATURES_RESOURCES: None}}}
    _apply(held, made.status)
    assert not planning.plan(held, Wanted(), "1").status
    _apply(held, planning.plan(held, Wanted(), "1").first)
    assert held.metadata.annotations == {"own": "c"}


def test_nothing_is_removed_while_patience_is_asked_for() -> None:
    mine = Taint(key="example.com/mine", effect="NoSchedule")
    other = Taint(key="example.com/other", effect="NoSchedule")
    held = node(
        **{
            labels.FEATURES_TAINTS: "example.com/mine:NoSchedule",
            labels.FEATURES_RESOURCES: "example.com/cards",
            labels.FEATURES_ANNOTATIONS: "example.com/a",
            "example.com/a": "b",
        }
    )
    held.spec = NodeSpec(taints=[mine, other])
    held.status = NodeStatus(capacity={"cpu": "4", "example.com/cards": "8"})
    patient = planning.patient(held, Wanted(labels={PCI: "true"}))
    assert planning.plan(held, patient, "1") == planning.Plan()
    changed = planning.patient(held, Wanted(labels={"nvidia.com/gpu.count": "8"}))
    made = planning.plan(held, changed, "1")
    assert made.first == {"metadata": {"labels": {"nvidia.com/gpu.count": "8"}}}


def test_what_a_node_looks_like_afterwards_is_known_before() -> None:
    taint = Taint(key="example.com/t", effect="NoSchedule")
    held = node(**{labels.FEATURES_RESOURCES: "example.com/old"})
    held.status = NodeStatus(capacity={"example.com/old": "1", "cpu": "4"})
    wanted = Wanted(
        labels={PCI: "true", "a/b": "c"},
        annotations={"n/a": "v"},
        taints=[taint],
        extended_resources={"example.com/new": "2"},
    )
    after = planning.applied(held, plan(held, wanted))
    assert plan(after, wanted) == planning.Plan()
    assert after.metadata.labels == {PCI: "true", "a/b": "c", "team": "blue",
                                     "nvidia.com/mig.config": "all-disabled"}  # fmt: skip
    assert after.status is not None
    assert after.status.capacity == {"cpu": "4", "example.com/new": "2"}
    assert planning.applied(after, planning.Plan()) == after


def test_nodes_that_a_plan_treats_alike_have_one_fingerprint() -> None:
    first, second = node(), node()
    second.metadata.labels = dict(reversed((second.metadata.labels or {}).items()))
    second.spec, second.status = NodeSpec(), NodeStatus()
    assert planning.fingerprint(first) == planning.fingerprint(second)
    second.metadata.labels["team"] = "red"
    assert planning.fingerprint(first) != planning.fingerprint(second)


def test_patches_are_for_the_node_that_they_were_made_of() -> None:
    """A list is replaced whole, so the Node must still be as it was read."""
    held = node()
    held.metadata.uid, held.metadata.resource_version = "u", "7"
    made = planning.Plan(
        first={"spec": {"taints": []}}, status={"status": {"capacity": {"a": None}}}
    )
    assert list(planning.bound(held, made)) == [
        ({"spec": {"taints": []}, "metadata": {"uid": "u"}}, ""),
        ({"status": {"capacity": {"a": None}}, "metadata": {"uid": "u"}}, "status"),
    ]
    made.needs_version = True
    first, _ = next(planning.bound(held, made))
    assert first["metadata"] == {"uid": "u", "resourceVersion": "7"}
