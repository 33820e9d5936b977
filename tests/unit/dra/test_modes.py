# SPDX-License-Identifier: Apache-2.0
"""What is to be done about the partition mode of a card, over every state of it."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.api import labels, resource
from gpudeck.api.meta import ObjectMeta
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import modes
from gpudeck.dra.allocations import HeldDevice, Reference
from gpudeck.dra.checkpoint import Content, Entry, State
from gpudeck.dra.modes import Choice, Decision, Holder, Situation, Step

ADDRESS = PciAddress.parse("0000:01:00.0")
WHOLE, SHARE = "gpu-0000-01-00-0", "share-0000-01-00-0"
PART, ELSEWHERE = "mig-0000-01-00-0-1g5gb-19-3", "gpu-0000-02-00-0"
ON, OFF = pb.PARTITIONING_MODE_ENABLED, pb.PARTITIONING_MODE_DISABLED
TRAIN = Holder("claim t/train", is_partition=False)
PIECE = Holder("claim t/piece", is_partition=True)


def card(*, on: bool = False, pending: bool | None = None, dynamic: bool = False) -> pb.Card:
    """A card with MIG; `pending` is the mode after a reset where it is another."""
    later = on if pending is None else pending
    return pb.Card(
        pci_address=str(ADDRESS),
        driver=pb.DriverState(ready=True),
        partition_support=pb.PartitionSupport(supported=True, total_slices=7, dynamic=dynamic),
        partitioning=pb.Partitioning(mode=ON if on else OFF, pending=ON if later else OFF),
    )


def wish(value: str) -> Choice:
    return Choice(on="Node node-0", value=value)


def decide(found: pb.Card, value: str | None, **known: Any) -> Decision:
    chosen = wish(value) if value is not None else None
    return modes.decide(found, Situation(choice=chosen, **known))


def told(decision: Decision) -> tuple[str, str]:
    """Status and reason of what is said."""
    assert decision.condition is not None
    return decision.condition.status, decision.condition.reason


def message(decision: Decision) -> str:
    assert decision.condition is not None
    return decision.condition.message


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("pending", [False, True])
def test_without_a_choice_nothing_is_done_and_nothing_said(on: bool, pending: bool) -> None:
    found = card(on=on, pending=pending)
    assert decide(found, None, holders=(TRAIN,), late=PIECE, failure="No.") == Decision()


def test_an_unknown_value_changes_nothing_and_is_named_with_what_is_allowed() -> None:
    decision = decide(card(), "on", is_kept_off=True)
    assert (decision.step, decision.keeps_off) == (Step.NOTHING, False)
    assert told(decision) == ("False", "ChoiceInvalid")
    for part in ("gpu.deckhouse.io/mig-mode=on", "Node node-0", "enabled, disabled"):
        assert part in message(decision)


def test_cards_that_switch_without_a_reset_and_cards_without_partitions_are_left_alone() -> None:
    plain = pb.Card(pci_address=str(ADDRESS), driver=pb.DriverState(ready=True))
    for found in (card(dynamic=True), card(on=True, dynamic=True), plain):
        for value in ("enabled", "disabled"):
            decision = decide(found, value, is_kept_off=True, holders=(TRAIN,))
            assert (decision.step, decision.keeps_off) == (Step.NOTHING, False)
            assert told(decision) == ("True", "NotNeeded")


def test_a_card_without_its_driver_waits_for_it() -> None:
    found = card()
    found.driver.ready = False
    decision = decide(found, "enabled", is_kept_off=True)
    assert (decision.step, decision.keeps_off) == (Step.NOTHING, False)
    assert told(decision) == ("False", "WaitingForCard")


STATES = list(itertools.product((False, True), repeat=5))
"""Mode wanted, mode of now, somebody holds it, new claims are kept off, it failed a moment ago."""


@pytest.mark.parametrize(("wanted", "on", "held", "quiet", "failed"), STATES)
def test_every_state_of_a_card_has_one_answer(
    wanted: bool, on: bool, held: bool, quiet: bool, failed: bool
) -> None:
    decision = decide(
        card(on=on),
        "enabled" if wanted else "disabled",
        holders=((PIECE if on else TRAIN),) if held else (),
        is_kept_off=quiet,
        failure="The card is in use." if failed else "",
    )
    if wanted == on:
        assert told(decision) == ("True", "Applied")
        assert (decision.step, decision.keeps_off) == (Step.NOTHING, False)
    elif failed:
        assert told(decision) == ("False", "SwitchFailed")
        assert "The card is in use." in message(decision)
        assert (decision.step, decision.keeps_off) == (Step.NOTHING, False)
    elif held:
        assert told(decision) == ("False", "WaitingForClaims")
        assert (PIECE if on else TRAIN).name in message(decision)
        assert (decision.step, decision.keeps_off) == (Step.WAIT, True)
    else:
        assert told(decision) == ("False", "Switching")
        assert (decision.step, decision.keeps_off) == (Step.SWITCH if quiet else Step.WAIT, True)
        assert decision.enabled is wanted


def test_many_holders_are_named_in_part() -> None:
    holders = tuple(Holder(f"claim t/c{index}", is_partition=False) for index in range(5))
    text = message(decide(card(), "enabled", holders=holders))
    assert "claim t/c0, claim t/c1, claim t/c2 and 2 more" in text


def test_a_pending_mode_against_the_choice_is_taken_back_at_once_even_under_a_claim() -> None:
    decision = decide(card(pending=True), "disabled", holders=(TRAIN,))
    assert (decision.step, decision.enabled, decision.keeps_off) == (Step.SWITCH, False, False)
    assert told(decision) == ("False", "Switching")
    failed = decide(card(pending=True), "disabled", failure="No.")
    assert (failed.step, told(failed)) == (Step.NOTHING, ("False", "SwitchFailed"))


def test_a_pending_mode_as_chosen_still_waits_for_the_reset() -> None:
    decision = decide(card(pending=True), "enabled", is_kept_off=True)
    assert (decision.step, decision.enabled) == (Step.SWITCH, True)


def test_partitions_of_others_are_waited_for_and_the_card_stays_offered() -> None:
    found = card(on=True)
    found.partitioning.partitions.add(profile="1g.5gb", start=3, size=1, profile_id=19)
    decision = decide(found, "disabled", is_kept_off=True)
    assert (decision.step, decision.keeps_off) == (Step.NOTHING, False)
    assert told(decision) == ("False", "WaitingForPartitions")
    assert "1g.5gb at 3" in message(decision)


def test_a_claim_that_came_too_late_is_served_before_the_choice() -> None:
    decision = decide(card(on=True), "enabled", late=TRAIN, is_kept_off=True)
    assert (decision.step, decision.enabled, decision.keeps_off) == (Step.SWITCH, False, True)
    assert "claim t/train, which came before the change" in message(decision)
    waiting = decide(card(on=True), "enabled", late=TRAIN, holders=(PIECE,), is_kept_off=True)
    assert (waiting.step, waiting.keeps_off) == (Step.WAIT, True)
    assert "claim t/piece" in message(waiting)


def test_a_late_claim_of_the_chosen_mode_is_served_by_the_change() -> None:
    decision = decide(card(), "enabled", late=PIECE, is_kept_off=True)
    assert (decision.step, decision.enabled) == (Step.SWITCH, True)


def test_the_label_of_the_card_wins_over_that_of_the_node() -> None:
    labelled = {labels.MIG_MODE: "enabled"}
    other = {labels.MIG_MODE: "disabled"}
    assert modes.choice(("n-c", None), ("n", {})) is None
    assert modes.choice(("n-c", {}), ("n", labelled)) == Choice("Node n", "enabled")
    assert modes.choice(("n-c", other), ("n", labelled)) == Choice("PhysicalGPU n-c", "disabled")
    empty = modes.choice(("n-c", {labels.MIG_MODE: ""}), ("n", labelled))
    assert empty is not None
    assert not empty.is_valid


def test_every_kind_of_device_of_the_card_holds_it_and_looking_on_does_not() -> None:
    entries = {
        "a": [HeldDevice(name=WHOLE)],
        "b": [HeldDevice(name=PART)],
        "c": [HeldDevice(name=SHARE), HeldDevice(name=ELSEWHERE)],
        "d": [HeldDevice(name=WHOLE, admin_access=True)],
        "e": [HeldDevice(name=ELSEWHERE)],
    }
    content = Content(
        claims={
            uid: Entry(state=State.COMPLETED, namespace="t", name=uid, devices=devices)
            for uid, devices in entries.items()
        }
    )
    found = modes.holders_here(content, ADDRESS, is_partition=False)
    assert [(each.name, each.is_partition) for each in found] == [
        ("claim t/a", False),
        ("claim t/b", True),
        ("claim t/c", False),
    ]


def test_what_is_still_to_be_removed_or_cannot_be_read_holds_the_card() -> None:
    entry = Entry(state=State.RELEASED, devices=[HeldDevice(name=PART)])
    content = Content(claims={"a": entry}, quarantined={"uid-x": msgspec.Raw(b"{}")})
    found = modes.holders_here(content, ADDRESS, is_partition=True)
    assert len(found) == 2
    assert "uid-x" in found[1].name


@pytest.mark.parametrize(
    ("device", "spec", "is_on", "holds"),
    [
        (WHOLE, None, True, False),
        (WHOLE, "{}", True, True),
        (WHOLE, None, False, True),
        (PART, None, False, False),
        (PART, None, True, True),
    ],
)
def test_a_claim_that_only_the_api_tells_of_holds_what_the_card_can_give_it_now(
    device: str, spec: str | None, is_on: bool, holds: bool
) -> None:
    entry = Entry(state=State.RECOVERED, devices=[HeldDevice(name=device)], spec=spec)
    found = modes.holders_here(Content(claims={"a": entry}), ADDRESS, is_partition=is_on)
    assert bool(found) is holds


def test_claims_of_the_api_hold_what_they_are_allocated_on_this_node() -> None:
    def claim(name: str, **result: Any) -> resource.ResourceClaim:
        one = {"request": "r", "driver": labels.DRIVER, "pool": "node-0", "device": WHOLE}
        allocated = msgspec.convert({**one, **result}, type=resource.AllocatedDevice)
        return resource.ResourceClaim(
            metadata=ObjectMeta(name=name, namespace="t"),
            status=resource.ClaimStatus(
                allocation=resource.Allocation(
                    devices=resource.AllocatedDevices(results=[allocated])
                )
            ),
        )

    claims = [
        claim("whole"),
        claim("part", device=PART),
        claim("other-node", pool="node-1"),
        claim("other-driver", driver="gpu.example.com"),
        claim("other-card", device=ELSEWHERE),
        claim("looks-on", adminAccess=True),
        resource.ResourceClaim(metadata=ObjectMeta(name="waits", namespace="t")),
    ]
    found = modes.holders_in_api(claims, "node-0", ADDRESS)
    assert found == [Holder("claim t/part", True), Holder("claim t/whole", False)]


@pytest.mark.parametrize(
    ("device", "on", "misfit"),
    [(WHOLE, False, False), (WHOLE, True, True), (SHARE, True, True), (PART, False, True),
     (PART, True, False)],
)  # fmt: skip
def test_a_device_fits_one_mode_of_a_card_that_needs_a_reset(
    device: str, on: bool, misfit: bool
) -> None:
    held = HeldDevice(name=device)
    assert modes.is_misfit(held, card(on=on)) is misfit
    assert not modes.is_misfit(held, card(on=on, dynamic=True))
    assert not modes.is_misfit(HeldDevice(name=device, admin_access=True), card(on=on))


def test_a_holder_is_known_by_its_claim() -> None:
    claim = Reference("u", "t", "train")
    assert modes.holder(claim, WHOLE) == TRAIN
