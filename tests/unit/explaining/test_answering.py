# SPDX-License-Identifier: Apache-2.0
"""Explanations: the sentences, and one reason for every card, for the stories people ask about."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import make

from gpudeck.api.core import Pod
from gpudeck.explaining import answering
from gpudeck.explaining.answering import Answer, State
from gpudeck.explaining.world import Placement

H100_ONLY: make.Object = {"products": ["*H100*"]}
ASK_H100 = {"gpu.deckhouse.io/h100": 1}


def offers(*objects: make.Object) -> list[make.Object]:
    """The slice of each node with those of its cards that say they are published."""
    devices: dict[str, list[make.Object]] = {}
    for each in objects:
        if each["kind"] == "PhysicalGPU":
            status = each["status"]
            known = {one["type"]: one["status"] for one in status["conditions"]}
            name = "gpu-" + status["pciInfo"]["address"].replace(":", "-").replace(".", "-")
            found = devices.setdefault(status["nodeInfo"]["nodeName"], [])
            found += [{"name": name}] if known.get("Published") == "True" else []
    return [
        make.resource_slice("gpu.deckhouse.io", node, *found) for node, found in devices.items()
    ]


def explain(
    pod: make.Object,
    *objects: make.Object,
    slices: list[make.Object] | None = None,
    unreadable: Any = (),
) -> Answer:
    """Explain the pod; unless `slices` are given, every published card is in one."""
    known = offers(*objects) if slices is None else slices
    world = make.world(pod, *objects, *known)
    world.unreadable = list(unreadable)
    answer = answering.explain(msgspec.convert(pod, Pod), msgspec.convert(pod, Placement), world)
    assert sum(answer.counts.values()) == len(answer.verdicts)
    assert 1 <= len(answer.sentences) <= 2
    return answer


def two_nodes(cards: int = 8) -> list[make.Object]:
    """Eight H100 and four A100."""
    return [
        make.node("node-0"),
        make.node("node-1"),
        *(make.card(index) for index in range(cards)),
        *(make.card(index, "node-1", product=make.A100) for index in range(4)),
        *make.classes("h100", **H100_ONLY),
        *make.classes("gpu", resource="nvidia.com/gpu"),
    ]


def test_the_ninth_pod_for_eight_cards_is_told_who_holds_them() -> None:
    held = [make.held(index, f"nine-{index}") for index in range(8)]
    answer = explain(make.pod("nine-8", limits=ASK_H100), *two_nodes(), *held)
    assert answer.state is State.NO_CARD_IS_FREE
    assert answer.counts == {"DoesNotMatchClass": 4, "HeldByPod": 8}
    assert answer.sentences == [
        "Pod default/nine-8 waits for 1 card by gpu.deckhouse.io/h100: all 8 matching cards are "
        "held by other pods (default/nine-0, default/nine-1, default/nine-2 and 5 more).",
        "The other 4 cards do not match: spec.requirements.products must be *H100*, "
        "it has NVIDIA A100-SXM4-40GB.",
    ]


def test_a_running_pod_is_told_its_card() -> None:
    claim = make.held(3, "mine")
    status = {
        "extendedResourceClaimStatus": {"resourceClaimName": "mine-claim", "requestMappings": []}
    }
    pod = make.pod("mine", limits=ASK_H100, node_name="node-0", phase="Running", status=status)
    answer = explain(pod, *two_nodes(), claim)
    assert answer.state is State.HOLDS
    assert answer.sentences == [
        "Pod default/mine holds GPU-node-0-3 (NVIDIA H100 80GB HBM3) on node node-0."
    ]
    assert answer.counts == {"HeldByThisPod": 1, "DoesNotMatchClass": 4, "Matches": 7}


SINCE = "2026-11-30T10:00:00Z"


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (make.condition("HardwareHealthy", "False", "Xid79", "It fell off the bus.", SINCE),
         "is not healthy since 2026-11-30T10:00:00Z (Xid79: It fell off the bus)."),
        (make.condition("Discovered", "False", "CardGone"), "has disappeared (CardGone)."),
        (make.condition("DriverReady", "False", "DriverNotLoaded"),
         "has no ready driver (DriverNotLoaded)."),
    ],
    ids=["ill", "gone", "without driver"],
)  # fmt: skip
@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_pod_is_told_what_ails_the_card_that_it_holds(
    condition: make.Object, said: str, phase: str
) -> None:
    objects = two_nodes(3)
    claims = [make.held(3, "mine"), make.held(2, "other")]
    pod = make.pod("mine", claims=["mine-claim"], node_name="node-0", phase=phase)
    answer = explain(pod, *objects, make.card(3, conditions=[condition]), *claims)
    assert answer.sentences[1] == f"GPU-node-0-3 (NVIDIA H100 80GB HBM3) {said}"
    healthy = explain(make.pod("other", claims=["other-claim"], node_name="node-0", phase=phase),
                      *objects, make.card(3, conditions=[condition]), *claims)  # fmt: skip
    assert len(healthy.sentences) == 1


INSTEAD = (
    "Make it anew without spec.nodeName; spec.nodeSelector with kubernetes.io/hostname: node-0 "
    "keeps it on that node."
)
PAST = (
    "Pod default/mine was not put on node node-0 by kube-scheduler (its author set spec.nodeName, "
    "or another scheduler bound it), so "
)


def test_a_pod_that_passed_the_scheduler_by_is_told_that_it_has_no_card() -> None:
    pod = make.pod("mine", limits=ASK_H100, node_name="node-0", phase="Running")
    answer = explain(pod, *two_nodes())
    assert answer.state is State.PAST_THE_SCHEDULER
    without = "it does without 1 card by gpu.deckhouse.io/h100, and it holds no card."
    assert answer.sentences == [PAST + without, INSTEAD]


def test_a_pod_past_the_scheduler_is_told_which_claims_nobody_allocates() -> None:
    claims = [make.held(3, "mine"), make.claim("second")]
    pod = make.pod("mine", claims=["mine-claim", "second"], node_name="node-0")
    answer = explain(pod, *two_nodes(), *claims)
    assert answer.state is State.PAST_THE_SCHEDULER
    held = "it holds GPU-node-0-3 (NVIDIA H100 80GB HBM3)."
    lacks = "it cannot start: nothing is allocated for 1 card of class h100"
    assert answer.sentences == [f"{PAST}{lacks}, and {held}", INSTEAD]


def test_a_pod_on_a_node_with_a_device_plugin_needs_no_scheduler_for_its_card() -> None:
    plugin = make.node("node-0", capacity={"nvidia.com/gpu": "8"})
    pod = make.pod("mine", limits={"nvidia.com/gpu": 1}, node_name="node-0", phase="Running")
    answer = explain(
        pod, plugin, make.card(0), *make.classes("gpu", resource="nvidia.com/gpu"), pod
    )
    assert answer.state is State.HOLDS


def test_two_claims_of_one_pod_are_both_told() -> None:
    claims = [
        make.claim(f"claim-{index}", devices=[make.allocated(index)], pods=["mine"])
        for index in (0, 1)
    ]
    pod = make.pod("mine", claims=["claim-0", "claim-1"], node_name="node-0", phase="Running")
    answer = explain(pod, *two_nodes(), *claims)
    assert "holds GPU-node-0-0 (NVIDIA H100 80GB HBM3) and GPU-node-0-1" in answer.sentences[0]


def test_a_pod_that_asks_for_nothing_is_told_so() -> None:
    answer = explain(make.pod("plain", limits={"cpu": 1}), *two_nodes())
    assert answer.state is State.ASKS_NO_CARD
    assert answer.sentences == ["Pod default/plain does not ask for a card."]
    assert answer.counts == {"NotAsked": 12}


def test_a_claim_that_somebody_gave_to_a_pod_that_names_none_is_told() -> None:
    answer = explain(make.pod("plain"), *two_nodes(), make.held(0, "plain"))
    assert answer.state is State.NOT_SCHEDULED_YET
    assert answer.counts == {"HeldByThisPod": 1, "NotAsked": 11}
    assert answer.sentences[0].endswith(" and is not bound to a node yet.")


def test_a_pod_that_has_ended_holds_nothing() -> None:
    answer = explain(make.pod("done", limits=ASK_H100, phase="Succeeded"), *two_nodes())
    assert answer.sentences == ["Pod default/done has ended (Succeeded) and holds no card."]


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        (make.pod(limits={"gpu.deckhouse.io/h10": 1}),
         "resources.limits: gpu.deckhouse.io/h10 is offered by no class and no node; "
         "did you mean gpu.deckhouse.io/h100?"),
        (make.pod(limits={"nvidia.com/gpus": 1}), "did you mean nvidia.com/gpu?"),
        (make.pod(limits={"nvidia.com/mig-1g.10gb": 1}),
         "nvidia.com/mig-1g.10gb is offered by no class and no node"),
        (make.pod(claims=["clam"]),
         "spec.resourceClaims[0].resourceClaimName: claim default/clam does not exist; "
         "did you mean default/claim?"),
        (make.pod(templates=["nothing"]),
         "spec.resourceClaims[0].resourceClaimTemplateName: template default/nothing does not "
         "exist"),
        (make.pod(claims=["odd"]), "class h1000 does not exist; did you mean h100?"),
        (make.pod(claims=["broken"]),
         "GPUClass broken is not ready: A DeviceClass of that name is somebody else's."),
    ],
    ids=["resource", "plugin resource", "no resource", "claim", "template", "class", "not ready"],
)  # fmt: skip
def test_what_is_not_there_is_named_with_the_nearest_that_is(pod: make.Object, said: str) -> None:
    answer = explain(
        pod,
        *two_nodes(),
        make.claim("claim"),
        make.claim("odd", "h1000"),
        make.claim("broken", "broken"),
        make.gpu_class("broken", ready=False),
    )
    assert answer.state is State.NAMES_WHAT_IS_NOT_THERE
    assert said in answer.sentences[0]


def test_a_name_belongs_to_the_class_that_has_it_and_not_to_one_that_lost_it() -> None:
    loser = make.gpu_class("a-loser", ready=False, resource="gpu.deckhouse.io/h100")
    loser["status"]["conditions"][0]["reason"] = "ExtendedResourceConflict"
    winner = make.gpu_class("h100", **H100_ONLY)
    objects = [make.node("node-0"), make.card(0), loser, winner, make.device_class("h100")]
    answer = explain(make.pod(limits=ASK_H100), *objects)
    assert answer.state is State.NOT_SCHEDULED_YET


def test_other_extended_resources_are_not_ours_to_judge() -> None:
    answer = explain(make.pod(limits={"example.com/fpga": 1, "hugepages-2Mi": "4Mi"}), *two_nodes())
    assert answer.state is State.ASKS_NO_CARD


def test_each_obstacle_is_a_reason_of_its_own() -> None:
    def bad(kind: str, reason: str) -> list[make.Object]:
        return [make.condition(kind, "False", reason, f"{reason}.")]

    objects = [
        make.node("node-0"),
        make.node("down", ready=False),
        make.node("cordoned", spec={"unschedulable": True}),
        make.node("tainted", spec={"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}),
        make.node("other", labels={"pool": "b"}),
        make.card(0),
        make.card(1, conditions=bad("Discovered", "CardGone"), phase="Lost"),
        make.card(2, conditions=bad("DriverReady", "DriverNotLoaded")),
        make.card(3, conditions=bad("HardwareHealthy", "Xid79")),
        make.card(4, conditions=bad("Published", "CardPartitioned")),
        make.card(5, told=False),
        make.card(6, product=make.A100),
        make.card(7),
        make.card(0, "down"),
        make.card(0, "cordoned"),
        make.card(0, "tainted"),
        make.card(0, "other"),
        make.card(0, "gone"),
        make.held(0, "somebody"),
        make.claim("forgotten", devices=[make.allocated(7)]),
        *make.classes("h100", **H100_ONLY),
    ]
    for each in objects[:4]:
        each["metadata"]["labels"]["pool"] = "a"
    pod = make.pod(limits=ASK_H100, spec={"nodeSelector": {"pool": "a"}})
    answer = explain(pod, *objects)
    found = {(each.card.node, each.card.address): (str(each.reason), each.detail)
             for each in answer.verdicts}  # fmt: skip
    assert found == {
        ("node-0", make.address(0)): ("HeldByPod", "default/somebody"),
        ("node-0", make.address(1)): ("Lost", "CardGone: CardGone."),
        ("node-0", make.address(2)): ("DriverNotReady", "DriverNotLoaded: DriverNotLoaded."),
        ("node-0", make.address(3)): ("NotHealthy", "Xid79: Xid79."),
        ("node-0", make.address(4)): ("NotPublished", "CardPartitioned: CardPartitioned."),
        ("node-0", make.address(5)): ("DriverNotReady", "no adapter has told of its driver yet"),
        ("node-0", make.address(6)): (
            "DoesNotMatchClass",
            "spec.requirements.products must be *H100*, it has NVIDIA A100-SXM4-40GB",
        ),
        ("node-0", make.address(7)): ("HeldByClaim", "claim default/forgotten"),
        ("down", make.address(0)): ("NodeNotReady", "node down is not Ready"),
        ("cordoned", make.address(0)): ("NodeUnschedulable", "node cordoned is cordoned"),
        ("tainted", make.address(0)): (
            "TaintNotTolerated",
            "node tainted has the taint a=b:NoSchedule",
        ),
        ("other", make.address(0)): (
            "NodeSelectorMismatch",
            "nodeSelector asks pool=a, node other has pool=b",
        ),
        ("gone", make.address(0)): ("NodeNotReady", "node gone does not exist"),
    }
    assert answer.state is State.NO_CARD_IS_FREE
    assert "of 12 matching cards" in answer.sentences[0]


def test_a_card_that_no_slice_offers_is_not_free_whatever_its_condition_says() -> None:
    answer = explain(make.pod(limits=ASK_H100), *two_nodes(2), slices=[])
    assert answer.state is State.NO_CARD_IS_FREE
    assert answer.counts == {"DoesNotMatchClass": 4, "NotPublished": 2}
    assert answer.sentences[0] == (
        "Pod default/asker waits for 1 card by gpu.deckhouse.io/h100: all 2 matching cards are "
        "not offered to Kubernetes (no ResourceSlice of node node-0 offers it; is the "
        "nvidia-adapter pod on that node running?)."
    )


def test_a_slice_of_the_node_that_lacks_the_card_does_not_offer_it() -> None:
    published = make.resource_slice("gpu.deckhouse.io", "node-0", {"name": make.device_name(1)})
    other = make.resource_slice("gpu.deckhouse.io", "node-1", {"name": make.device_name(0)})
    answer = explain(make.pod(limits=ASK_H100), *two_nodes(2), slices=[published, other])
    found = [(str(each.reason), each.detail) for each in answer.verdicts[:2]]
    assert found == [("NotPublished", "no ResourceSlice of node node-0 offers it"), ("Matches", "")]


def test_where_slices_may_not_be_read_the_condition_counts() -> None:
    answer = explain(
        make.pod(limits=ASK_H100), *two_nodes(2), slices=[], unreadable=["resourceslices"]
    )
    assert answer.counts == {"DoesNotMatchClass": 4, "Matches": 2}


def without_class(name: str) -> list[make.Object]:
    """The two nodes after a class was deleted."""
    return [
        each
        for each in two_nodes()
        if each["kind"] not in ("GPUClass", "DeviceClass") or each["metadata"]["name"] != name
    ]


BY_RESOURCE: make.Object = {
    "limits": ASK_H100,
    "status": {
        "extendedResourceClaimStatus": {"resourceClaimName": "mine-claim", "requestMappings": []}
    },
}


@pytest.mark.parametrize(
    ("asking", "note"),
    [
        (BY_RESOURCE, "resources.limits: gpu.deckhouse.io/h100 is offered by no class and no "
                      "node."),
        ({"claims": ["mine-claim"]}, "class h100 does not exist."),
    ],
    ids=["resource", "claim"],
)  # fmt: skip
def test_a_running_pod_whose_class_was_deleted_holds_its_card(
    asking: make.Object, note: str
) -> None:
    pod = make.pod("mine", node_name="node-0", phase="Running", **asking)
    answer = explain(pod, *without_class("h100"), make.held(3, "mine"))
    assert answer.state is State.HOLDS
    assert answer.sentences == [
        "Pod default/mine holds GPU-node-0-3 (NVIDIA H100 80GB HBM3) on node node-0."
    ]
    assert answer.notes == [f"A new pod like it could not start: {note}"]
    assert answer.counts == {"HeldByThisPod": 1, "DoesNotMatchClass": 11}


def test_a_running_pod_whose_claim_may_not_be_read_is_not_said_to_be_unable_to_start() -> None:
    pod = make.pod("mine", node_name="node-0", phase="Running", **BY_RESOURCE)
    answer = explain(pod, *without_class("h100"), unreadable=["resourceclaims"])
    assert answer.sentences == [
        "Pod default/mine runs on node node-0; the API does not tell which card it holds."
    ]


@pytest.mark.parametrize("asking", [BY_RESOURCE, {"claims": ["mine-claim"]}])
def test_a_pod_with_a_card_and_no_node_yet_needs_its_class_no_more(asking: make.Object) -> None:
    answer = explain(make.pod("mine", **asking), *without_class("h100"), make.held(3, "mine"))
    assert answer.state is State.NOT_SCHEDULED_YET
    assert answer.sentences == [
        "Pod default/mine holds GPU-node-0-3 (NVIDIA H100 80GB HBM3) and is not bound to a node "
        "yet.",
        "The scheduler default-scheduler has not looked at it yet.",
    ]


def test_a_bound_pod_without_a_card_still_needs_its_class() -> None:
    pod = make.pod("mine", limits=ASK_H100, node_name="node-0")
    answer = explain(pod, *without_class("h100"))
    assert answer.state is State.NAMES_WHAT_IS_NOT_THERE
    assert answer.notes == []


def test_a_card_that_is_held_does_not_hide_another_claim_that_cannot_be_met() -> None:
    claims = [make.held(3, "mine"), make.claim("second", "absent")]
    answer = explain(make.pod("mine", claims=["mine-claim", "second"]), *two_nodes(), *claims)
    assert answer.sentences == ["Pod default/mine cannot start: class absent does not exist."]


def test_more_cards_than_one_node_has_free_is_said_so() -> None:
    objects = [
        make.node("node-0"),
        make.node("node-1"),
        make.card(0),
        make.card(0, "node-1"),
        *make.classes("h100", **H100_ONLY),
    ]
    answer = explain(make.pod(limits={"gpu.deckhouse.io/h100": 2}), *objects)
    assert answer.state is State.TOO_FEW_ON_ONE_NODE
    assert (
        "waits for 2 cards by gpu.deckhouse.io/h100 on one node, and at most 1 matching card"
        in (answer.sentences[0])
    )


def test_no_card_of_the_class_is_said_with_the_common_reason() -> None:
    answer = explain(
        make.pod(claims=["claim"]),
        make.node("node-0"),
        make.card(0, product=make.A100),
        make.claim("claim", "h100"),
        *make.classes("h100", **H100_ONLY),
    )
    assert answer.state is State.NO_CARD_MATCHES
    assert answer.sentences == [
        "Pod default/asker waits for 1 card of class h100, but none of the 1 cards of the cluster "
        "matches: spec.requirements.products must be *H100*, it has NVIDIA A100-SXM4-40GB."
    ]


def test_a_cluster_without_cards_is_said_so() -> None:
    answer = explain(
        make.pod(limits=ASK_H100), make.node("node-0"), *make.classes("h100", **H100_ONLY)
    )
    assert answer.state is State.NO_CARDS


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "The scheduler default-scheduler has not looked at it yet."),
        ({"spec": {"schedulerName": "volcano"}},
         "The scheduler volcano has not looked at it yet."),
        ({"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}},
         "It waits for its scheduling gates to be lifted: kueue.x-k8s.io/admission."),
        ({"status": {"conditions": [{"type": "PodScheduled", "status": "False",
                                     "message": "0/2 nodes are available: 2 Insufficient cpu."}]}},
         "The scheduler last said: 0/2 nodes are available: 2 Insufficient cpu."),
    ],
)  # fmt: skip
def test_with_a_free_card_the_scheduler_is_asked(changes: make.Object, said: str) -> None:
    answer = explain(make.pod(limits=ASK_H100, **changes), *two_nodes(1))
    assert answer.state is State.NOT_SCHEDULED_YET
    assert answer.sentences == [
        "Pod default/asker waits for 1 card by gpu.deckhouse.io/h100, and 1 matching card is free "
        "on node node-0.",
        said,
    ]


def test_a_bound_pod_that_does_not_start_is_told_what_the_kubelet_says() -> None:
    event = {
        "kind": "Event", "metadata": {"name": "e"}, "type": "Warning", "lastTimestamp": "2026",
        "reason": "FailedPrepareDynamicResources", "message": "the adapter is away",
    }  # fmt: skip
    claim = make.claim("claim", devices=[make.allocated(0)], pods=["asker"])
    answer = explain(make.pod(claims=["claim"], node_name="node-0"), *two_nodes(), claim, event)
    assert answer.state is State.STARTING
    assert answer.sentences[1] == (
        "The kubelet last said FailedPrepareDynamicResources: the adapter is away."
    )


def test_a_claim_that_a_quota_refused_is_said_so() -> None:
    event = {
        "kind": "Event", "metadata": {"name": "e"}, "type": "Warning", "lastTimestamp": "2026",
        "reason": "FailedResourceClaimCreation", "message": "exceeded quota: gpus, limited: 2",
    }  # fmt: skip
    answer = explain(make.pod(limits=ASK_H100), *two_nodes(1), event)
    assert answer.sentences[1] == "Its claim could not be made: exceeded quota: gpus, limited: 2."


def test_a_claim_from_a_template_is_followed_before_and_after_it_is_made() -> None:
    template = {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "card", "namespace": "default"},
        "spec": {"spec": make.claim("x")["spec"]},
    }
    before = explain(make.pod(templates=["card"]), *two_nodes(), template)
    assert before.state is State.NOT_SCHEDULED_YET
    status = {"resourceClaimStatuses": [{"name": "card", "resourceClaimName": "card-xyz"}]}
    made = make.claim("card-xyz", devices=[make.allocated(2)], pods=["asker"])
    after = explain(
        make.pod(templates=["card"], status=status, node_name="node-0", phase="Running"),
        *two_nodes(), template, made,
    )  # fmt: skip
    assert "GPU-node-0-2" in after.sentences[0]


def test_of_several_options_any_will_do() -> None:
    claim = make.claim("claim")
    claim["spec"]["devices"]["requests"] = [
        {"name": "gpu", "firstAvailable": [
            {"name": "big", "deviceClassName": "h100"}, {"name": "any", "deviceClassName": "gpu"},
        ]}
    ]  # fmt: skip
    answer = explain(make.pod(claims=["claim"]), *two_nodes(), claim)
    assert answer.counts == {"Matches": 12}


def test_administrators_access_holds_nothing() -> None:
    watcher = make.claim("watcher", devices=[make.allocated(0, admin=True)], pods=["watcher"])
    answer = explain(make.pod(limits=ASK_H100), *two_nodes(1), watcher)
    assert answer.counts["Matches"] == 1


def test_what_may_not_be_read_is_noted() -> None:
    answer = explain(make.pod(limits=ASK_H100), *two_nodes(1), unreadable=["resourceslices"])
    assert answer.notes == ["You may not read resourceslices, so the answer leaves it out."]


def test_cel_that_is_not_understood_is_taken_as_met_and_noted() -> None:
    cel = "device.attributes['gpu.deckhouse.io'].productName.startsWith('NVIDIA')"
    answer = explain(make.pod(claims=["claim"]), *two_nodes(1), make.claim("claim", cel=[cel]))
    assert answer.counts["Matches"] == 1
    assert answer.notes == [f"Not evaluated here, taken as met: {cel}"]
