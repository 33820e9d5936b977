# SPDX-License-Identifier: Apache-2.0
"""A change of config never offers what a running pod holds otherwise."""

from tests.unit.deviceplugin.nodes import card, offer
from tests.unit.deviceplugin.test_offering import MIXED, SLICE_4

from gpudeck.deviceplugin import occupying

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


def test_replicas_of_a_card_that_a_pod_holds_whole_wait() -> None:
    found = occupying.withheld(offer(SLICE_4, card(0), card(1)), {GPU: {"GPU-1": "default/a"}})
    assert sorted(each for _, each in found) == [f"GPU-1::{number}" for number in range(4)]
    assert found[SHARED, "GPU-1::0"] == (
        "GPU-1::0 waits until what was offered before, as nvidia.com/gpu, is given back by pod "
        "default/a."
    )


def test_the_pods_that_are_waited_for_are_named_but_for_those_not_known_yet() -> None:
    replicas = {f"GPU-0::{number}": f"default/p{number}" for number in range(5)}
    found = occupying.withheld(offer("", card(0)), {SHARED: {**replicas, "GPU-0::5": ""}})
    assert found[GPU, "GPU-0"].endswith("by pods default/p0, default/p1, default/p2 and 2 more.")
    found = occupying.withheld(offer("", card(0)), {SHARED: {"GPU-0::5": ""}})
    assert found[GPU, "GPU-0"].endswith("is given back by a pod.")


def test_a_card_whose_replica_a_pod_holds_waits_to_be_whole() -> None:
    found = occupying.withheld(offer("", card(0), card(1)), {SHARED: {"GPU-1::3": "default/a"}})
    assert list(found) == [(GPU, "GPU-1")]


def test_replicas_without_a_new_name_wait_for_the_whole_card_too() -> None:
    text = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}"
    found = occupying.withheld(offer(text, card(0)), {GPU: {"GPU-0": "default/a"}})
    assert sorted(each for _, each in found) == ["GPU-0::0", "GPU-0::1"]


def test_more_replicas_of_a_shared_card_are_offered_at_once() -> None:
    text = SLICE_4.replace("4", "10")
    assert occupying.withheld(offer(text, card(0)), {SHARED: {"GPU-0::3": "default/a"}}) == {}


def test_what_a_pod_holds_as_it_is_offered_stays() -> None:
    assert occupying.withheld(offer("", card(0)), {GPU: {"GPU-0": "default/a"}}) == {}
    parts = offer(MIXED, card(0, profiles=("1g.5gb", "1g.5gb")))
    assert occupying.withheld(parts, {"nvidia.com/mig-1g.5gb": {"MIG-0-0": "default/a"}}) == {}


def test_partitions_of_a_card_that_a_pod_holds_whole_wait() -> None:
    found = occupying.withheld(
        offer(MIXED, card(0, profiles=("1g.5gb",))), {GPU: {"GPU-0": "default/a"}}
    )
    assert list(found) == [("nvidia.com/mig-1g.5gb", "MIG-0-0")]


def test_a_whole_card_waits_for_the_pods_of_its_partitions() -> None:
    found = occupying.withheld(
        offer("", card(0, profiles=("1g.5gb",))),
        {"nvidia.com/mig-1g.5gb": {"MIG-0-0": "default/a"}},
    )
    assert list(found) == [(GPU, "GPU-0")]


def test_other_peoples_devices_do_not_matter() -> None:
    assert occupying.withheld(offer("", card(0)), {"example.com/fpga": {"x": "default/a"}}) == {}
