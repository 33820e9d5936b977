# SPDX-License-Identifier: Apache-2.0
"""What is written to a Node, and what of it is other people's and stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpudeck.api import core
from gpudeck.api import labels as names
from gpudeck.api.core import NodeSpec, NodeStatus, OwnedMeta, OwnedNode, Taint
from gpudeck.mig import nodes, progress

DEPLOY = "nvidia.com/gpu.deploy."
STATE, CHANGE = "nvidia.com/mig.config.state", "gpu.deckhouse.io/mig-change"
FOREIGN = Taint(key="team", value="a", effect="NoExecute", time_added="2026-01-01T00:00:00Z")


def record(phase: progress.Phase, **more: Any) -> progress.Record:
    return progress.Record(version=1, config="x", phase=phase, since=1, **more)


def node(labels: dict[str, str], notes: dict[str, str], *taints: Taint) -> OwnedNode:
    meta = OwnedMeta(name="n", resource_version="7", labels=labels, annotations=notes)
    return OwnedNode(metadata=meta, spec=NodeSpec(taints=list(taints)))


def patched(found: OwnedNode, wish: nodes.Wish) -> OwnedNode:
    """The Node after the patch."""
    patch = nodes.patch(found, wish)
    if patch is None:
        return found
    merged = []
    for field, before in (
        ("labels", found.metadata.labels),
        ("annotations", found.metadata.annotations),
    ):
        after = {**(before or {}), **patch["metadata"][field]}
        merged.append({name: value for name, value in after.items() if value is not None})
    assert found.spec is not None
    spec = {"taints": None, **patch.get("spec", {})}
    taints = [Taint(**_snake(each)) for each in spec["taints"] or ()]
    kept = taints if spec["taints"] is not None else found.spec.taints
    after = node(merged[0], merged[1], *(kept or []))
    if "unschedulable" in spec:
        return cordoned(after, by=names.MANAGER_MIG_MANAGER if spec["unschedulable"] else "")
    return cordoned(after, by=next(iter(found.cordoned_by()), ""))


def cordoned(found: OwnedNode, *, by: str = "kubectl") -> OwnedNode:
    """Cordoned by whom; by nobody: not cordoned."""
    assert found.spec is not None
    found.spec.unschedulable = True if by else None
    fields = core.OwnedFields(spec=core.OwnedSpec(unschedulable={}))
    owner = core.FieldsOwner(manager=by, fields=fields)
    found.metadata.managed_fields = [core.FieldsOwner(manager="kubelet"), owner] if by else None
    return found


def is_cordoned(found: OwnedNode) -> bool:
    return found.spec is not None and bool(found.spec.unschedulable)


def _snake(taint: dict[str, Any]) -> dict[str, Any]:
    names = {"timeAdded": "time_added"}
    return {names.get(name, name): value for name, value in taint.items()}


def pausing(found: OwnedNode) -> nodes.Wish:
    paused = nodes.pauses(nodes.seen(found).deploy)
    return nodes.wish(record(progress.Phase.PAUSING, paused=paused))


def test_a_node_is_as_before_after_a_change() -> None:
    labels = {f"{DEPLOY}device-plugin": "true", f"{DEPLOY}dcgm": "false", "team": "a"}
    before = node(labels, {"note": "b"}, FOREIGN)
    out = patched(before, pausing(before))
    assert out.metadata.labels == {
        **labels,
        f"{DEPLOY}device-plugin": nodes.PAUSED,
        f"{DEPLOY}gpu-feature-discovery": nodes.PAUSED,
        STATE: "pending",
    }
    assert out.spec is not None
    assert out.spec.taints == [FOREIGN, nodes.TAINT]
    after = patched(out, nodes.wish(record(progress.Phase.DONE)))
    assert after.metadata.labels == {**labels, STATE: "success"}
    assert after.spec is not None
    assert after.spec.taints == [FOREIGN]
    assert patched(after, nodes.Wish()) == before


def test_a_node_that_says_what_is_wished_is_not_written_to() -> None:
    before = node({}, {}, FOREIGN)
    for wish in (pausing(before), nodes.wish(record(progress.Phase.DONE)), nodes.Wish()):
        assert nodes.patch(patched(before, wish), wish) is None


def test_a_label_that_a_person_sets_meanwhile_stays() -> None:
    found = node({}, {})
    out = patched(found, pausing(found))
    assert out.metadata.labels is not None
    out.metadata.labels[f"{DEPLOY}device-plugin"] = "false"
    after = patched(out, nodes.wish(record(progress.Phase.DONE)))
    assert after.metadata.labels == {f"{DEPLOY}device-plugin": "false", STATE: "success"}


def test_pause_labels_whose_record_is_lost_are_given_back() -> None:
    lost = node({f"{DEPLOY}dcgm": nodes.PAUSED}, {CHANGE: "{broken"})
    after = patched(lost, nodes.Wish())
    assert after.metadata.labels == {f"{DEPLOY}dcgm": "true"}
    assert after.metadata.annotations == {}


CHANGING = nodes.wish(record(progress.Phase.CHANGING))
DONE = nodes.wish(record(progress.Phase.DONE))


def test_a_node_is_uncordoned_by_whom_it_was_cordoned() -> None:
    out = patched(node({}, {}), CHANGING)
    assert is_cordoned(out)
    assert not is_cordoned(patched(out, DONE))
    assert not is_cordoned(patched(out, nodes.Wish()))
    theirs = patched(cordoned(node({}, {})), CHANGING)
    assert is_cordoned(patched(theirs, DONE))


def test_a_cordon_whose_record_is_lost_is_given_back() -> None:
    out = patched(node({}, {}), CHANGING)
    for lost in ({}, {CHANGE: "{broken"}):
        out.metadata.annotations = lost
        assert not is_cordoned(patched(out, nodes.Wish()))
        assert not is_cordoned(patched(patched(out, CHANGING), DONE))


def test_a_cordon_that_somebody_lifted_is_theirs_from_then_on() -> None:
    lifted = cordoned(patched(node({}, {}), CHANGING), by="")
    after = patched(lifted, CHANGING)
    assert not is_cordoned(after)
    # So an administrator's own cordon outlives the change.
    assert is_cordoned(patched(cordoned(after), DONE))


@pytest.mark.parametrize("value", ["false", None])
def test_a_taint_that_somebody_changed_is_as_it_is_to_be(value: str | None) -> None:
    theirs = Taint(key=nodes.TAINT.key, value=value, effect="NoExecute")
    out = patched(node({}, {}, FOREIGN, theirs), CHANGING)
    assert out.spec is not None
    assert out.spec.taints == [FOREIGN, nodes.TAINT]


@pytest.mark.parametrize(
    ("allocatable", "offers"),
    [
        (None, False),
        ({"cpu": "8"}, False),
        ({"cpu": "8", "nvidia.com/gpu": "0"}, False),
        ({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "3"}, True),
    ],
)
def test_a_node_offers_what_the_kubelet_says(
    allocatable: dict[str, str] | None, *, offers: bool
) -> None:
    found = node({}, {})
    found.status = NodeStatus(allocatable=allocatable)
    assert nodes.seen(found).offers is offers


def test_all_pods_are_asked_to_go_by_one_word() -> None:
    wish = nodes.wish(record(progress.Phase.EMPTYING), empty="1", why="a reboot")
    out = patched(node({}, {}), wish)
    notes = out.metadata.annotations or {}
    request = {"by": "mig-manager", "why": "a reboot", "all": True, "id": "1"}
    assert json.loads(notes["gpu.deckhouse.io/drain"]) == request
    rebooting = patched(out, nodes.wish(record(progress.Phase.REBOOTING)))
    assert "gpu.deckhouse.io/drain" not in (rebooting.metadata.annotations or {})


def test_a_drain_of_somebody_else_is_left_alone() -> None:
    theirs = json.dumps({"by": "modes", "why": "w", "pods": []})
    before = node({}, {"gpu.deckhouse.io/drain": theirs})
    assert nodes.patch(before, nodes.Wish()) is None


def test_pods_are_asked_to_go_by_name_two_hundred_at_a_time() -> None:
    pods = tuple(nodes.Pod("team", f"p-{number}") for number in range(300))
    wish = nodes.wish(record(progress.Phase.DRAINING), drain=pods, why="w")
    out = patched(node({}, {}), wish)
    assert out.metadata.annotations is not None
    asked = json.loads(out.metadata.annotations["gpu.deckhouse.io/drain"])
    assert (asked["by"], asked["why"], len(asked["pods"])) == ("mig-manager", "w", 200)
    assert asked["pods"][0] == {"namespace": "team", "name": "p-0"}
    after = patched(out, nodes.wish(record(progress.Phase.PAUSING)))
    assert "gpu.deckhouse.io/drain" not in (after.metadata.annotations or {})


def test_leave_for_a_reboot_is_asked_for_and_taken_back_if_it_was_us() -> None:
    required, approved = (
        f"update.node.deckhouse.io/disruption-{each}" for each in ("required", "approved")
    )
    theirs = node({}, {required: ""})
    assert nodes.patch(theirs, nodes.Wish()) is None
    for known in (True, False):  # False: as somebody edits it.
        out = patched(node({}, {}), nodes.wish(record(progress.Phase.APPROVING, asked=known)))
        assert required in (out.metadata.annotations or {})
    out = patched(node({}, {}), nodes.wish(record(progress.Phase.APPROVING, asked=True)))
    assert out.metadata.annotations is not None
    assert out.metadata.annotations[required] == "mig-manager"
    lost = node({}, {required: "mig-manager"})
    assert patched(lost, nodes.Wish()).metadata.annotations == {}
    out.metadata.annotations[approved] = ""
    out = patched(out, nodes.wish(record(progress.Phase.REBOOTING, asked=True)))
    assert {required, approved} <= set(out.metadata.annotations or {})
    after = patched(out, nodes.wish(record(progress.Phase.DRAINING, rebooted=True)))
    assert {required, approved}.isdisjoint(after.metadata.annotations or {})


def test_containers_are_known_by_the_labels_that_end_them() -> None:
    assert "nvidia-device-plugin-ctr" in nodes.containers([f"{DEPLOY}device-plugin"])
    assert nodes.containers([]) == frozenset()


def test_a_label_that_only_another_version_changes_ends_nothing() -> None:
    """The record of a change outlives an upgrade, and a return from it."""
    assert nodes.containers([f"{DEPLOY}of-the-next-version"]) == frozenset()
