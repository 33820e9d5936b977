# SPDX-License-Identifier: Apache-2.0
"""What NVML promises, asked through nvidia-ml-py: on simulated cards, or unchanged on real ones.

With GPUDECK_REAL_NVML=1 the machine's own driver is asked. Nothing here changes a card; a test
that meets a card without the ability skips by what NVML itself answers.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

INVALID, SMALL = pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_INSUFFICIENT_SIZE


def ask(function: Callable[..., Any], *words: Any) -> Any:
    """The answer, or a skipped test where the card cannot do this."""
    try:
        return function(*words)
    except pynvml.NVMLError_NotSupported:
        pytest.skip(f"{function.__name__} is not supported here")


def raw(name: str, *words: Any) -> int:
    """Call the C function itself and give its return code."""
    code: int = getattr(pynvml.nvmlLib, name)(*words)
    return code


def test_every_function_that_the_bindings_name_is_there(nvml: Any) -> None:
    source = Path(pynvml.__file__).read_text()
    named = set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', source))
    missing = {name for name in named if not hasattr(pynvml.nvmlLib, name)}
    if missing and nvml.nvmlSystemGetDriverVersion() < "610":
        known = {name for name in missing if not re.search(r"_v\d+$|V$", name)}
        missing = known & {"nvmlInit_v2", "nvmlDeviceGetCount_v2"}
    assert not missing


def test_nothing_answers_before_initialisation_and_after_the_last_shutdown(nvml: Any) -> None:
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    assert nvml.nvmlDeviceGetCount() >= 0  # One reference is left.
    nvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        nvml.nvmlShutdown()


def test_a_card_is_found_again_by_uuid_and_by_bus_id(nvml: Any) -> None:
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = nvml.nvmlDeviceGetUUID(handle)
        bus_id = nvml.nvmlDeviceGetPciInfo(handle).busId
        assert nvml.nvmlDeviceGetIndex(handle) == index
        assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(uuid)) == index
        assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId(bus_id)) == index
        assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)


def test_what_is_not_there_is_not_found_and_what_cannot_be_is_invalid(nvml: Any) -> None:
    with pytest.raises(pynvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")
    with pytest.raises(pynvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByPciBusId("0000:FE:1D.0")
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetHandleByIndex(nvml.nvmlDeviceGetCount())


def test_cards_are_numbered_in_the_order_of_their_bus_ids(nvml: Any) -> None:
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    places = [(p.domain, p.bus, p.device) for p in map(nvml.nvmlDeviceGetPciInfo, handles)]
    assert places == sorted(places)


def test_bus_ids_have_eight_and_four_digits_of_domain(nvml: Any, device: Any) -> None:
    info = nvml.nvmlDeviceGetPciInfo(device)
    assert info.busId == f"{info.domain:08X}:{info.bus:02X}:{info.device:02X}.0"
    assert info.busIdLegacy == f"{info.domain:04X}:{info.bus:02X}:{info.device:02X}.0"
    assert info.pciDeviceId & 0xFFFF == 0x10DE


def test_both_versions_of_the_memory_call_agree(nvml: Any, device: Any) -> None:
    first = ask(nvml.nvmlDeviceGetMemoryInfo, device)
    second = ask(nvml.nvmlDeviceGetMemoryInfo, device, pynvml.nvmlMemory_v2)
    assert first.total == second.total
    assert first.free + first.used == first.total
    assert second.free + second.used + second.reserved == second.total


@pytest.mark.parametrize(
    ("function", "struct"),
    [
        ("nvmlDeviceGetMemoryInfo_v2", pynvml.c_nvmlMemory_v2_t),
        ("nvmlDeviceGetTemperatureV", pynvml.c_nvmlTemperature_v1_t),
        ("nvmlDeviceGetPciInfoExt", pynvml.nvmlPciInfoExt_v1_t),
    ],
)
def test_a_struct_of_an_unknown_version_is_refused(device: Any, function: str, struct: Any) -> None:
    if not hasattr(pynvml.nvmlLib, function):
        pytest.skip(f"{function} came later than this driver")
    value = struct()
    value.version = 0x7F000001
    assert raw(function, device, ctypes.byref(value)) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetMinorNumber", "nvmlDeviceGetIndex", "nvmlDeviceGetMemoryInfo",
     "nvmlDeviceGetPowerUsage", "nvmlDeviceGetBrand"],
)  # fmt: skip
def test_a_null_pointer_is_an_invalid_argument(device: Any, function: str) -> None:
    assert raw(function, device, None) == INVALID


def test_a_buffer_that_is_too_small_is_said_to_be(device: Any) -> None:
    buffer = ctypes.create_string_buffer(4)
    for function in ("nvmlDeviceGetName", "nvmlDeviceGetUUID"):
        assert raw(function, device, buffer, ctypes.c_uint(4)) == SMALL


def test_a_null_handle_is_an_invalid_argument(nvml: Any) -> None:
    assert raw("nvmlDeviceGetIndex", None, ctypes.byref(ctypes.c_uint())) == INVALID


def test_the_power_limit_lies_between_its_constraints(nvml: Any, device: Any) -> None:
    low, high = ask(nvml.nvmlDeviceGetPowerManagementLimitConstraints, device)
    assert low <= nvml.nvmlDeviceGetPowerManagementLimit(device) <= high
    assert low <= nvml.nvmlDeviceGetPowerManagementDefaultLimit(device) <= high
    assert 0 < nvml.nvmlDeviceGetPowerUsage(device) <= high * 1.2


def test_energy_never_falls(nvml: Any, device: Any) -> None:
    readings = [ask(nvml.nvmlDeviceGetTotalEnergyConsumption, device) for _ in range(50)]
    assert readings == sorted(readings)


def test_clocks_stay_below_their_greatest_values(nvml: Any, device: Any) -> None:
    for kind in (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_GRAPHICS, pynvml.NVML_CLOCK_VIDEO):
        greatest = ask(nvml.nvmlDeviceGetMaxClockInfo, device, kind)
        assert 0 < nvml.nvmlDeviceGetClockInfo(device, kind) <= greatest


def test_supported_clocks_are_told_in_two_calls(nvml: Any, device: Any) -> None:
    count = ctypes.c_uint(0)
    name = "nvmlDeviceGetSupportedMemoryClocks"
    if raw(name, device, ctypes.byref(count), None) == pynvml.NVML_ERROR_NOT_SUPPORTED:
        pytest.skip("no supported clocks")
    assert count.value > 0
    memory = nvml.nvmlDeviceGetSupportedMemoryClocks(device)
    assert memory == sorted(memory, reverse=True)
    graphics = nvml.nvmlDeviceGetSupportedGraphicsClocks(device, memory[0])
    assert graphics == sorted(graphics, reverse=True)
    assert graphics[0] <= nvml.nvmlDeviceGetMaxClockInfo(device, pynvml.NVML_CLOCK_GRAPHICS)


def test_each_field_has_its_own_return_code(nvml: Any, device: Any) -> None:
    wanted = [pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER, pynvml.NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED,
              100000]  # fmt: skip
    replay, resetless, unknown = nvml.nvmlDeviceGetFieldValues(device, wanted)
    assert replay.nvmlReturn == pynvml.NVML_SUCCESS
    assert resetless.nvmlReturn in {pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_SUPPORTED}
    assert unknown.nvmlReturn in {INVALID, pynvml.NVML_ERROR_NOT_SUPPORTED}
    assert replay.timestamp > 0


def test_the_power_field_and_the_power_call_speak_of_one_card(nvml: Any, device: Any) -> None:
    field = nvml.nvmlDeviceGetFieldValues(device, [pynvml.NVML_FI_DEV_POWER_INSTANT])[0]
    if field.nvmlReturn:
        pytest.skip("no instant power")
    assert field.value.uiVal == pytest.approx(nvml.nvmlDeviceGetPowerUsage(device), rel=0.5)


def test_waiting_for_an_event_that_does_not_come_times_out(nvml: Any, device: Any) -> None:
    types = ask(nvml.nvmlDeviceGetSupportedEventTypes, device)
    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(device, types & pynvml.nvmlEventTypeXidCriticalError, events)
    started = time.monotonic()
    with pytest.raises(pynvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(events, 60)
    assert time.monotonic() - started >= 0.055
    nvml.nvmlEventSetFree(events)


def test_an_event_type_that_is_not_supported_is_refused_and_the_set_goes_on(
    nvml: Any, device: Any
) -> None:
    types = ask(nvml.nvmlDeviceGetSupportedEventTypes, device)
    events = nvml.nvmlEventSetCreate()
    with pytest.raises(pynvml.NVMLError_NotSupported):
        nvml.nvmlDeviceRegisterEvents(device, 1 << 40, events)
    nvml.nvmlDeviceRegisterEvents(device, types & pynvml.nvmlEventTypeXidCriticalError, events)
    nvml.nvmlEventSetFree(events)


def test_an_idle_card_lists_no_processes_of_ours(nvml: Any, device: Any) -> None:
    processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses, device)
    assert os.getpid() not in {process.pid for process in processes}


def test_mig_profiles_are_told_by_number_and_placed_by_id(nvml: Any, device: Any) -> None:
    ask(nvml.nvmlDeviceGetMigMode, device)
    found = 0
    for profile in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, profile, version=1)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue
        found += 1
        count = ctypes.c_uint(0)
        name = "nvmlDeviceGetGpuInstancePossiblePlacements_v2"
        assert raw(name, device, info.id, None, ctypes.byref(count)) == pynvml.NVML_SUCCESS
        assert count.value >= info.instanceCount > 0
        places = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
        assert raw(name, device, info.id, places, ctypes.byref(count)) == pynvml.NVML_SUCCESS
        assert len({place.start for place in places}) == count.value
        named = nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, profile, version=2)
        assert (named.id, named.memorySizeMB) == (info.id, info.memorySizeMB)
        assert named.name.startswith("MIG ")
    assert found > 3


def test_a_profile_number_past_the_last_is_an_invalid_argument(nvml: Any, device: Any) -> None:
    ask(nvml.nvmlDeviceGetMigMode, device)
    info = pynvml.c_nvmlGpuInstanceProfileInfo_t()
    assert raw("nvmlDeviceGetGpuInstanceProfileInfo", device, 9999, ctypes.byref(info)) == INVALID


def test_no_gpu_instance_is_made_while_mig_is_off(nvml: Any, device: Any) -> None:
    current, _ = ask(nvml.nvmlDeviceGetMigMode, device)
    if current:
        pytest.skip("MIG is on here")
    with pytest.raises(pynvml.NVMLError):
        nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, 0)
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(device) == 0


def test_two_cards_are_as_near_from_either_side(nvml: Any) -> None:
    if nvml.nvmlDeviceGetCount() < 2:
        pytest.skip("one card only")
    one, two = (nvml.nvmlDeviceGetHandleByIndex(i) for i in (0, 1))
    level = nvml.nvmlDeviceGetTopologyCommonAncestor(one, two)
    assert level == nvml.nvmlDeviceGetTopologyCommonAncestor(two, one)
    assert level in {0, 10, 20, 30, 40, 50}


def test_a_link_number_past_the_last_is_refused(nvml: Any, device: Any) -> None:
    active = ctypes.c_uint()
    code = raw("nvmlDeviceGetNvLinkState", device, 9999, ctypes.byref(active))
    assert code in {INVALID, pynvml.NVML_ERROR_NOT_SUPPORTED}


def test_the_pcie_link_is_no_better_than_it_can_be(nvml: Any, device: Any) -> None:
    assert (
        1
        <= nvml.nvmlDeviceGetCurrPcieLinkGeneration(device)
        <= nvml.nvmlDeviceGetMaxPcieLinkGeneration(device)
    )
    assert (
        1
        <= nvml.nvmlDeviceGetCurrPcieLinkWidth(device)
        <= nvml.nvmlDeviceGetMaxPcieLinkWidth(device)
    )


def test_an_error_total_is_the_sum_that_its_places_allow(nvml: Any, device: Any) -> None:
    total = ask(nvml.nvmlDeviceGetTotalEccErrors, device, 1, 0)
    places = 0
    for place in range(pynvml.NVML_MEMORY_LOCATION_COUNT):
        try:
            places += nvml.nvmlDeviceGetMemoryErrorCounter(device, 1, 0, place)
        except pynvml.NVMLError_NotSupported:
            continue
    assert total <= places or places == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="drops capabilities, so it needs them")
def test_settings_need_the_capability_to_administer(nvml: Any, device: Any) -> None:
    mode = ask(nvml.nvmlDeviceGetPersistenceMode, device)
    code = (
        "import pynvml as n\nn.nvmlInit()\nh = n.nvmlDeviceGetHandleByIndex(0)\n"
        f"print(n.nvmlLib.nvmlDeviceSetPersistenceMode(h, {mode}))"
    )
    words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code]
    folder = str(library().parent)
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "LD_LIBRARY_PATH": folder},
    )  # fmt: skip
    assert done.stdout.strip() == str(pynvml.NVML_ERROR_NO_PERMISSION), done.stderr


def library() -> Path:
    """The file of the library that this process has loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return Path(next(line.split()[-1] for line in maps if "libnvidia-ml.so" in line))


def test_error_codes_have_texts(nvml: Any) -> None:
    assert nvml.nvmlErrorString(pynvml.NVML_SUCCESS) == "Success"
    assert nvml.nvmlErrorString(pynvml.NVML_ERROR_NOT_SUPPORTED) == "Not Supported"
    assert nvml.nvmlErrorString(pynvml.NVML_ERROR_UNKNOWN) == "Unknown Error"
