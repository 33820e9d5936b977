# SPDX-License-Identifier: Apache-2.0
"""Nodes and pods: taints with tolerations, selectors, required affinity."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import make

from gpudeck.api.core import Pod
from gpudeck.explaining import placing
from gpudeck.explaining.reasons import Reason
from gpudeck.explaining.world import Placement


def reason(node: make.Object, **spec: Any) -> Reason | None:
    pod = make.pod(spec=spec)
    found = placing.obstacle(
        "node-0", msgspec.convert(pod, Pod), msgspec.convert(pod, Placement), make.world(node)
    )
    return found[0] if found else None


@pytest.mark.parametrize(
    ("toleration", "passes"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_a_taint_keeps_out_what_does_not_tolerate_it(toleration: make.Object, passes: bool) -> None:
    node = make.node(spec={"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]})
    found = reason(node, tolerations=[toleration])
    assert found is (None if passes else Reason.TAINT_NOT_TOLERATED)


def test_a_node_that_changes_its_mode_says_what_it_waits_for() -> None:
    taint = {"key": "gpu.deckhouse.io/mode-change", "value": "dra", "effect": "NoSchedule"}
    said = {"type": "GPUModeActive", "status": "False", "message": "Pods are to go: t/a."}
    node = make.node(spec={"taints": [taint]})
    node["status"]["conditions"].append(said)
    pod = make.pod(spec={})
    found = placing.obstacle(
        "node-0", msgspec.convert(pod, Pod), msgspec.convert(pod, Placement), make.world(node)
    )
    assert found == (
        Reason.NODE_CHANGES_MODE,
        "node node-0 changes to the mode dra and takes no new pods until then. Pods are to go: t/a",
    )


def test_a_preference_of_a_taint_keeps_nobody_out() -> None:
    node = make.node(spec={"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]})
    assert reason(node) is None


def test_a_cordon_is_tolerated_by_those_who_say_so() -> None:
    node = make.node(spec={"unschedulable": True})
    assert reason(node) is Reason.NODE_UNSCHEDULABLE
    everything = {"operator": "Exists"}
    assert reason(node, tolerations=[everything]) is None


@pytest.mark.parametrize(
    ("expressions", "passes"),
    [
        ([{"key": "zone", "operator": "In", "values": ["a", "b"]}], True),
        ([{"key": "zone", "operator": "NotIn", "values": ["a"]}], False),
        ([{"key": "zone", "operator": "Exists"}], True),
        ([{"key": "zone", "operator": "DoesNotExist"}], False),
        ([{"key": "rank", "operator": "Gt", "values": ["4"]}], True),
        ([{"key": "rank", "operator": "Lt", "values": ["4"]}], False),
        ([{"key": "zone", "operator": "Gt", "values": ["4"]}], False),
        ([{"key": "missing", "operator": "In", "values": ["a"]}], False),
        ([{"key": "zone", "operator": "Exists"}, {"key": "rank", "operator": "DoesNotExist"}],
         False),
    ],
)  # fmt: skip
def test_required_affinity_admits_by_its_terms(
    expressions: list[make.Object], passes: bool
) -> None:
    node = make.node(labels={"zone": "a", "rank": "5"})
    affinity = required({"matchExpressions": expressions})
    found = reason(node, affinity=affinity)
    assert found is (None if passes else Reason.NODE_SELECTOR_MISMATCH)


def test_one_term_of_several_is_enough_and_an_empty_one_admits_nothing() -> None:
    fits = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}
    assert reason(make.node(), affinity=required({}, fits)) is None
    assert reason(make.node(), affinity=required({})) is Reason.NODE_SELECTOR_MISMATCH


def required(*terms: make.Object) -> make.Object:
    wanted = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": wanted}}
