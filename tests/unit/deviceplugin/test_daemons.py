# SPDX-License-Identifier: Apache-2.0
"""MPS daemons come to the cards that are shared by them, and stay while pods need them."""

from typing import Any

import msgspec
from tests.unit.deviceplugin.nodes import card, inventory

from gpudeck.deviceplugin import daemons, occupying, offering
from gpudeck.pluginconfig import reading
from gpudeck.vendors import contract

MPS = "sharing: {mps: {renameByDefault: true, resources: [{name: gpu, replicas: 2, devices: 1}]}}"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
CAN = contract.ShareSupport(mps=True)
FIRST = "0000:01:00.0"


def steps(
    config: str, held: dict[str, dict[str, str]] | None = None, **changes: Any
) -> dict[str, contract.Action]:
    """What is to be done on a node with two cards, the first of them shared."""
    changes = {"share_support": CAN, **changes}
    found = inventory(card(0, **changes), card(1, share_support=CAN))
    offered = offering.offer(
        found, offering.remember(offering.Seen(), found), reading.parse(config)
    )
    withheld = occupying.withheld(offered, held or {})
    return daemons.steps(offered, found, held=held or {}, withheld=withheld)


def test_a_card_that_is_shared_by_mps_gets_a_daemon_and_no_other_does() -> None:
    assert steps(MPS) == {FIRST: contract.JoinMps(share_id="device-plugin")}
    assert steps(MPS, mps_shares=("device-plugin",)) == {}


def test_a_card_that_cannot_be_shared_so_now_gets_none() -> None:
    assert steps(MPS, share_support=contract.ShareSupport()) == {}


def test_a_card_that_a_pod_holds_whole_gets_its_daemon_later() -> None:
    assert steps(MPS, {GPU: {"GPU-0": "default/a"}}) == {}


def test_a_card_of_which_pods_hold_replicas_by_time_gets_its_daemon_later() -> None:
    """It would admit no further process of theirs. Replicas by MPS are held beside a wish only."""
    held = {SHARED: {"GPU-0::1": "default/a"}}
    assert steps(MPS, held) == {}
    assert steps(MPS, held, mps_shares=("device-plugin",)) == {}
    replicas = [(SHARED, f"GPU-0::{number}") for number in range(2)]
    found = waiting(MPS, {"GPU-0": "It starts."}, held)
    assert list(found) == replicas
    assert found[replicas[0]].endswith("given back by pod default/a.")


def test_a_daemon_goes_when_nobody_needs_it() -> None:
    joined = {"mps_shares": ("device-plugin",)}
    assert steps("", **joined) == {FIRST: contract.LeaveMps(share_id="device-plugin")}
    assert steps("", {SHARED: {"GPU-0::1": "default/a"}}, **joined) == {}


def test_a_card_that_was_given_to_another_driver_is_left_alone() -> None:
    """It could not be changed, and would be tried again and again."""
    joined = card(0, share_support=CAN, mps_shares=("device-plugin",))
    given = msgspec.structs.replace(joined.site, served=False, driver="vfio-pci")
    found = inventory(msgspec.structs.replace(joined, site=given))
    nothing = offering.offer(found, offering.Seen(), reading.parse(""))
    assert daemons.steps(nothing, found, held={}, withheld=()) == {}
    assert not daemons.concern(nothing, found)


def waiting(
    config: str,
    pending: dict[str, str],
    held: dict[str, dict[str, str]] | None = None,
    **changes: Any,
) -> dict[tuple[str, str], str]:
    """The devices of two cards that cannot be used yet."""
    found = inventory(card(0, **changes), card(1))
    offered = offering.offer(
        found, offering.remember(offering.Seen(), found), reading.parse(config)
    )
    return daemons.unready(offered, pending, held or {})


def test_replicas_wait_for_their_daemon() -> None:
    joined = {"mps_shares": ("device-plugin",)}
    replicas = [(SHARED, f"GPU-0::{number}") for number in range(2)]
    assert list(waiting(MPS, {})) == replicas
    assert waiting(MPS, {"GPU-0": "It starts."}, **joined) == dict.fromkeys(replicas, "It starts.")
    assert waiting(MPS, {}, **joined) == {}


def test_a_whole_card_waits_for_the_end_of_its_daemon() -> None:
    assert list(waiting("", {}, mps_shares=("device-plugin",))) == [(GPU, "GPU-0")]
