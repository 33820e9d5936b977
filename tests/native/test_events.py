# SPDX-License-Identifier: Apache-2.0
"""Events reach every process that registered, from then on, and waiting costs nothing."""

from __future__ import annotations

import time
from typing import Any

import pynvml as n
import pytest
from tests.native import hosts

pytestmark = pytest.mark.skipif(hosts.REAL, reason="about the simulation alone")
ANY = 0xFFFFFFFF


def registered(types: int, *cards: int) -> Any:
    events = n.nvmlEventSetCreate()
    for index in cards:
        n.nvmlDeviceRegisterEvents(n.nvmlDeviceGetHandleByIndex(index), types, events)
    return events


def test_an_xid_reaches_a_process_that_waits(h100: hosts.Host) -> None:
    code = """
        s = n.nvmlEventSetCreate()
        n.nvmlDeviceRegisterEvents(n.nvmlDeviceGetHandleByIndex(1), 8, s)
        print('waiting', flush=True)
        e = n.nvmlEventSetWait_v2(s, 20000)
        print(n.nvmlDeviceGetIndex(e.device), e.eventData, e.gpuInstanceId, flush=True)
    """
    with hosts.ended(h100.python(code)) as waiter:
        hosts.read_until(waiter, "waiting")
        h100.set(1, "xid=48")
        assert "1 48 4294967295" in hosts.read_until(waiter, "48")
    assert h100.state(1)["last-xid"] == 48


def test_an_event_says_which_instance_it_hit(h100: hosts.Host) -> None:
    events = registered(n.nvmlEventTypeXidCriticalError, 0)
    h100.set(0, "xid=94:2:1", "xid=31")
    first, second = (n.nvmlEventSetWait_v2(events, 1000) for _ in range(2))
    assert (first.eventData, first.gpuInstanceId, first.computeInstanceId) == (94, 2, 1)
    assert (second.eventData, second.gpuInstanceId, second.computeInstanceId) == (31, ANY, ANY)


def test_only_what_was_registered_and_only_what_came_after_is_delivered(h100: hosts.Host) -> None:
    h100.set(0, "xid=13")
    events = registered(n.nvmlEventTypeXidCriticalError, 0)
    h100.set(1, "xid=79")
    h100.set(0, "ecc.corrected.volatile.memory=4", "xid=43")
    assert n.nvmlEventSetWait_v2(events, 1000).eventData == 43
    with pytest.raises(n.NVMLError_Timeout):
        n.nvmlEventSetWait_v2(events, 0)


def test_a_growing_uncorrected_counter_is_an_event(h100: hosts.Host) -> None:
    events = registered(n.nvmlEventTypeDoubleBitEccError, 0)
    h100.set(0, "ecc.uncorrected.volatile.sram=1")
    assert n.nvmlEventSetWait_v2(events, 1000).eventType == n.nvmlEventTypeDoubleBitEccError


def test_a_card_that_falls_off_the_bus_says_so_once(h100: hosts.Host) -> None:
    wanted = n.nvmlEventTypeXidCriticalError | n.nvmlEventTypeGpuUnavailableError
    events = registered(wanted, 0)
    h100.set(0, "lose=15")
    got = [n.nvmlEventSetWait_v2(events, 1000) for _ in range(2)]
    assert [(event.eventType, event.eventData) for event in got] == [(8, 79), (0x4000, 79)]


def test_partitions_do_not_take_registrations(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    n.nvmlDeviceSetMigMode(card, 1)
    n.nvmlGpuInstanceCreateComputeInstance(n.nvmlDeviceCreateGpuInstance(card, 0), 4)
    mig = n.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)
    with pytest.raises(n.NVMLError_NotSupported):
        n.nvmlDeviceRegisterEvents(mig, 8, n.nvmlEventSetCreate())


def test_a_reader_that_fell_behind_gets_the_newest_events(h100: hosts.Host) -> None:
    events = registered(n.nvmlEventTypeXidCriticalError, 0)
    h100.set(0, *(f"xid={number}" for number in range(1001, 1301)))
    got = n.nvmlEventSetWait_v2(events, 1000).eventData
    assert got == 1300 - 256 + 1


def test_waiting_takes_no_processor_time(h100: hosts.Host) -> None:
    events = registered(n.nvmlEventTypeXidCriticalError, 0, 1)
    before = time.process_time()
    with pytest.raises(n.NVMLError_Timeout):
        n.nvmlEventSetWait_v2(events, 400)
    assert time.process_time() - before < 0.1


def test_a_freed_set_is_no_set(h100: hosts.Host) -> None:
    events = registered(n.nvmlEventTypeXidCriticalError, 0)
    n.nvmlEventSetFree(events)
    with pytest.raises(n.NVMLError_InvalidArgument):
        n.nvmlEventSetWait_v2(events, 10)
