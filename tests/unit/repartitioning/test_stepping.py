# SPDX-License-Identifier: Apache-2.0
"""The next step of a change: from every phase, by what the cards, the pods and the time say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpudeck import errors
from gpudeck.kubelet.listing import Pod
from gpudeck.mig import nodes, progress
from gpudeck.mig.progress import Phase, Record, State
from gpudeck.repartitioning import stepping
from gpudeck.repartitioning.looking import Failure, Look
from gpudeck.repartitioning.stepping import Act, Limits, Situation

NOW, BOOT = 1_000_000, "boot-1"
OPEN = Look(name="x", digest="d", can_change=True, freed=frozenset({"GPU-0"}), fingerprint="f")
DONE = Look(name="x", digest="d", is_done=True)
PLUGIN = Pod("sys", "plugin", frozenset({"nvidia-device-plugin-ctr"}))
HOLDER = Pod("team", "trains", frozenset({"main"}), frozenset({"GPU-0::3"}))
OTHER = Pod("team", "serves", frozenset({"main"}), frozenset({"GPU-1"}))
RESET = Failure("ResetFailed", "The card cannot be reset.")
REBOOTS = Limits(may_reboot=True)
PAUSED = {"nvidia.com/gpu.deploy.device-plugin": ""}


def record(phase: Phase, **more: Any) -> Record:
    given = {"config": "x", "digest": "d", "since": NOW - 1, "boot": BOOT, **more}
    return Record(version=1, phase=phase, **given)


def at(kept: Record | None = None, **more: Any) -> Situation:
    """A node in device plugin mode for which x is chosen."""
    state = kept.state if kept is not None else ""
    seen = nodes.Seen(name="n", config="x", mode="device-plugin", record=kept, state=state)
    given = {"wanted": "x", "look": OPEN, "pods": (OTHER,), "namespace": "sys", **more}
    return Situation(now=NOW, boot=BOOT, seen=seen, **given)


def phase(situation: Situation) -> Phase | None:
    found = stepping.step(situation).wish.record
    return found.phase if found is not None else None


@pytest.mark.parametrize(
    ("what", "situation", "after"),
    [
        ("it begins with a drain", at(), Phase.DRAINING),
        ("the kubelet is away later", at(record(Phase.CHANGING), pods=None), Phase.CHANGING),
        ("nobody holds anything", at(record(Phase.DRAINING)), Phase.PAUSING),
        ("somebody does", at(record(Phase.DRAINING), pods=(HOLDER,)), Phase.DRAINING),
        ("the kubelet is away", at(record(Phase.DRAINING), pods=None), Phase.DRAINING),
        (
            "the plugin runs",
            at(record(Phase.PAUSING, paused=PAUSED), pods=(PLUGIN,)),
            Phase.PAUSING,
        ),
        ("it has ended", at(record(Phase.PAUSING, paused=PAUSED)), Phase.CHANGING),
        ("a pod came meanwhile", at(record(Phase.PAUSING), pods=(HOLDER,)), Phase.DRAINING),
        ("a pod came later still", at(record(Phase.CHANGING), pods=(HOLDER,)), Phase.DRAINING),
        ("another config is chosen", at(record(Phase.CHANGING, config="y")), Phase.DRAINING),
        ("the config says else", at(record(Phase.CHANGING, digest="e")), Phase.DRAINING),
        ("all is as wanted", at(record(Phase.CHANGING), look=DONE), Phase.DONE),
        ("the host has rebooted", at(record(Phase.REBOOTING, boot="boot-0")), Phase.DRAINING),
        ("it may not reboot any more", at(record(Phase.EMPTYING)), Phase.DRAINING),
        ("nor go on with it", at(record(Phase.REBOOTING)), Phase.DRAINING),
        ("it reboots", at(record(Phase.REBOOTING), limits=REBOOTS), Phase.REBOOTING),
    ],
)
def test_the_phase_after_a_step(what: str, situation: Situation, after: Phase) -> None:
    assert phase(situation) is after, what


@pytest.mark.parametrize(
    ("kept", "more", "reason"),
    [
        (record(Phase.DRAINING, since=NOW - 601), {"pods": (HOLDER,)}, "DrainTimeLimit"),
        (record(Phase.DRAINING, since=NOW - 601), {"pods": None}, "PodsUnknown"),
        (
            record(Phase.PAUSING, since=NOW - 301, paused=PAUSED),
            {"pods": (PLUGIN,)},
            "PauseTimeLimit",
        ),
        (record(Phase.CHANGING, since=NOW - 601), {"pods": None}, "PodsUnknown"),
        (record(Phase.CHANGING), {"failures": (RESET,)}, "RebootRequired"),
        (
            record(Phase.CHANGING, rebooted=True),
            {"failures": (RESET,), "limits": Limits(may_reboot=True)},
            "RebootDidNotHelp",
        ),
        (record(Phase.CHANGING), {"failures": (Failure("CardInUse", "It is used."),)}, "CardInUse"),
        (
            record(Phase.CHANGING, since=NOW - 601),
            {"failures": (Failure("LockHeld", "Locked.", is_passing=True),)},
            "LockHeld",
        ),
        (
            record(Phase.CHANGING, since=NOW - 601),
            {"clients": None},
            "ClientsUnknown",
        ),
        (record(Phase.CHANGING, since=NOW - 601), {"clients": ("a",)}, "ClientsRun"),
        (record(Phase.EMPTYING, since=NOW - 601), {"limits": REBOOTS}, "DrainTimeLimit"),
        (record(Phase.REBOOTING, since=NOW - 901), {"limits": REBOOTS}, "RebootDidNotHappen"),
        (None, {"look": Look(name="x", error=errors.InvalidError("a.b: no"))}, "Invalid"),
        (
            None,
            {"look": Look(name="x", failures=(Failure("CardNotReady", "It is lost."),))},
            "CardNotReady",
        ),
        (
            record(Phase.CHANGING, since=NOW - 601),
            {"look": Look(name="x", error=errors.UnavailableError("away"))},
            "Unavailable",
        ),
    ],
)
def test_every_way_out_gives_the_node_back_and_says_why(
    kept: Record | None, more: dict[str, Any], reason: str
) -> None:
    found = stepping.step(at(kept, **more))
    assert found.wish.record is not None
    assert found.wish.record.phase is Phase.DONE
    assert found.wish.record.paused == {}
    assert (found.wish.record.reason, found.said.reason) == (reason, reason)
    assert (found.wish.state, found.wish.drain) == (State.FAILED, ())


@pytest.mark.parametrize(
    ("kept", "more"),
    [
        (record(Phase.DRAINING, since=NOW - 598), {"pods": (HOLDER,)}),
        (record(Phase.PAUSING, since=NOW - 298, paused=PAUSED), {"pods": (PLUGIN,)}),
    ],
)
def test_pods_are_waited_for_until_their_time_limit(kept: Record, more: dict[str, Any]) -> None:
    found = stepping.step(at(kept, **more))
    assert (found.awaits_pods, found.pause) == (True, 3.0)


def test_cards_are_not_changed_while_nobody_knows_what_pods_hold() -> None:
    assert stepping.step(at(record(Phase.CHANGING), pods=None)).act is Act.NOTHING
    assert stepping.step(at(record(Phase.CHANGING))).act is Act.APPLY


def test_only_holders_of_what_changes_are_asked_to_go() -> None:
    found = stepping.step(at(record(Phase.DRAINING), pods=(OTHER, HOLDER, PLUGIN)))
    assert found.wish.drain == (nodes.Pod("team", "trains"),)
    assert "team/trains" in found.said.message


@pytest.mark.parametrize("since", [NOW - 1, NOW - 601])
def test_what_keeps_a_pod_is_told_at_once_and_at_the_time_limit(since: int) -> None:
    situation = at(record(Phase.DRAINING, since=since), pods=(HOLDER,))
    blocked = msgspec.structs.replace(situation.seen, blocked="A budget keeps it.")
    found = stepping.step(msgspec.structs.replace(situation, seen=blocked))
    assert "A budget keeps it." in found.said.message


def test_a_failure_is_not_tried_again_until_something_is_different() -> None:
    failed = record(Phase.DONE, reason="CardInUse", message="m", tried="f")
    assert stepping.step(at(failed)).wish.record == failed
    for different in (
        at(failed, look=msgspec.structs.replace(OPEN, fingerprint="g")),
        at(failed, look=msgspec.structs.replace(OPEN, digest="e")),
        at(msgspec.structs.replace(failed, boot="boot-0")),
    ):
        assert phase(different) is Phase.DRAINING
    assert stepping.step(at(failed, age=61.0)).act is Act.LOOK


def test_an_outcome_that_is_found_again_is_as_old_as_it_was() -> None:
    done = record(Phase.DONE, since=5)
    assert stepping.step(at(done, look=DONE)).wish.record == done
    assert stepping.step(at(done, look=DONE)).wish.state == State.SUCCESS


def test_a_change_that_may_pass_is_tried_again_after_a_while() -> None:
    locked = (Failure("LockHeld", "Locked.", is_passing=True),)
    situation = at(record(Phase.CHANGING), failures=locked)
    assert stepping.step(situation).act is Act.NOTHING
    assert stepping.step(situation).pause == stepping.LATER_SECONDS
    assert stepping.step(msgspec.structs.replace(situation, failed_for=11.0)).act is Act.APPLY


def test_a_card_in_use_is_waited_for_while_somebodys_own_workload_ends() -> None:
    used = (Failure("CardInUse", "It is used."),)
    own = {**PAUSED, "nvidia.com/gpu.deploy.client": "true"}
    waiting = at(record(Phase.CHANGING, paused=own), failures=used)
    assert phase(waiting) is Phase.CHANGING
    late = record(Phase.CHANGING, paused=own, since=NOW - 301)
    for situation in (at(late, failures=used), at(record(Phase.CHANGING), failures=used)):
        assert phase(situation) is Phase.DONE


def test_a_reboot_is_asked_for_once_by_a_process_and_only_where_it_is_allowed() -> None:
    begun = stepping.step(at(record(Phase.CHANGING), failures=(RESET,), limits=REBOOTS))
    assert begun.wish.record is not None
    assert (begun.wish.record.phase, begun.wish.state) == (Phase.EMPTYING, State.REBOOTING)
    empties = stepping.step(at(record(Phase.EMPTYING), limits=REBOOTS))
    assert (empties.wish.empty, empties.act) == (str(NOW - 1), Act.NOTHING)
    rebooting = at(record(Phase.REBOOTING), limits=REBOOTS)
    assert stepping.step(rebooting).act is Act.REBOOT
    told = msgspec.structs.replace(rebooting, rebooting=True)
    assert stepping.step(told).act is Act.NOTHING
    asked = record(Phase.APPROVING, asked=True, message="It does not reset.")
    waits = stepping.step(at(asked, limits=REBOOTS))
    assert (waits.act, waits.said.reason) == (Act.NOTHING, "RebootNotApproved")
    assert waits.said.message.startswith("It does not reset. The node is to be rebooted, and waits")


def drained(by: str) -> Situation:
    situation = at(record(Phase.EMPTYING), limits=REBOOTS)
    seen = msgspec.structs.replace(situation.seen, drained=by)
    return msgspec.structs.replace(situation, seen=seen)


def test_a_node_is_rebooted_once_the_controller_has_emptied_it_for_this_very_request() -> None:
    assert phase(drained(str(NOW - 1))) is Phase.REBOOTING
    assert phase(drained(str(NOW - 2))) is Phase.EMPTYING


def test_services_that_run_are_stopped() -> None:
    assert stepping.step(at(record(Phase.CHANGING), clients=("b",))).act is Act.STOP
    assert stepping.step(at(record(Phase.CHANGING), clients=None)).act is Act.NOTHING


def test_a_phase_that_is_yet_to_come_begins_now_and_so_ends() -> None:
    kept = stepping.step(at(record(Phase.DRAINING, since=NOW + 10**9), pods=(HOLDER,))).wish.record
    assert kept == record(Phase.DRAINING, since=NOW)


@pytest.mark.parametrize(
    "more",
    [
        {"look": DONE},
        {"failures": (Failure("CardInUse", "It is used."),)},
        {"wanted": ""},
        {"failures": (RESET,), "limits": Limits(may_reboot=True, needs_leave=True)},
    ],
)
def test_services_run_again_before_the_node_says_so(more: dict[str, Any]) -> None:
    found = stepping.step(at(record(Phase.CHANGING), stopped=("a", "b"), **more))
    assert found.start == ("a", "b")


def test_services_stay_stopped_while_the_change_goes_on() -> None:
    for more in ({}, {"pods": (HOLDER,)}, {"look": msgspec.structs.replace(OPEN, digest="e")}):
        assert stepping.step(at(record(Phase.CHANGING), stopped=("a",), **more)).start == ()


@pytest.mark.parametrize("mode", [{"mode": "dra"}, {"mode": ""}, {"changes_mode": True}])
def test_nothing_is_done_outside_of_device_plugin_mode(mode: dict[str, Any]) -> None:
    situation = at(record(Phase.PAUSING, paused=PAUSED))
    seen = msgspec.structs.replace(situation.seen, **mode)
    found = stepping.step(msgspec.structs.replace(situation, seen=seen))
    assert (found.wish, found.act) == (nodes.Wish(), Act.NOTHING)


def test_cards_are_read_anew_where_somebody_wants_it_tried_again() -> None:
    failed = at(record(Phase.DONE, reason="CardInUse", tried="f"))
    assert stepping.step(failed).act is Act.NOTHING
    asked = msgspec.structs.replace(failed, seen=msgspec.structs.replace(failed.seen, state=""))
    found = stepping.step(asked)
    assert (found.wish, found.act) == (nodes.Wish(state=State.PENDING), Act.LOOK)


def test_a_driver_that_is_away_disturbs_nobody() -> None:
    away = Look(name="x", error=errors.UnavailableError("away"))
    found = stepping.step(at(record(Phase.DONE), look=away))
    assert found.wish.record is not None
    assert not found.wish.record.is_under_way
    assert (found.wish.state, found.act) == (State.PENDING, Act.NOTHING)
    assert stepping.step(at(record(Phase.DONE), look=away, age=61.0)).act is Act.LOOK
    assert stepping.step(at(record(Phase.CHANGING), look=away, age=11.0)).act is Act.LOOK


def test_a_record_survives_the_node_and_another_version_is_begun_anew() -> None:
    kept = record(Phase.PAUSING, paused=PAUSED, rebooted=True)
    assert progress.decode(progress.encode(kept)) == kept
    text = progress.encode(kept)
    for before, after in (('"version":1', '"version":2'), ('":""', '":"not, a label"')):
        assert progress.decode(text.replace(before, after)) is None
    for nonsense in ("", "{}", "null", "[" * 10_000):
        assert progress.decode(nonsense) is None


@pytest.mark.parametrize(
    ("what", "kept", "look", "offers", "after"),
    [
        ("the Node says what was", record(Phase.CHANGING, paused=PAUSED), DONE, True, False),
        ("it offers nothing more", record(Phase.CHANGING, paused=PAUSED), DONE, False, True),
        (
            "it has had its time",
            record(Phase.CHANGING, paused=PAUSED, since=NOW - 31),
            DONE,
            True,
            True,
        ),
        ("no plugin was paused", record(Phase.CHANGING), DONE, True, True),
        ("nothing was changed", record(Phase.DRAINING), DONE, True, True),
    ],
)
def test_a_node_is_given_back_when_it_no_longer_offers_what_its_cards_were(
    what: str, kept: Record, look: Look, *, offers: bool, after: bool
) -> None:
    given = at(kept, look=look)
    seen = msgspec.structs.replace(given.seen, offers=offers)
    assert (phase(msgspec.structs.replace(given, seen=seen)) is Phase.DONE) is after, what


def test_so_is_one_whose_cards_could_not_be_changed() -> None:
    given = at(record(Phase.CHANGING, paused=PAUSED), failures=(Failure("MigBroken", "No."),))
    seen = msgspec.structs.replace(given.seen, offers=True)
    assert phase(given) is Phase.DONE
    assert phase(msgspec.structs.replace(given, seen=seen)) is Phase.CHANGING
