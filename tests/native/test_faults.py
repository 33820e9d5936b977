# SPDX-License-Identifier: Apache-2.0
"""Faults that can be turned on: lost cards, failing, hanging and slow calls."""

from __future__ import annotations

import threading
import time
from typing import Any

import pynvml as n
import pytest
from tests.native import hosts

pytestmark = pytest.mark.skipif(hosts.REAL, reason="about the simulation alone")


@pytest.mark.parametrize(
    ("code", "error"), [(15, n.NVMLError_GpuIsLost), (999, n.NVMLError_Unknown)]
)
def test_a_lost_card_answers_nothing_until_it_returns(
    h100: hosts.Host, code: int, error: type[n.NVMLError]
) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    h100.set(0, f"lose={code}")
    assert n.nvmlDeviceGetCount() == 2
    with pytest.raises(error):
        n.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(error):
        n.nvmlDeviceGetUUID(card)
    assert n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(1)).startswith("GPU-a0b0c0d1")
    h100.set(0, "return=1")
    assert n.nvmlDeviceGetUUID(card).startswith("GPU-a0b0c0d0")


def test_an_xid_that_needs_a_reset_asks_for_it_until_the_reset(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    events = n.nvmlEventSetCreate()
    types = n.nvmlEventTypeXidCriticalError | n.nvmlEventTypeGpuRecoveryAction
    n.nvmlDeviceRegisterEvents(card, types, events)
    h100.set(0, "xid=31", "xid=95", "xid=48")
    got = [n.nvmlEventSetWait_v2(events, 1000) for _ in range(5)]
    assert [(event.eventType, event.eventData) for event in got] == [
        (8, 31), (8, 95), (8, 154), (0x8000, 1), (8, 48),
    ]  # fmt: skip
    assert h100.state()["recovery-action"] == n.NVML_GPU_RECOVERY_ACTION_GPU_RESET
    h100.set(0, "reset=1")
    field = n.nvmlDeviceGetFieldValues(card, [n.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    assert field.value.uiVal == n.NVML_GPU_RECOVERY_ACTION_NONE


@pytest.mark.parametrize("beginning", [["reset=1"], ["lose=15", "return=1"]])
def test_the_energy_counter_begins_anew_with_a_reset_or_a_return(
    h100: hosts.Host, beginning: list[str]
) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    h100.set(0, "power-mw=500000000")
    while n.nvmlDeviceGetTotalEnergyConsumption(card) < 1_000_000:
        pass
    h100.set(0, "power-mw=1000", *beginning)
    assert n.nvmlDeviceGetTotalEnergyConsumption(card) < 500_000


def test_every_call_on_a_card_can_be_made_to_fail(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    h100.set(0, "fail=17")
    with pytest.raises(n.NVMLError_OperatingSystem):
        n.nvmlDeviceGetPowerUsage(card)
    h100.set(0, "clear=1")
    assert n.nvmlDeviceGetPowerUsage(card) > 0


def test_one_function_can_be_made_to_fail(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    h100.set(0, "fail.nvmlDeviceRegisterEvents=999")
    events = n.nvmlEventSetCreate()
    with pytest.raises(n.NVMLError_Unknown):
        n.nvmlDeviceRegisterEvents(card, n.nvmlEventTypeXidCriticalError, events)
    other = n.nvmlDeviceGetHandleByIndex(1)
    n.nvmlDeviceRegisterEvents(other, n.nvmlEventTypeXidCriticalError, events)
    h100.set(0, "fail.nvmlDeviceRegisterEvents=0")
    n.nvmlDeviceRegisterEvents(card, n.nvmlEventTypeXidCriticalError, events)


def test_a_hung_call_ends_when_the_card_recovers(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    answers: list[int] = []
    h100.set(0, "hang=1")
    caller = threading.Thread(target=lambda: answers.append(n.nvmlDeviceGetPowerUsage(card)))
    caller.start()
    assert n.nvmlDeviceGetPowerUsage(n.nvmlDeviceGetHandleByIndex(1)) > 0
    h100.set(1, "temperature=50")  # The host's lock is free.
    caller.join(0.2)
    assert caller.is_alive()
    h100.set(0, "hang=0")
    caller.join(10)
    assert len(answers) == 1


def test_a_process_in_a_hung_call_can_be_killed(h100: hosts.Host) -> None:
    h100.set(0, "fail.nvmlDeviceGetMemoryInfo=hang")
    code = """
        h = n.nvmlDeviceGetHandleByIndex(0); print('calling', flush=True)
        n.nvmlDeviceGetMemoryInfo(h)
    """
    with hosts.ended(h100.python(code)) as caller:
        hosts.read_until(caller, "calling")
        caller.kill()
        assert caller.wait(10) == -9
    assert h100.state()["rules"] == {"nvmlDeviceGetMemoryInfo": -1}


def test_a_slow_card_takes_its_time(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    h100.set(0, "slow-ms=60")
    started = time.monotonic()
    n.nvmlDeviceGetPowerUsage(card)
    assert time.monotonic() - started >= 0.06


def test_an_unknown_knob_or_value_is_refused_and_changes_nothing(h100: hosts.Host) -> None:
    before = h100.state()
    for assignment in ("colour=red", "temperature=hot", "lose=7", "ecc.odd.volatile.l1=1"):
        refused = h100.simctl("set", "0", assignment)
        assert refused.returncode == 1
        assert assignment in refused.stderr
    assert h100.state() == before
    assert "no card 7" in h100.simctl("set", "7", "hang=1").stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  minor 0", "  minor nought", "line"),
        ("  brand 14", "  colour green", "is not a key of a card"),
        ("  cpus 0-55,112-167", "  cpus 0-5000", "too high"),
        ("  lacks retired-pages", "  lacks manners", "not known"),
        ("driver 580.95.05", "", "driver: is missing"),
    ],
)
def test_a_bad_description_is_refused_by_line_and_reason(
    make_host: Any, old: str, new: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        make_host("h100-x2", (old, new))
