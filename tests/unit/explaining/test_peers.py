# SPDX-License-Identifier: Apache-2.0
"""Clusters without gpudeck: NVIDIA's device plugin and NVIDIA's DRA driver."""

from __future__ import annotations

import msgspec
import pytest
from tests.support import make

from gpudeck.api.core import Pod
from gpudeck.explaining import answering, cards, matching
from gpudeck.explaining.answering import Answer, State
from gpudeck.explaining.world import Placement

WHOLE = {"nvidia.com/gpu": 1}
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81559"}
NVIDIA_CLASS = (
    "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
)


def explain(pod: make.Object, *objects: make.Object) -> Answer:
    answer = answering.explain(
        msgspec.convert(pod, Pod), msgspec.convert(pod, Placement), make.world(pod, *objects)
    )
    assert sum(answer.counts.values()) == len(answer.verdicts)
    return answer


def plugin_node(
    count: int, *, allocatable: int | None = None, labels: make.Object | None = None
) -> make.Object:
    capacity = {"nvidia.com/gpu": str(count), "cpu": "8"}
    offered = None if allocatable is None else {"nvidia.com/gpu": str(allocatable)}
    return make.node(capacity=capacity, allocatable=offered, labels={**LABELS, **(labels or {})})


def user(name: str, count: int = 1, resource: str = "nvidia.com/gpu") -> make.Object:
    return make.pod(name, limits={resource: count}, node_name="node-0", phase="Running")


def test_cards_of_the_device_plugin_are_counted_and_their_pods_named() -> None:
    answer = explain(make.pod(limits=WHOLE), plugin_node(3), user("a", 2), user("b"))
    assert answer.state is State.NO_CARD_IS_FREE
    assert answer.counts == {"HeldByPod": 3}
    assert answer.sentences == [
        "Pod default/asker waits for 1 card by nvidia.com/gpu: all 3 matching cards are held by "
        "other pods (default/a and default/b)."
    ]
    assert answer.verdicts[0].card.product == "NVIDIA-H100"
    assert "the API does not tell" in answer.verdicts[0].detail


def test_a_card_that_the_plugin_does_not_count_is_not_healthy() -> None:
    answer = explain(make.pod(limits=WHOLE), plugin_node(2, allocatable=1), user("a"))
    assert answer.counts == {"NotHealthy": 1, "HeldByPod": 1}


def test_a_running_pod_of_the_device_plugin_holds_its_card() -> None:
    answer = explain(user("a"), plugin_node(1))
    assert answer.state is State.HOLDS
    assert answer.counts == {"HeldByThisPod": 1}


def test_a_claim_for_something_else_gives_no_card_of_the_plugin_back() -> None:
    held = user("a")
    mapping = {"containerName": "main", "resourceName": "nic.example.com/port", "requestName": "r"}
    made = {"resourceClaimName": "a-nic", "requestMappings": [mapping]}
    held["status"]["extendedResourceClaimStatus"] = made
    answer = explain(make.pod(limits=WHOLE), plugin_node(1), held)
    assert answer.counts == {"HeldByPod": 1}
    mapping["resourceName"] = "nvidia.com/gpu"
    answer = explain(make.pod(limits=WHOLE), plugin_node(1), held)
    assert answer.counts == {"Matches": 1}


def test_time_sliced_cards_are_held_when_all_replicas_are() -> None:
    node = plugin_node(4, labels={"nvidia.com/gpu.replicas": "2", "nvidia.com/gpu.count": "2"})
    answer = explain(make.pod(limits=WHOLE), node, user("a"), user("b"), user("c"))
    found = [each.detail.partition(" (")[0] for each in answer.verdicts]
    assert found == ["default/a", "default/c"]


def test_another_resource_of_the_plugin_does_not_match() -> None:
    node = make.node(capacity={"nvidia.com/mig-1g.10gb": "7"}, labels={"nvidia.com/gpu.count": "1"})
    other = make.node("node-1", capacity={"nvidia.com/gpu": "1"})
    answer = explain(make.pod(limits=WHOLE), node, other)
    assert answer.counts == {"DoesNotMatchClass": 1, "Matches": 1}
    assert answer.verdicts[0].detail == "its node's device plugin offers nvidia.com/mig-1g.10gb"


def nvidia(count: int = 2, **options: object) -> list[make.Object]:
    devices = [make.nvidia_device(index, **options) for index in range(count)]  # type: ignore[arg-type]
    return [
        make.node(),
        make.resource_slice("gpu.nvidia.com", "node-0", *devices),
        make.device_class("gpu.nvidia.com", NVIDIA_CLASS, resource="nvidia.com/gpu"),
    ]


def nvidia_claim(index: int, pod: str) -> make.Object:
    device = make.allocated(index, driver="gpu.nvidia.com", device=f"gpu-{index}")
    return make.claim(f"{pod}-claim", "gpu.nvidia.com", devices=[device], pods=[pod])


def test_cards_of_nvidias_dra_driver_are_known_with_their_holders() -> None:
    answer = explain(make.pod(limits=WHOLE), *nvidia(), nvidia_claim(0, "a"), nvidia_claim(1, "b"))
    assert answer.state is State.NO_CARD_IS_FREE
    assert answer.counts == {"HeldByPod": 2}
    assert answer.verdicts[1].card.uuid == make.uuid("node-0", 1)
    assert answer.verdicts[1].card.memory_mib == 81559


def test_a_tainted_device_is_not_healthy() -> None:
    taint = {"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}
    answer = explain(make.pod(limits=WHOLE), *nvidia(1, taints=[taint]))
    assert answer.counts == {"NotHealthy": 1}


def test_a_card_that_two_sources_tell_of_is_one_card() -> None:
    world = make.world(*nvidia(2), make.card(0), make.card(1))
    found = cards.all_of(world)
    assert len(found) == 2
    assert {card.source for card in found} == {cards.Source.GPUDECK}


def test_free_partitions_are_matched_for_a_partition_class() -> None:
    parts = [
        {"name": f"gpu-0-mig-{index}", "attributes": {
            "type": {"string": "mig"}, "parentUUID": {"string": "GPU-x"},
        }} for index in range(2)
    ]  # fmt: skip
    cel = NVIDIA_CLASS.replace("'gpu'", "'mig'")
    objects = [
        make.node(),
        make.resource_slice("gpu.nvidia.com", "node-0", *parts),
        make.device_class("mig.nvidia.com", cel),
        make.claim("mine", "mig.nvidia.com"),
    ]

    def taken(index: int) -> make.Object:
        device = make.allocated(0, driver="gpu.nvidia.com", device=f"gpu-0-mig-{index}")
        return make.claim(f"c{index}", "mig.nvidia.com", devices=[device], pods=[f"p{index}"])

    one = explain(make.pod(claims=["mine"]), *objects, taken(0))
    assert one.counts == {"Matches": 1}
    both = explain(make.pod(claims=["mine"]), *objects, taken(0), taken(1))
    assert both.counts == {"HeldByPod": 1}


@pytest.mark.parametrize(
    ("cel", "matches"),
    [
        ("device.driver == 'gpu.nvidia.com'", True),
        ('device.driver == "other"', False),
        ("'uuid' in device.attributes['gpu.nvidia.com']", True),
        ("'nothing' in device.attributes['gpu.nvidia.com']", False),
        ("device.attributes['gpu.nvidia.com'].productName != 'x'", True),
        ("device.attributes['gpu.nvidia.com'].missing == 'x'", False),
        ("device.attributes['gpu.nvidia.com'].productName == 7", False),
        ("device.attributes['gpu.nvidia.com'].productName.matches('^NVIDIA H')", True),
        ("device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('a100')", False),
        ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0", True),
        ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('90Gi')) >= 0", False),
        ("device.attributes['gpu.nvidia.com'].cudaComputeCapability"
         ".compareTo(semver('8.0.0')) < 0", False),
        ("(device.driver == 'a' && true) || true", True),
    ],
)  # fmt: skip
def test_the_common_terms_of_cel_are_understood(cel: str, matches: bool) -> None:
    world = make.world(*nvidia(1)[:2], make.device_class("c", cel), make.claim("claim", "c"))
    pod = make.pod(claims=["claim"])
    answer = answering.explain(msgspec.convert(pod, Pod), msgspec.convert(pod, Placement), world)
    assert answer.counts == ({"Matches": 1} if matches else {"DoesNotMatchClass": 1})


def test_cel_is_split_at_its_outer_ands_only() -> None:
    assert matching.split("a == 'x && y' && (b && c) && d") == ["a == 'x && y'", "(b && c)", "d"]
    assert matching.split("a || b && c") == ["a || b && c"]
