# SPDX-License-Identifier: Apache-2.0
"""What caches keep is enough to decide, and no more."""

from __future__ import annotations

import msgspec
from tests.support import gpus

from gpudeck.api import selectors
from gpudeck.api.core import Node, NodeCondition, NodeStatus
from gpudeck.api.meta import ObjectMeta
from gpudeck.api.resource import ResourceClaim
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller import keeping, models


def claim(*results: dict[str, object], pods: tuple[str, ...] = ()) -> ResourceClaim | None:
    return keeping.claim(msgspec.convert(gpus.claim("c", *results, pods=pods), ResourceClaim))


def test_a_kept_card_has_the_traits_and_conditions_of_the_whole_one() -> None:
    found = msgspec.convert(gpus.gpu(phase="Ready"), PhysicalGPU)
    kept = keeping.gpu(found)
    assert selectors.traits_of_gpu(kept) == selectors.traits_of_gpu(found)
    assert kept.status is not None
    assert found.status is not None
    assert kept.status.conditions == found.status.conditions
    assert kept.status.phase == "Ready"
    assert kept.status.node_info is None


def test_a_change_that_nobody_reads_is_no_change() -> None:
    first, second = gpus.gpu(), gpus.gpu()
    second["metadata"]["resourceVersion"] = "2"
    second["status"]["nodeInfo"]["kernelRelease"] = "6.18"
    kept = [keeping.gpu(msgspec.convert(each, PhysicalGPU)) for each in (first, second)]
    assert kept[0] == kept[1]


def test_a_claim_that_holds_nothing_of_ours_is_not_kept() -> None:
    assert claim() is None
    assert claim(gpus.result(driver="nic.example.com")) is None


def test_administrative_access_holds_nothing() -> None:
    assert claim(gpus.result(adminAccess=True)) is None


def test_a_kept_claim_has_our_devices_and_its_pods() -> None:
    kept = claim(gpus.result(), gpus.result(driver="nic.example.com"), pods=("b", "a"))
    assert kept is not None
    assert kept.status is not None
    assert kept.status.allocation is not None
    assert kept.status.allocation.devices is not None
    assert [each.device for each in kept.status.allocation.devices.results or ()] == [
        "gpu-0000-1b-00-0"
    ]
    assert [each.name for each in kept.status.reserved_for or ()] == ["b", "a"]


def test_cards_of_one_model_share_what_they_can_be_cut_into() -> None:
    kept = [
        keeping.gpu(msgspec.convert(gpus.gpu(support=gpus.FOUR_SLICES, address=each), PhysicalGPU))
        for each in ("0000:1b:00.0", "0000:2a:00.0")
    ]
    first, second = (each.status.capabilities for each in kept if each.status)
    assert first is not None
    assert second is not None
    assert first.partition_support is second.partition_support
    assert models.of(first.partition_support) == models.of(second.partition_support)


def test_a_change_of_a_cards_partitions_is_kept() -> None:
    partition = {"profile": "1g.6gb", "uuid": "MIG-a", "placement": "0:1"}
    state = {"partitioning": {"mode": "Enabled", "partitions": [partition]}}
    kept = keeping.gpu(msgspec.convert(gpus.gpu(currentState=state), PhysicalGPU))
    assert kept.status is not None
    assert kept.status.current_state is not None
    cut = kept.status.current_state.partitioning
    assert cut is not None
    assert [(each.profile, each.placement) for each in cut.partitions or ()] == [("1g.6gb", "0:1")]


def test_of_a_node_labels_and_our_annotations_stay() -> None:
    found = Node(
        metadata=ObjectMeta(
            name="node-0",
            uid="u",
            resource_version="7",
            labels={"gpu.deckhouse.io/vendor": "nvidia", "pool": "a"},
            annotations={"gpu.deckhouse.io/drain": "{}", "other": "x"},
        )
    )
    kept = keeping.node(found)
    assert kept is not None
    assert kept.metadata == ObjectMeta(
        name="node-0",
        uid="u",
        labels={"gpu.deckhouse.io/vendor": "nvidia", "pool": "a"},
        annotations={"gpu.deckhouse.io/drain": "{}"},
    )


def test_of_a_nodes_readiness_only_that_is_kept_and_its_heartbeats_are_not() -> None:
    def kept(time: str) -> Node | None:
        ready = NodeCondition(
            type="Ready", status="True", reason="KubeletReady", last_transition_time=time
        )
        meta = ObjectMeta(name="node-0", labels={"gpu.deckhouse.io/vendor": "nvidia"})
        return keeping.node(Node(metadata=meta, status=NodeStatus(conditions=[ready])))

    found = kept("2026-11-30T10:00:00Z")
    assert found == kept("2026-11-30T11:00:00Z")
    assert found is not None
    assert found.status == NodeStatus(conditions=[NodeCondition(type="Ready", status="True")])


def test_a_node_that_has_to_do_with_no_card_is_not_kept() -> None:
    plain = ObjectMeta(name="node-0", labels={"pool": "a"}, annotations={"other": "x"})
    status = NodeStatus(conditions=[NodeCondition(type="Ready", status="True")])
    assert keeping.node(Node(metadata=plain, status=status)) is None
    assert keeping.node(Node(metadata=ObjectMeta(name="node-0"))) is None
