# SPDX-License-Identifier: Apache-2.0
"""Verdicts over time, from sequences of what was read and raised."""

import msgspec
import pytest

from gpudeck.vendors import contract, health
from gpudeck.vendors.nvidia import xids

UNHEALTHY, HEALTHY, UNKNOWN = (
    health.Verdict.UNHEALTHY,
    health.Verdict.HEALTHY,
    health.Verdict.UNKNOWN,
)
ADDRESS = "0000:1b:00.0"


def at(seconds: float) -> health.Moment:
    return health.Moment(steady=seconds, unix=1_000_000 + int(seconds))


def reading(
    *faults: contract.Fault,
    recovery: contract.Recovery = contract.Recovery.UNKNOWN,
    lifetime: int | None = None,
) -> contract.CardReading:
    return contract.CardReading(
        address=ADDRESS, uuid="GPU-x", faults=faults, recovery=recovery, lifetime=lifetime
    )


def event(xid: int) -> contract.CardEvent:
    return contract.CardEvent(address=ADDRESS, xid=xid, fault=xids.fault(xid))


def healthy() -> health.Memory:
    return health.after_reading(health.start(at(0)), reading(lifetime=100), at(0))


def fault(reason: str, *, confirm: int = 1) -> contract.Fault:
    return contract.Fault(reason=reason, message=f"{reason}.", confirm=confirm)


def test_a_card_is_unknown_until_it_was_read() -> None:
    assert health.start(at(0)).health.verdict is UNKNOWN
    assert healthy().health.verdict is HEALTHY


def test_a_fault_ends_after_two_clean_readings_and_not_before() -> None:
    memory = health.after_reading(healthy(), reading(fault("RowRemapPending")), at(10))
    assert (memory.health.verdict, memory.health.reason) == (UNHEALTHY, "RowRemapPending")
    memory = health.after_reading(memory, reading(), at(20))
    assert memory.health.verdict is UNHEALTHY
    memory = health.after_reading(memory, reading(), at(30))
    assert (memory.health.verdict, memory.health.since) == (HEALTHY, at(30).unix)


def test_a_fault_that_must_be_confirmed_counts_only_in_a_row() -> None:
    hot = fault("ThermalSlowdown", confirm=3)
    memory = healthy()
    for second, faults in enumerate(([hot], [hot], [], [hot], [hot])):
        memory = health.after_reading(memory, reading(*faults), at(second))
        assert memory.health.verdict is HEALTHY
    memory = health.after_reading(memory, reading(hot), at(6))
    assert memory.health.verdict is UNHEALTHY


def test_since_and_message_stay_while_the_reason_does() -> None:
    memory = health.after_failure(healthy(), contract.Fault(reason="GpuLost", message="A"), at(10))
    memory = health.after_failure(memory, contract.Fault(reason="GpuLost", message="B"), at(20))
    assert (memory.health.since, memory.health.message) == (at(10).unix, "A")


def test_a_hardware_fault_stays_through_harmless_events_and_clean_readings() -> None:
    """case-35: health is not "last event wins"."""
    memory = healthy()
    for second, number in ((10, 79), (11, 43), (12, 31), (13, 79)):
        memory = health.after_event(memory, event(number), at(second))
        memory = health.after_reading(memory, reading(lifetime=100 + second), at(second))
        assert memory.health.verdict is UNHEALTHY
    assert memory.health.since == at(10).unix
    assert "Xid 79" in memory.health.message
    assert memory.health.xid == 79
    for second in range(20, 2000, 10):
        memory = health.after_reading(memory, reading(lifetime=100 + second), at(second))
    assert memory.health.verdict is UNHEALTHY


def test_an_application_error_is_told_and_changes_no_verdict() -> None:
    memory = health.after_event(healthy(), event(31), at(10))
    assert (memory.health.verdict, memory.health.xid) == (HEALTHY, 31)


def test_a_reset_of_the_card_ends_what_was_raised() -> None:
    memory = health.after_event(healthy(), event(119), at(10))
    memory = health.after_reading(memory, reading(lifetime=5), at(20))
    assert memory.health.verdict is UNHEALTHY  # One more clean reading is wanted.
    memory = health.after_reading(memory, reading(lifetime=6), at(30))
    assert memory.health.verdict is HEALTHY


def test_a_reset_while_the_card_was_lost_ends_what_was_raised() -> None:
    memory = health.after_event(healthy(), event(79), at(10))
    memory = health.after_failure(memory, fault("GpuLost"), at(20))
    assert "Xid 79" in memory.health.message
    for second in (30, 40):
        memory = health.after_reading(memory, reading(lifetime=1), at(second))
    assert memory.health.verdict is HEALTHY


def test_a_recovery_that_the_driver_wanted_and_no_longer_wants_ends_what_was_raised() -> None:
    memory = health.after_event(healthy(), event(95), at(10))
    wanted = reading(fault("RecoveryActionRequired"), recovery=contract.Recovery.NEEDED)
    memory = health.after_reading(memory, wanted, at(20))
    for second in (30, 40):
        done = reading(recovery=contract.Recovery.NONE)
        memory = health.after_reading(memory, done, at(second))
    assert memory.health.verdict is HEALTHY


def test_a_driver_that_wants_no_recovery_is_believed_only_after_a_while() -> None:
    memory = health.after_event(healthy(), event(74), at(10))
    none = reading(recovery=contract.Recovery.NONE)
    memory = health.after_reading(memory, none, at(20))
    memory = health.after_reading(memory, none, at(20 + health.RECOVERY_SECONDS - 1))
    assert memory.health.verdict is UNHEALTHY
    for after in (1, 11):
        memory = health.after_reading(memory, none, at(20 + health.RECOVERY_SECONDS + after))
    assert memory.health.verdict is HEALTHY


def test_a_query_that_fails_keeps_what_was_raised() -> None:
    memory = health.after_event(healthy(), event(74), at(10))
    none = reading(recovery=contract.Recovery.NONE)
    memory = health.after_reading(memory, none, at(20))
    memory = health.after_failure(memory, fault("NVMLQueryFailed"), at(200))
    memory = health.after_reading(memory, none, at(330))
    memory = health.after_reading(memory, none, at(340))
    assert memory.health.verdict is UNHEALTHY


def test_silence_makes_a_good_verdict_unknown_and_leaves_a_bad_one() -> None:
    assert health.after_silence(healthy(), at(29)).health.verdict is HEALTHY
    assert health.after_silence(healthy(), at(31)).health.verdict is UNKNOWN
    bad = health.after_failure(healthy(), fault("GpuLost"), at(1))
    assert health.after_silence(bad, at(1000)).health.verdict is UNHEALTHY


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 109, 63, 94, 154])
def test_numbers_that_are_not_the_cards_fault(number: int) -> None:
    assert xids.fault(number) is None


@pytest.mark.parametrize("number", [48, 74, 79, 95, 119, 140, 9999])
def test_numbers_that_are_the_cards_fault_and_unknown_ones(number: int) -> None:
    found = xids.fault(number)
    assert found is not None
    assert f"Xid {number}" in found.message


@pytest.mark.parametrize("reason", ["GpuLost", "ResetRequired", "CardNotInDriver"])
def test_a_card_that_was_gone_and_answers_again_has_started_anew(reason: str) -> None:
    """Older cards tell no lifetime, and older drivers no recovery."""
    memory = health.after_event(healthy(), event(79), at(10))
    memory = health.after_failure(memory, fault(reason), at(20))
    memory = health.after_reading(memory, reading(), at(30))
    assert memory.health.verdict is UNHEALTHY  # One more clean reading is wanted.
    assert health.after_reading(memory, reading(), at(40)).health.verdict is HEALTHY


def test_what_is_raised_after_a_card_has_started_anew_counts() -> None:
    memory = health.after_failure(healthy(), fault("GpuLost"), at(10))
    memory = health.after_reading(memory, reading(), at(20))
    memory = health.after_event(memory, event(79), at(21))
    for second in (30, 40, 50):
        memory = health.after_reading(memory, reading(), at(second))
    assert "Xid 79" in memory.health.message


def test_a_query_that_fails_otherwise_is_no_start_anew() -> None:
    memory = health.after_event(healthy(), event(79), at(10))
    memory = health.after_failure(memory, fault("NVMLQueryFailed"), at(20))
    for second in (30, 40, 50):
        memory = health.after_reading(memory, reading(), at(second))
    assert "Xid 79" in memory.health.message


def raised_in(instance: str, xid: int = 79) -> contract.CardEvent:
    return contract.CardEvent(address=ADDRESS, xid=xid, fault=xids.fault(xid), instance=instance)


@pytest.mark.parametrize(
    ("instances", "concerned"),
    [
        (["1/0"], {"1/0"}),
        (["2/"], {"2/0"}),
        ([""], {"1/0", "2/0", "5/0"}),
        (["1/0", "5/0"], {"1/0", "5/0"}),
        (["1/0", ""], {"1/0", "2/0", "5/0"}),
        (["", "1/0"], {"1/0", "2/0", "5/0"}),
    ],
)
def test_an_event_of_one_partition_is_about_no_other(
    instances: list[str], concerned: set[str]
) -> None:
    memory = healthy()
    for instance in instances:
        memory = health.after_event(memory, raised_in(instance), at(1))
    memory = health.after_reading(memory, reading(), at(2))
    assert memory.health.verdict is UNHEALTHY
    assert {each for each in ("1/0", "2/0", "5/0") if memory.health.concerns(each)} == concerned


def test_a_fault_of_the_whole_card_comes_before_that_of_a_partition() -> None:
    memory = health.after_event(healthy(), raised_in("1/0"), at(1))
    memory = health.after_reading(memory, reading(fault("RowRemapPending")), at(2))
    assert (memory.health.reason, memory.health.confined_to) == ("RowRemapPending", ())
    memory = health.after_reading(memory, reading(), at(3))
    assert (memory.health.reason, memory.health.confined_to) == ("HardwareXid", ("1/0",))


def test_a_reset_ends_the_fault_of_a_partition() -> None:
    memory = health.after_event(healthy(), raised_in("1/0"), at(1))
    for second in (2, 3):
        memory = health.after_reading(memory, reading(lifetime=5), at(second))
    assert (memory.health.verdict, memory.health.confined_to) == (HEALTHY, ())
    memory = health.after_event(memory, raised_in("2/0"), at(4))
    assert memory.health.confined_to == ("2/0",)


def restarted(memory: health.Memory, seconds: float) -> health.Memory:
    """What the next process knows."""
    raised = memory.raised
    return health.start(at(seconds)) if raised is None else health.resume(raised, at(seconds))


def test_an_event_that_comes_again_and_again_is_remembered_once() -> None:
    memory = healthy()
    for second in range(9):
        for number in (95, 79, 31):
            memory = health.after_event(memory, event(number), at(second))
    assert memory.raised is not None
    assert [each.xid for each in memory.raised.events] == [95, 79]


def test_a_change_that_is_no_error_is_not_the_last_error() -> None:
    memory = health.after_event(healthy(), event(31), at(10))
    memory = health.after_event(memory, contract.CardEvent(address=ADDRESS), at(11))
    assert (memory.health.verdict, memory.health.xid) == (HEALTHY, 31)


WANTED = reading(fault("RecoveryActionRequired"), recovery=contract.Recovery.NEEDED, lifetime=150)


def test_what_was_raised_keeps_its_name_and_time_over_a_restart() -> None:
    before = health.after_event(healthy(), event(79), at(10))
    after = health.after_reading(restarted(before, 60), WANTED, at(61))
    assert after.health == msgspec.structs.replace(before.health, xid=None)
    assert after.raised == before.raised
    assert "Xid 79: GPU has fallen off the bus. Reboot the node." in after.health.message


def test_what_ends_a_raised_fault_ends_it_after_a_restart_as_well() -> None:
    raised = health.after_event(healthy(), event(79), at(10))

    def healed(*readings: contract.CardReading, seconds: float = 10) -> bool:
        memory = restarted(raised, 60)
        for index, each in enumerate(readings):
            memory = health.after_reading(memory, each, at(61 + index * seconds))
        return memory.health.verdict is HEALTHY and memory.raised is None

    none = reading(recovery=contract.Recovery.NONE, lifetime=150)
    was_reset = reading(lifetime=5)
    assert not healed(*[reading(lifetime=150)] * 9)
    assert healed(was_reset, was_reset), "the card was reset while no process ran"
    assert healed(WANTED, none, none), "the driver asked for a recovery and no longer does"
    assert not healed(none, none)
    assert healed(none, none, none, seconds=health.RECOVERY_SECONDS)
    gone = health.after_failure(
        restarted(raised, 60), contract.Fault(reason="GpuLost", message="Lost."), at(61)
    )
    assert gone.health.reason == "HardwareXid"
    back = health.after_reading(gone, reading(lifetime=150), at(70))
    assert health.after_reading(back, reading(lifetime=160), at(80)).health.verdict is HEALTHY


def test_the_fault_of_a_partition_is_still_that_of_the_partition_after_a_restart() -> None:
    one = contract.CardEvent(address=ADDRESS, xid=95, fault=xids.fault(95), instance="3/0")
    memory = restarted(health.after_event(healthy(), one, at(10)), 60)
    assert memory.health.concerns("3/0")
    assert not memory.health.concerns("4/0")


DRIVER = contract.DriverState(ready=False, reason="DriverHung", message="It does not return.")


def test_a_driver_that_does_not_answer_ends_nothing_that_was_raised() -> None:
    """Its library hangs or fails when it is opened, as a dying card has it: no card was reset."""
    memory = health.after_event(healthy(), event(95), at(10))
    memory = health.without_driver(memory, DRIVER, at(20))
    assert (memory.health.verdict, memory.health.reason) == (UNKNOWN, "DriverHung")
    for second in (30, 40, 50):
        memory = health.after_reading(memory, reading(lifetime=160), at(second))
    assert "Xid 95" in memory.health.message
    assert memory.raised is not None


def test_a_driver_that_was_unloaded_ends_what_was_raised() -> None:
    memory = health.after_event(healthy(), event(95), at(10))
    unloaded = msgspec.structs.replace(DRIVER, reason="DriverNotLoaded")
    memory = health.without_driver(memory, unloaded, at(20))
    for second in (30, 40):
        memory = health.after_reading(memory, reading(), at(second))
    assert memory.health.verdict is HEALTHY
