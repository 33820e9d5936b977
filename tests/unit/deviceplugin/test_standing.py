# SPDX-License-Identifier: Apache-2.0
"""What the kubelet is sent and answered from one moment of the plugin."""

import pytest
from tests.unit.deviceplugin.nodes import card, counts, offer
from tests.unit.deviceplugin.test_offering import MIXED, SLICE_4

from gpudeck.deviceplugin import answering, standing
from gpudeck.errors import InvalidError, UnavailableError
from gpudeck.kubelet.wire import deviceplugin_pb2 as pb
from gpudeck.pluginconfig.model import ListStrategy

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


def test_sick_and_withheld_devices_are_unhealthy_and_stay_listed() -> None:
    now = standing.Standing(
        offer=offer("", card(0), card(1, fault="Sick."), card(2)), withheld=((GPU, "GPU-2"),)
    )
    healths = {each.ID: each.health for each in standing.devices(now, GPU)}
    assert healths == {"GPU-0": "Healthy", "GPU-1": "Unhealthy", "GPU-2": "Unhealthy"}


@pytest.mark.parametrize(("node", "hint"), [(1, [1]), (-1, []), (None, [])])
def test_the_numa_node_is_a_hint_where_there_is_one(node: int | None, hint: list[int]) -> None:
    now = standing.Standing(offer=offer("", card(0, numa_node=node)))
    (device,) = standing.devices(now, GPU)
    assert [each.ID for each in device.topology.nodes] == hint


def test_a_resource_that_is_no_longer_offered_is_an_empty_list() -> None:
    now = standing.Standing(offer=offer(SLICE_4, card(0)))
    assert standing.devices(now, "nvidia.com/gone") == []
    with pytest.raises(InvalidError, match="does not offer it any more"):
        standing.allocate(now, "nvidia.com/gone", ["GPU-0"])


def test_what_is_taken_back_leaves_what_both_offers_have_with_what_ails_it_by_now() -> None:
    whole, shared = offer("", card(0), card(1)), offer(SLICE_4, card(0), card(1))
    before = standing.Standing(offer=whole, withheld=((GPU, "GPU-0"),))
    assert counts(standing.taken_back(before, shared).offer) == {GPU: 0}
    ten = offer(SLICE_4.replace("4", "10"), card(0), card(1))
    left = standing.taken_back(standing.Standing(offer=shared), ten)
    assert counts(left.offer) == {GPU: 0, SHARED: 8}
    sick = standing.taken_back(before, offer("", card(0), card(1, fault="Sick."), card(2)))
    healths = {each.ID: each.health for each in standing.devices(sick, GPU)}
    assert healths == {"GPU-0": "Unhealthy", "GPU-1": "Unhealthy"}
    assert counts(standing.taken_back(standing.Standing(), whole).offer) == {}


def test_the_answer_in_the_kubelets_words() -> None:
    now = standing.Standing(
        offer=offer("", card(0)),
        way=answering.Way(strategies=(ListStrategy.CDI_CRI, ListStrategy.ENVVAR)),
        ready=answering.Ready(named=("GPU-0",)),
    )
    assert standing.allocate(now, GPU, ["GPU-0"]) == pb.ContainerAllocateResponse(
        envs={"NVIDIA_VISIBLE_DEVICES": "GPU-0"},
        cdi_devices=[pb.CDIDevice(name="k8s.device-plugin.nvidia.com/gpu=GPU-0")],
    )


def test_preference_does_not_depend_on_the_kubelets_order() -> None:
    now = standing.Standing(offer=offer("", *map(card, range(4))))
    for available in (["GPU-3", "GPU-1", "GPU-2"], ["GPU-2", "GPU-3", "GPU-1"]):
        request = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, allocation_size=2
        )
        assert standing.prefer(now, GPU, request) == ["GPU-1", "GPU-2"]


def test_partitions_are_taken_from_the_emptiest_card() -> None:
    cards = [card(number, profiles=("1g.5gb",) * 3) for number in range(2)]
    now = standing.Standing(offer=offer(MIXED, *cards))
    request = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=["MIG-0-2", "MIG-1-0", "MIG-1-1", "MIG-1-2"], allocation_size=1
    )
    assert standing.prefer(now, "nvidia.com/mig-1g.5gb", request) == ["MIG-1-0"]


BY_MPS = """\
sharing:
  mps: {failRequestsGreaterThanOne: false, resources: [{name: gpu, replicas: 3}]}
"""


@pytest.mark.parametrize(
    ("free", "chosen"),
    [
        (["GPU-0::1", "GPU-0::2", "GPU-1::0", "GPU-1::1", "GPU-1::2"], ["GPU-1::0", "GPU-1::1"]),
        (["GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-1::2"], ["GPU-0::0", "GPU-0::1"]),
        (["GPU-0::0", "GPU-1::2"], ["GPU-0::0", "GPU-1::2"]),
    ],
)
def test_replicas_by_mps_are_of_one_card_where_it_has_enough(
    free: list[str], chosen: list[str]
) -> None:
    """A container finds one daemon: of two cards it would be refused."""
    now = standing.Standing(offer=offer(BY_MPS, card(0), card(1)))
    request = pb.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=2)
    assert standing.prefer(now, GPU, request) == chosen
    request.must_include_deviceIDs.append(free[-1])
    assert free[-1] in standing.prefer(now, GPU, request)


def test_between_two_ways_of_sharing_nothing_is_offered() -> None:
    """Replicas by MPS have the ids of those by time, and need a daemon that is not there yet."""
    by_time = offer(BY_MPS.replace("mps", "timeSlicing"), card(0))
    by_mps = offer(BY_MPS, card(0))
    assert standing.ids(by_time) != standing.ids(by_mps)
    before = standing.Standing(offer=by_time)
    assert standing.taken_back(before, by_mps).offer.resources == ()


def test_a_device_that_waits_is_given_to_nobody() -> None:
    """The kubelet may have chosen it before it was told."""
    now = standing.Standing(offer=offer("", card(0), card(1)), withheld=((GPU, "GPU-1"),))
    assert standing.allocate(now, GPU, ["GPU-0"]).envs
    with pytest.raises(UnavailableError, match="GPU-1"):
        standing.allocate(now, GPU, ["GPU-1"])
