# SPDX-License-Identifier: Apache-2.0
"""Why a pod waits on nodes whose cards gpudeck's device plugin hands out."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.support import make

from gpudeck.api.core import Pod
from gpudeck.cli import get
from gpudeck.explaining import answering, cards
from gpudeck.explaining.answering import Answer, State
from gpudeck.explaining.world import Placement

GPU, SHARED, SMALL = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"
MODE = {"gpu.deckhouse.io/active-mode": "device-plugin"}


def explain(pod: make.Object, *objects: make.Object) -> Answer:
    answer = answering.explain(
        msgspec.convert(pod, Pod), msgspec.convert(pod, Placement), make.world(pod, *objects)
    )
    assert sum(answer.counts.values()) == len(answer.verdicts)
    return answer


def node(name: str = "node-0", **capacity: int) -> make.Object:
    offered = {"nvidia.com/" + each.replace("_", "."): str(n) for each, n in capacity.items()}
    return make.node(name, labels=MODE, capacity=offered)


def card(
    index: int,
    resource: str = GPU,
    devices: int = 1,
    *,
    healthy: int | None = None,
    holders: tuple[tuple[str, str], ...] = (),
    conditions: tuple[make.Object, ...] = (),
    **facts: Any,
) -> make.Object:
    """A card that is offered so; `holders` are pods with the devices that they have."""
    made = make.card(index, conditions=conditions)
    offered: make.Object = {"resource": resource, "devices": devices}
    if healthy is not None:
        offered["healthy"] = healthy
    made["status"]["extendedResources"] = [offered] if devices else []
    made["status"]["occupancy"] = {
        "plugin": [
            {"namespace": "default", "pod": pod, "container": "main", "resource": resource,
             "device": device, **facts}
            for pod, device in holders
        ]
    }  # fmt: skip
    return made


def asker(resource: str, count: int = 1) -> make.Object:
    return make.pod(limits={resource: count})


def test_who_holds_which_card_is_known() -> None:
    answer = explain(
        asker(GPU),
        node(gpu=2),
        card(0, holders=(("a", "GPU-0"),)),
        card(1, holders=(("b", "GPU-1"),)),
    )
    assert answer.state is State.NO_CARD_IS_FREE
    assert answer.counts == {"HeldByPod": 2}
    assert [each.detail for each in answer.verdicts] == ["default/a", "default/b"]
    assert answer.sentences == [
        "Pod default/asker waits for 1 card by nvidia.com/gpu: all 2 matching cards are held by "
        "other pods (default/a and default/b)."
    ]


def test_a_pod_of_the_device_plugin_holds_this_card_and_no_other() -> None:
    pod = make.pod("a", limits={GPU: 1}, node_name="node-0", phase="Running")
    answer = explain(pod, node(gpu=2), card(0), card(1, holders=(("a", "GPU-1"),)))
    assert answer.state is State.HOLDS
    assert answer.counts == {"HeldByThisPod": 1, "Matches": 1}
    assert answer.verdicts[1].detail == "by the device plugin"


def test_a_claim_for_another_resource_is_no_claim_for_a_card() -> None:
    nic = "nic.example.com/port"
    pod = make.pod("a", limits={GPU: 1, nic: 1}, node_name="node-1")
    mapping = {"containerName": "main", "resourceName": nic, "requestName": "r"}
    pod["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "a-nic",
        "requestMappings": [mapping],
    }
    answer = explain(pod, node(gpu=1), card(0), node("node-1"))
    assert answer.state is State.PAST_THE_SCHEDULER
    mapping["resourceName"] = GPU
    answer = explain(pod, node(gpu=1), card(0), node("node-1"))
    assert answer.state is State.STARTING


def test_a_sidecar_s_card_is_asked_for_besides_those_of_the_containers() -> None:
    """As the scheduler adds them up (KEP-753); what an init container had is free after it."""
    pod = asker(GPU)
    limits = {"resources": {"limits": {GPU: "1"}}}
    pod["spec"]["initContainers"] = [{"name": "first", **limits}]
    assert explain(pod, node(gpu=1), card(0)).state is State.NOT_SCHEDULED_YET
    pod["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    answer = explain(pod, node(gpu=1), card(0))
    assert answer.asks == ["2 cards by nvidia.com/gpu"]
    assert answer.state is State.TOO_FEW_ON_ONE_NODE


def test_a_part_that_a_pod_holds_is_named_and_the_rest_is_free() -> None:
    pod = make.pod("a", limits={SHARED: 1}, node_name="node-0", phase="Running")
    first = card(0, SHARED, 4, holders=(("a", "GPU-0::0"),), replicas=4)
    others = (card(1, SHARED, 4, holders=(("b", "GPU-1::0"),), replicas=4), card(2, SHARED, 4))
    answer = explain(pod, node(gpu_shared=12), first, *others)
    assert answer.sentences == [
        f"Pod default/a holds 1/4 of GPU-node-0-0 ({make.H100}) on node node-0."
    ]
    assert [each.detail for each in answer.verdicts] == [
        "1/4 of it by the device plugin",
        "3 of 4 nvidia.com/gpu.shared are free; held: default/b (1/4)",
        "",
    ]


def test_a_partition_that_a_pod_holds_is_named() -> None:
    pod = make.pod("a", limits={SMALL: 1}, node_name="node-0", phase="Running")
    held = (("a", "MIG-0"), ("b", "MIG-1"))
    parts = card(0, SMALL, 7, holders=held, profile="1g.10gb")
    answer = explain(pod, make.node(labels=MODE, capacity={SMALL: "7"}), parts)
    assert answer.sentences[0].startswith("Pod default/a holds 1g.10gb of GPU-node-0-0 (")
    full = card(0, SMALL, 2, holders=held, profile="1g.10gb")
    answer = explain(asker(SMALL), make.node(labels=MODE, capacity={SMALL: "2"}), full)
    assert answer.verdicts[0].detail == "default/a (1g.10gb), default/b (1g.10gb)"
    assert answer.sentences[0].endswith("is held by other pods (default/a and default/b).")


def test_many_holders_are_named_in_part() -> None:
    held = tuple((f"p{number:02}", f"GPU-0::{number}") for number in range(64))
    answer = explain(asker(SHARED), node(gpu_shared=64), card(0, SHARED, 64, holders=held))
    assert answer.verdicts[0].detail.endswith("default/p15 and 48 more")
    assert answer.sentences[0].endswith("(default/p00, default/p01, default/p02 and 61 more).")


def test_a_held_device_that_fell_ill_counts_against_the_rest_as_for_the_scheduler() -> None:
    """The kubelet's allocatable amount is without it, and its pod's request still counts."""
    sick = (make.condition("HardwareHealthy", "False", "Xid79", "It fell off the bus."),)
    parts = card(0, SMALL, 7, healthy=6, conditions=sick, holders=(("a", "MIG-0"),))
    a_node = make.node(labels=MODE, capacity={SMALL: "7"}, allocatable={SMALL: "6"})
    assert explain(asker(SMALL, 6), a_node, parts).state is State.TOO_FEW_ON_ONE_NODE
    assert explain(asker(SMALL, 5), a_node, parts).state is State.NOT_SCHEDULED_YET


def test_cards_that_the_config_offers_by_another_name_do_not_match() -> None:
    answer = explain(asker(GPU), node(gpu=0, gpu_shared=4), card(0, SHARED, 4))
    assert answer.state is State.NO_CARD_MATCHES
    assert answer.verdicts[0].detail == (
        "its node's device plugin offers it as nvidia.com/gpu.shared"
    )


def test_a_card_with_a_share_left_matches() -> None:
    held = (("a", "GPU-0::0"), ("b", "GPU-0::1"))
    shared = card(0, SHARED, 4, holders=held, replicas=4)
    answer = explain(asker(SHARED, 2), node(gpu_shared=4), shared)
    assert answer.state is State.NOT_SCHEDULED_YET
    assert answer.sentences[0] == (
        f"Pod default/asker waits for 2 shares by {SHARED}, and 2 matching devices are free on "
        "node node-0."
    )
    answer = explain(asker(SHARED, 3), node(gpu_shared=4), shared)
    assert answer.state is State.TOO_FEW_ON_ONE_NODE


def test_a_card_whose_shares_are_all_held_is_held() -> None:
    held = tuple((f"p{number}", f"GPU-0::{number}") for number in range(2))
    answer = explain(asker(SHARED), node(gpu_shared=2), card(0, SHARED, 2, holders=held))
    assert answer.counts == {"HeldByPod": 1}
    assert answer.verdicts[0].detail == "default/p0, default/p1"


def test_a_card_that_waits_for_a_pod_of_the_config_before_is_held() -> None:
    waiting = card(0, SHARED, 4, healthy=0, holders=(("a", "GPU-0"),))
    waiting["status"]["occupancy"]["plugin"][0]["resource"] = GPU
    answer = explain(asker(SHARED), node(gpu_shared=4), waiting)
    assert answer.counts == {"HeldByPod": 1}


def test_a_sick_card_is_not_healthy_unless_parts_of_it_are() -> None:
    sick = (make.condition("HardwareHealthy", "False", "Xid79", "It fell off the bus."),)
    answer = explain(asker(GPU), node(gpu=1), card(0, healthy=0, conditions=sick))
    assert answer.counts == {"NotHealthy": 1}
    parts = card(0, SMALL, 7, healthy=6, conditions=sick)
    answer = explain(asker(SMALL), make.node(labels=MODE, capacity={SMALL: "7"}), parts)
    assert answer.counts == {"Matches": 1}


def test_a_card_of_which_nothing_is_offered_says_why() -> None:
    why = "0000:1b:00.0: MIG is enabled and the card has no partition."
    published = (make.condition("Published", "False", "CardNotPartitioned", why),)
    answer = explain(asker(GPU), node(gpu=1), card(0), card(1, devices=0, conditions=published))
    assert answer.counts == {"NotPublished": 1, "Matches": 1}
    assert answer.verdicts[1].detail == f"CardNotPartitioned: {why}"


def test_a_resource_that_no_node_has_is_named_with_the_nearest() -> None:
    answer = explain(asker("nvidia.com/mig-1g.5gb"), node(), card(0, SMALL, 7))
    assert answer.state is State.NAMES_WHAT_IS_NOT_THERE
    assert "did you mean nvidia.com/mig-1g.10gb?" in answer.sentences[0]


def test_cards_that_are_offered_by_several_names_are_counted_by_name() -> None:
    both = node(gpu=0, gpu_shared=4, mig_1g_10gb=7)
    answer = explain(asker(GPU), both, card(0, SHARED, 4), card(1, SMALL, 7), card(2, SMALL, 7))
    assert answer.sentences == [
        "Pod default/asker waits for 1 card by nvidia.com/gpu, but none of the 3 cards of the "
        "cluster matches: its node's device plugin offers it as nvidia.com/mig-1g.10gb (2); its "
        "node's device plugin offers it as nvidia.com/gpu.shared (1)."
    ]


def test_a_profile_of_which_nothing_is_left_says_what_makes_it() -> None:
    """The kubelet goes on to tell 0 of it until the plugin starts anew."""
    asked = "nvidia.com/mig-3g.40gb"
    mixed = {**MODE, "nvidia.com/mig.strategy": "mixed"}
    left = make.node(labels=mixed, capacity={asked: "0", SMALL: "7"})
    assert explain(asker(asked), left, partitionable(0)).sentences == [
        f"Pod default/asker waits for 1 partition by {asked}, but none of the 1 cards of the "
        "cluster matches: its node's device plugin offers it as nvidia.com/mig-1g.10gb; 1 card "
        "can have such partitions: the label nvidia.com/mig.config=all-3g.40gb of a Node makes "
        "them on its cards."
    ]


def test_what_no_device_plugin_serves_any_more_is_free_to_nobody() -> None:
    gone = make.node(labels=MODE, capacity={GPU: "0"})
    answer = explain(asker(GPU), gone, card(0))
    assert answer.counts == {"NotPublished": 1}
    assert answer.verdicts[0].detail == (
        "no device plugin of its node serves it: the kubelet counts no nvidia.com/gpu"
    )
    world = make.world(gone, card(0))
    (row,) = get.nodes(world, cards.all_of(world))
    assert row["offered"] == [{"resource": GPU, "devices": 0, "free": 0}]


def partitionable(index: int, node_name: str = "node-0") -> make.Object:
    made = make.card(index, node_name)
    profile = {"name": "3g.40gb", "profileID": 9, "memoryMiB": 40320, "maxInstances": 2,
               "slices": 3, "multiprocessors": 60}  # fmt: skip
    support = {"supported": True, "totalSlices": 7, "profiles": [profile]}
    made["status"]["capabilities"]["partitionSupport"] = support
    made["status"]["extendedResources"] = [{"resource": SMALL, "devices": 7}]
    return made


def test_a_profile_that_cards_can_have_is_no_misspelling() -> None:
    asked = "nvidia.com/mig-3g.40gb"
    mixed = make.node(labels={**MODE, "nvidia.com/mig.strategy": "mixed"})
    answer = explain(asker(asked), mixed, partitionable(0), partitionable(1))
    assert answer.state is State.NAMES_WHAT_IS_NOT_THERE
    assert answer.sentences == [
        f"Pod default/asker cannot start: resources.limits: {asked} is offered by no class and no "
        "node; 2 cards can have such partitions: the label nvidia.com/mig.config=all-3g.40gb of a "
        "Node makes them on its cards."
    ]
    answer = explain(asker(asked), node(), partitionable(0))
    assert answer.sentences[0].endswith(
        "on its cards, and the MIG strategy mixed offers them by that name."
    )
    in_dra = make.node(labels={"gpu.deckhouse.io/active-mode": "dra"})
    answer = explain(asker(asked), in_dra, partitionable(0))
    assert answer.sentences[0].endswith(
        "on nodes in DRA mode a GPUClass offers them that has this extendedResourceName, devices "
        "[Partition] and partition.profiles [3g.40gb]."
    )
    answer = explain(asker("nvidia.com/mig-2g.10gb"), node(), partitionable(0))
    assert "did you mean nvidia.com/mig-1g.10gb?" in answer.sentences[0]


def test_a_pod_that_the_kubelet_turned_away_says_why() -> None:
    refused = make.pod(limits={SHARED: 2}, node_name="node-0", phase="Failed")
    why = f"Allocate failed due to a container asks for 2 of {SHARED}; allowed: 1"
    refused["status"] |= {"reason": "UnexpectedAdmissionError", "message": why}
    answer = explain(refused, node(gpu_shared=4), card(0, SHARED, 4))
    assert answer.state is State.ENDED
    assert answer.sentences == [
        "Pod default/asker has ended (Failed) and holds no card.",
        f"The kubelet said UnexpectedAdmissionError: {why}.",
    ]


def test_a_claim_gets_no_card_of_a_device_plugin() -> None:
    pod = make.pod(claims=["c"])
    objects = (node(gpu=1), card(0), make.claim("c"), *make.classes("h100"))
    answer = explain(pod, *objects)
    assert answer.state is State.NO_CARD_MATCHES
    assert "classes are for DRA" in answer.verdicts[0].detail


def test_get_shows_holders_and_what_a_card_is_offered_as() -> None:
    held = (("a", "GPU-0::0"), ("a", "GPU-0::1"))
    world = make.world(node(gpu_shared=8), card(0, SHARED, 4, holders=held, replicas=4),
                       card(1, SHARED, 4))  # fmt: skip
    first, second = get.cards_(world, cards.all_of(world))
    assert (first["heldBy"], first["offeredAs"]) == (["default/a (2/4)"], [SHARED])
    assert (first["state"], second["state"], first["exact"]) == ("Partial", "Free", True)
    assert not cards.needs_pods(world)
    (row,) = get.nodes(world, cards.all_of(world))
    assert row["offered"] == [{"resource": SHARED, "devices": 8, "free": 6}]


def test_get_counts_the_cards_of_a_class_that_the_device_plugin_hands_out() -> None:
    in_dra = make.node("node-1", labels={"gpu.deckhouse.io/active-mode": "dra"})
    other = make.card(1, product=make.A100)
    world = make.world(node(gpu=2), in_dra, card(0), other, make.card(0, "node-1"),
                       *make.classes("h100", products=["*H100*"]))  # fmt: skip
    (row,) = get.classes(world, cards.all_of(world))
    assert row["byPlugin"] == 1


def test_partitions_of_a_pod_are_named_by_profile() -> None:
    held = (("a", "MIG-0"), ("b", "MIG-1"), ("b", "MIG-2"))
    world = make.world(node(), card(0, SMALL, 7, holders=held, profile="1g.10gb"))
    (found,) = cards.all_of(world)
    assert [each.label for each in found.holders] == [
        "default/a (1g.10gb)",
        "default/b (2 1g.10gb)",
    ]


def test_what_the_kubelet_still_counts_of_a_plugin_that_ended_offers_nothing_in_dra_mode() -> None:
    why = "The card is in partitioning mode, so it cannot be used whole."
    partitioned = make.card(0)
    partitioned["status"]["conditions"] += [
        make.condition("Published", "False", "CardPartitioned", why)
    ]
    left = make.node(
        labels={"gpu.deckhouse.io/active-mode": "dra"}, capacity={GPU: "0", SMALL: "28"}
    )
    left["status"]["allocatable"] = {GPU: "0", SMALL: "0"}
    held = make.pod("a", limits={SMALL: 1}, node_name="node-0", phase="Running")
    (found,) = cards.all_of(make.world(left, partitioned, held))
    assert (found.is_plugin_node, found.holders) == (False, [])
    assert not cards.needs_pods(make.world(left, partitioned))
    answer = explain(asker(SMALL), left, partitioned)
    assert "Matches" not in answer.counts
    answer = explain(asker(GPU), left, partitioned, *make.classes("gpu", resource=GPU))
    assert "Matches" not in answer.counts
