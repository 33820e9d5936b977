# SPDX-License-Identifier: Apache-2.0
"""What is written on a Node for a step, and what is left as it is."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.api import labels
from gpudeck.api.core import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from gpudeck.controller.modes import deciding, writing
from gpudeck.controller.modes.deciding import Phase, Step
from gpudeck.kube import evicting

DRA, PLUGIN = labels.MODES
OTHER = {"key": "mine", "value": "x", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def node(*, active: str | None = None, taint: str | None = None) -> Node:
    taints = [OTHER]
    if taint is not None:
        taints.append({"key": labels.MODE_CHANGE, "value": taint, "effect": "NoSchedule"})
    known = {"a": "b", **({labels.ACTIVE_MODE: active} if active else {})}
    value = {"metadata": {"name": "node-0", "labels": known}, "spec": {"taints": taints}}
    return msgspec.convert(value, Node)


def taints(patch: dict[str, object]) -> list[dict[str, str]]:
    found = msgspec.to_builtins(patch)["spec"]["taints"]
    return list(found)


def test_what_is_so_is_not_written() -> None:
    assert writing.marks(node(active=DRA), Step(Phase.ACTIVE, DRA)) == {}
    assert writing.marks(node(taint=DRA), Step(Phase.ENDING, None, DRA)) == {}


def test_label_and_taint_are_one_write_and_taints_of_others_stay_whole() -> None:
    patch = writing.marks(node(active=DRA), Step(Phase.STARTING, None, PLUGIN))
    assert patch["metadata"] == {"labels": {labels.ACTIVE_MODE: None}}
    mine = {"key": labels.MODE_CHANGE, "value": PLUGIN, "effect": "NoSchedule"}
    assert taints(patch) == [OTHER, mine]


def test_the_taint_goes_or_says_another_mode() -> None:
    assert taints(writing.marks(node(taint=DRA), Step(Phase.ACTIVE))) == [OTHER]
    patch = writing.marks(node(taint=DRA), Step(Phase.BEGINNING, None, PLUGIN))
    assert [each["value"] for each in taints(patch)] == ["x", PLUGIN]


@pytest.mark.parametrize("phase", Phase)
def test_the_condition_is_true_where_nothing_is_waited_for(phase: Phase) -> None:
    said = writing.condition(None, Step(phase, message="Why."), "now")
    if phase is Phase.NO_CARDS:
        assert said is None
        return
    assert said is not None
    assert (said.status == "True") == phase.is_settled
    assert (said.reason, said.message, said.last_transition_time) == (phase, "Why.", "now")


def test_its_time_is_that_of_its_status() -> None:
    before = writing.condition(None, Step(Phase.STARTING), "first")
    during = writing.condition(before, Step(Phase.DRAINING), "second")
    after = writing.condition(during, Step(Phase.ACTIVE), "third")
    assert [each and each.last_transition_time for each in (before, during, after)] == [
        "first", "first", "third",
    ]  # fmt: skip


def test_a_sentence_says_what_stands_in_the_way_and_for_how_long() -> None:
    pods = {evicting.Pod("t", name, "u"): f"Because of {name}." for name in "ba"}
    step = Step(Phase.DRAINING, message="Pods are to go.")
    assert writing.with_reasons(step, {}, slow_minutes=0) == step
    assert writing.with_reasons(step, pods, slow_minutes=10).message == (
        "Pods are to go. t/a is not evicted: Because of a. So it is with 1 more. "
        "It has taken more than 10 min; nothing is forced."
    )
    done = deciding.Step(Phase.ACTIVE, message="Done.")
    assert writing.with_reasons(done, {}, slow_minutes=10) == done


def test_our_condition_is_found_among_others() -> None:
    found = node()
    assert writing.condition_of(found) is None
    ours = {"type": "GPUModeActive", "status": "True"}
    value = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready"}, ours]}}
    assert writing.condition_of(msgspec.convert(value, Node)) == NodeCondition(
        type="GPUModeActive", status="True"
    )


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Step(Phase.ACTIVE, DRA), True),
        (Step(Phase.BEGINNING, DRA, DRA), True),
        (Step(Phase.NO_CARDS), True),
        (Step(Phase.ENDING, None, DRA), False),
        (Step(Phase.ACTIVE, PLUGIN), False),
    ],
)
def test_what_a_device_plugin_said_is_stale_once_its_mode_is_over(
    step: Step, expected: bool
) -> None:
    found = node()
    assert not writing.stale(found, step)
    found.status = NodeStatus(conditions=[NodeCondition(type="DevicePluginConfigured")])
    assert writing.stale(found, step) == (["gpudeck-device-plugin"] if expected else [])


@pytest.mark.parametrize("phase", Phase)
def test_what_the_mig_manager_said_is_stale_where_no_card_is_left(phase: Phase) -> None:
    found, step = node(), Step(phase)
    found.metadata.labels = {labels.MIG_STATE: "success", labels.MIG_CONFIG: "all-disabled"}
    found.metadata.annotations = {labels.MIG_CHANGE: "{}", "mine": "x"}
    found.status = NodeStatus(conditions=[NodeCondition(type="MigConfigured")])
    is_over = phase is Phase.NO_CARDS
    gone = {"labels": {labels.MIG_STATE: None}, "annotations": {labels.MIG_CHANGE: None}}
    assert writing.marks(found, step) == ({"metadata": gone} if is_over else {})
    assert writing.stale(found, step) == (["gpudeck-mig-manager"] if is_over else [])
    found.spec = NodeSpec(taints=[Taint(key=labels.MIG_TAINT, value="true", effect="NoSchedule")])
    assert writing.marks(found, step) == {}
