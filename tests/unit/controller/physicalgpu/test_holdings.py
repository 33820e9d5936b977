# SPDX-License-Identifier: Apache-2.0
"""Holders of cards follow the claims, whatever the order of changes."""

from __future__ import annotations

import itertools

import msgspec
from tests.support import gpus

from gpudeck.api.resource import ResourceClaim
from gpudeck.controller import keeping
from gpudeck.controller.physicalgpu.holdings import Holdings

CARD = "node-0-0000-1b-00-0"
OTHER = "node-0-0000-2a-00-0"


def kept(
    name: str, *results: dict[str, object], pods: tuple[str, ...] = (), uid: str = ""
) -> ResourceClaim:
    raw = gpus.claim(name, *results, pods=pods, uid=uid)
    found = keeping.claim(msgspec.convert(raw, ResourceClaim))
    assert found is not None
    return found


def test_a_claim_holds_the_card_that_its_device_names() -> None:
    held = Holdings()
    assert held.change(None, kept("c", gpus.result(), pods=("b", "a"))) == {CARD}
    (holder,) = held.of(CARD)
    assert (holder.namespace, holder.name, holder.uid) == ("t", "c", "uid-c")
    assert holder.pods == ["a", "b"]
    assert holder.device == "gpu-0000-1b-00-0"


def test_a_claim_that_moves_touches_the_card_it_leaves_and_the_one_it_gets() -> None:
    held = Holdings()
    before = kept("c", gpus.result())
    after = kept("c", gpus.result(address="0000:2a:00.0"))
    held.change(None, before)
    assert held.change(before, after) == {CARD, OTHER}
    assert held.of(CARD) == []
    assert [each.name for each in held.of(OTHER)] == ["c"]


def test_a_new_pod_of_a_claim_touches_its_card_and_no_change_touches_none() -> None:
    held = Holdings()
    before, after = kept("c", gpus.result()), kept("c", gpus.result(), pods=("p",))
    held.change(None, before)
    assert held.change(before, after) == {CARD}
    assert held.change(after, after) == set()


def test_a_claim_made_anew_under_the_same_name_replaces_the_old_one() -> None:
    held = Holdings()
    before, after = (kept("c", gpus.result(), uid=uid) for uid in ("1", "2"))
    held.change(None, before)
    assert held.change(before, after) == {CARD}
    assert [each.uid for each in held.of(CARD)] == ["2"]


def test_a_claim_may_hold_several_cards() -> None:
    held = Holdings()
    both = kept("c", gpus.result(), gpus.result(address="0000:2a:00.0"))
    assert held.change(None, both) == {CARD, OTHER}
    assert held.change(both, None) == {CARD, OTHER}
    assert held.of(CARD) == held.of(OTHER) == []


def test_devices_that_are_no_card_of_ours_are_left_out() -> None:
    held = Holdings()
    assert held.change(None, kept("c", gpus.result(device="mig-1"))) == set()


def test_profiles_are_held_as_long_as_a_partition_of_them_is() -> None:
    held = Holdings()
    first, second = (
        kept(name, gpus.result(device=f"mig-0000-1b-00-0-1g10gb-19-{place}"))
        for place, name in enumerate("ab")
    )
    held.change(None, first)
    held.change(None, second)
    held.change(first, None)
    assert held.profiles == {"1g10gb"}
    held.change(second, kept("b", gpus.result()))
    assert held.profiles == set()


def test_the_order_of_changes_does_not_show() -> None:
    claims = [kept(name, gpus.result()) for name in ("a", "b", "c")]
    seen = set()
    for order in itertools.permutations(claims):
        held = Holdings()
        for each in order:
            held.change(None, each)
        seen.add(tuple(holder.name for holder in held.of(CARD)))
    assert seen == {("a", "b", "c")}
