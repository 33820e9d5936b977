# SPDX-License-Identifier: Apache-2.0
"""What of a card's troubles counts, by the words of NVIDIA's device plugin."""

import pytest

from gpudeck import errors, settings
from gpudeck.vendors import contract, health, heeding
from gpudeck.vendors.nvidia import xids

ADDRESS = "0000:1b:00.0"
HARMLESS, FAULTY = 13, 48


def heeded(disabled: str = "", enabled: str = "") -> heeding.Heeded:
    flags = {"disable_health_checks": disabled, "enable_health_checks": enabled}
    return heeding.of(settings.load(settings.CardSettings, flags, {}))


def event(xid: int) -> contract.CardEvent:
    return contract.CardEvent(address=ADDRESS, xid=xid, fault=xids.fault(xid))


def counts(found: heeding.Heeded, xid: int) -> bool:
    return found.event(event(xid)).fault is not None


@pytest.mark.parametrize(
    ("disabled", "enabled", "counted"),
    [
        ("", "", {FAULTY, 95}),
        ("48", "", {95}),
        (" 48 ,95", "", set()),
        ("XIDS", "", set()),
        ("all", "", set()),
        ("", "13", {HARMLESS, FAULTY, 95}),
        ("", "all", {HARMLESS, FAULTY, 95}),
        ("48", "48", {FAULTY, 95}),
        ("all", "48", {FAULTY}),
        ("xids", "13,95", {HARMLESS, 95}),
        ("all", "xids", {HARMLESS, FAULTY, 95}),
    ],
)
def test_what_is_enabled_comes_before_what_is_disabled_and_both_before_the_usual(
    disabled: str, enabled: str, counted: set[int]
) -> None:
    found = heeded(disabled, enabled)
    assert {each for each in (HARMLESS, FAULTY, 95) if counts(found, each)} == counted


@pytest.mark.parametrize(
    ("disabled", "enabled", "counts"),
    [
        ("", "", True),
        ("48", "", True),
        ("xids", "", True),
        ("all", "", False),
        ("all", "48", False),
        ("all", "xids", False),
        ("all", "all", True),
    ],
)
def test_what_readings_show_is_passed_over_by_the_word_all_alone(
    disabled: str, enabled: str, counts: bool
) -> None:
    fault = contract.Fault(reason="UncorrectableEcc", message="Errors.")
    reading = contract.CardReading(address=ADDRESS, uuid="GPU-x", faults=(fault,))
    assert bool(heeded(disabled, enabled).reading(reading).faults) is counts


def test_a_number_that_is_enabled_says_so() -> None:
    found = heeded(enabled="13").event(event(HARMLESS))
    assert found.fault == contract.Fault(
        reason="HardwareXid",
        message="The driver raised Xid 13, which is set to count as the card's fault.",
    )
    assert heeded(enabled="48").event(event(FAULTY)) == event(FAULTY)


def test_a_change_without_a_number_never_counts() -> None:
    change = contract.CardEvent(address=ADDRESS)
    assert heeded(enabled="all").event(change) == change


def test_what_was_raised_counts_after_a_restart_as_if_it_were_raised_then() -> None:
    before = heeded(enabled="13")
    events = tuple(before.event(event(xid)) for xid in (HARMLESS, FAULTY, 95))
    raised = health.Raised(events=events, since=100)

    def left(found: heeding.Heeded) -> list[int | None]:
        again = found.raised(raised)
        return [each.xid for each in again.events] if again is not None else []

    assert left(before) == [HARMLESS, FAULTY, 95]
    assert left(heeded()) == [FAULTY, 95]
    assert left(heeded("48")) == [95]
    assert left(heeded("all")) == []


@pytest.mark.parametrize("word", ["forty", "0", "-1", "48.0", "4 8", "123456", "4" * 5000])
@pytest.mark.parametrize("field", ["disable", "enable"])
def test_a_word_that_means_nothing_is_refused(field: str, word: str) -> None:
    flags = {f"{field}_health_checks": f"48,{word}"}
    with pytest.raises(errors.InvalidError) as refused:
        heeding.of(settings.load(settings.CardSettings, flags, {}))
    assert refused.value.field == f"--{field}-health-checks"
    assert refused.value.message.endswith(
        "is not valid; allowed: all, xids, or numbers of Xids such as 48, separated by commas"
    )


def test_the_variables_are_those_of_nvidias_device_plugin() -> None:
    variables = {"DP_DISABLE_HEALTHCHECKS": "all", "DP_ENABLE_HEALTHCHECKS": "48"}
    found = settings.load(settings.CardSettings, {}, variables)
    assert heeding.of(found) == heeded("all", "48")
