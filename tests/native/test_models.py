# SPDX-License-Identifier: Apache-2.0
"""A simulated card lacks what its model lacks, and says so as the real one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml as n
import pytest
from tests.native import hosts

pytestmark = pytest.mark.skipif(hosts.REAL, reason="about the simulation alone")


def lacks(function: Callable[..., Any], *words: Any) -> bool:
    try:
        function(*words)
    except n.NVMLError_NotSupported:
        return True
    return False


def test_a_t4_has_page_retirement_and_neither_links_nor_partitions(t4: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    assert n.nvmlDeviceGetName(card) == "Tesla T4"
    assert n.nvmlDeviceGetRetiredPages(card, 0) == []
    assert lacks(n.nvmlDeviceGetNvLinkState, card, 0)
    assert lacks(n.nvmlDeviceGetMigMode, card)
    assert lacks(n.nvmlDeviceGetRemappedRows, card)
    assert lacks(n.nvmlDeviceGetFanSpeed, card)
    assert lacks(n.nvmlDeviceGetPlatformInfo, card, n.byref(n.c_nvmlPlatformInfo_v2_t()))
    assert n.nvmlGpmQueryDeviceSupport(card).isSupportedDevice == 0
    assert n.nvmlDeviceGetMaxMigDeviceCount(card) == 0
    memory = n.nvmlDeviceGetFieldValues(card, [n.NVML_FI_DEV_MEMORY_TEMP])[0]
    assert memory.nvmlReturn == n.NVML_ERROR_NOT_SUPPORTED


def test_a_driver_withdraws_what_it_has_deprecated(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    assert n.nvmlSystemGetNVMLVersion() == "13.580.95.05"
    with pytest.raises(n.NVMLError_Deprecated):
        n.nvmlDeviceGetDisplayMode(card)
    assert n.nvmlDeviceGetApplicationsClock(card, n.NVML_CLOCK_SM) == 1980
    h100.simctl("host", "driver=595.45.04")
    with pytest.raises(n.NVMLError_Deprecated):
        n.nvmlDeviceGetApplicationsClock(card, n.NVML_CLOCK_SM)


def test_an_idle_t4_drops_to_its_low_memory_clock(t4: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    assert n.nvmlDeviceGetPerformanceState(card) == 8
    assert n.nvmlDeviceGetClockInfo(card, n.NVML_CLOCK_MEM) == 405
    t4.set(0, "utilization=80")
    assert n.nvmlDeviceGetPerformanceState(card) == 0
    assert n.nvmlDeviceGetClockInfo(card, n.NVML_CLOCK_MEM) == 5001


def test_a_t4_gives_absolute_limits_of_temperature(t4: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    assert n.nvmlDeviceGetTemperatureThreshold(card, n.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN) == 96
    assert lacks(n.nvmlDeviceGetMarginTemperature, card)


def test_an_h100_gives_its_limits_as_margins(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    h100.set(0, "temperature=80")
    assert n.nvmlDeviceGetMarginTemperature(card) == 7
    shutdown = n.nvmlDeviceGetFieldValues(card, [n.NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT])[0]
    assert (shutdown.valueType, shutdown.value.siVal) == (n.NVML_VALUE_TYPE_SIGNED_INT, -8)


def test_an_h100_has_eighteen_links_to_switches(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    assert [n.nvmlDeviceGetNvLinkState(card, link) for link in range(18)] == [1] * 18
    assert n.nvmlDeviceGetNvLinkRemoteDeviceType(card, 3) == n.NVML_NVLINK_DEVICE_TYPE_SWITCH
    assert n.nvmlDeviceGetNvLinkVersion(card, 0) == n.NVML_NVLINK_VERSION_4_0
    with pytest.raises(n.NVMLError_InvalidArgument):
        n.nvmlDeviceGetNvLinkState(card, 18)
    h100.set(0, "nvlink-down=0x8", "nvlink-error.5.replay=7")
    assert n.nvmlDeviceGetNvLinkState(card, 3) == 0
    assert n.nvmlDeviceGetNvLinkErrorCounter(card, 5, n.NVML_NVLINK_ERROR_DL_REPLAY) == 7
    total = n.nvmlDeviceGetFieldValues(card, [n.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL])[0]
    assert total.value.ullVal == 7


def test_an_h100_belongs_to_a_fabric(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    info = n.c_nvmlGpuFabricInfo_v3_t()
    n.nvmlDeviceGetGpuFabricInfoV(card, n.byref(info))
    assert info.state == n.NVML_GPU_FABRIC_STATE_COMPLETED
    assert info.healthSummary == n.NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY


def test_cards_know_their_cpus_and_their_distance(h100: hosts.Host) -> None:
    one, two = (n.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    words = n.nvmlDeviceGetCpuAffinity(two, 4)
    cpus = {64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1}
    assert cpus == {*range(56, 112), *range(168, 224)}
    assert n.nvmlDeviceGetTopologyCommonAncestor(one, two) == n.NVML_TOPOLOGY_SYSTEM
    assert n.nvmlDeviceGetTopologyNearestGpus(one, n.NVML_TOPOLOGY_SYSTEM)[0].contents is not None
    assert n.nvmlDeviceGetP2PStatus(one, two, n.NVML_P2P_CAPS_INDEX_NVLINK) == n.NVML_P2P_STATUS_OK


def test_settings_hold_until_the_reboot(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    n.nvmlDeviceSetPersistenceMode(card, 1)
    n.nvmlDeviceSetComputeMode(card, n.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    n.nvmlDeviceSetPowerManagementLimit(card, 500_000)
    n.nvmlDeviceSetGpuLockedClocks(card, 500, 900)
    assert n.nvmlDeviceGetPersistenceMode(card) == 1
    assert n.nvmlDeviceGetComputeMode(card) == n.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    assert n.nvmlDeviceGetEnforcedPowerLimit(card) == 500_000
    h100.set(0, "utilization=100")
    assert n.nvmlDeviceGetClockInfo(card, n.NVML_CLOCK_SM) == 900
    with pytest.raises(n.NVMLError_InvalidArgument):
        n.nvmlDeviceSetPowerManagementLimit(card, 900_000)
    h100.simctl("reboot")
    assert n.nvmlDeviceGetPersistenceMode(card) == 0
    assert n.nvmlDeviceGetComputeMode(card) == n.NVML_COMPUTEMODE_DEFAULT
    assert n.nvmlDeviceGetEnforcedPowerLimit(card) == 700_000


def test_ecc_changes_with_the_next_reset(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    n.nvmlDeviceSetEccMode(card, 0)
    assert n.nvmlDeviceGetEccMode(card) == [1, 0]
    h100.set(0, "reset=1")
    assert n.nvmlDeviceGetEccMode(card) == [0, 0]
    assert lacks(n.nvmlDeviceGetTotalEccErrors, card, 0, 0)


def test_counters_of_errors_are_volatile_or_kept(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    h100.set(0, "ecc.uncorrected.volatile.memory=3", "ecc.uncorrected.aggregate.memory=5")
    h100.set(0, "remap-uncorrectable=1", "remap-pending=1")
    assert n.nvmlDeviceGetTotalEccErrors(card, 1, 0) == 3
    assert n.nvmlDeviceGetRemappedRows(card) == (0, 1, 1, 0)
    action = n.nvmlDeviceGetFieldValues(card, [n.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    assert action.value.uiVal == n.NVML_GPU_RECOVERY_ACTION_GPU_RESET
    h100.simctl("reboot")
    assert n.nvmlDeviceGetTotalEccErrors(card, 1, 0) == 0
    assert n.nvmlDeviceGetTotalEccErrors(card, 1, 1) == 5
    assert n.nvmlDeviceGetRemappedRows(card) == (0, 1, 0, 0)
    histogram = n.nvmlDeviceGetRowRemapperHistogram(card)
    assert (histogram.max, histogram.high) == (2559, 1)


def test_heat_slows_the_clocks_and_says_why(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    h100.set(0, "utilization=100")
    assert n.nvmlDeviceGetCurrentClocksEventReasons(card) == 0
    h100.set(0, "temperature=90")
    reasons = n.nvmlDeviceGetCurrentClocksEventReasons(card)
    assert reasons & n.nvmlClocksEventReasonHwThermalSlowdown
    assert n.nvmlDeviceGetClockInfo(card, n.NVML_CLOCK_SM) == 990
