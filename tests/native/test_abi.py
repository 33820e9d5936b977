# SPDX-License-Identifier: Apache-2.0
"""The structs of nvml.h have the sizes that nvidia-ml-py declares."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pynvml
import pytest
from tests.native import hosts

from gpudeck.lab import simulation

pytestmark = pytest.mark.skipif(hosts.REAL, reason="about the simulation alone")

STRUCTS = {
    "nvmlPciInfo_t": pynvml.nvmlPciInfo_t,
    "nvmlPciInfo_v2_t": pynvml.nvmlPciInfo_v2_t,
    "nvmlPciInfoExt_t": pynvml.nvmlPciInfoExt_v1_t,
    "nvmlMemory_t": pynvml.c_nvmlMemory_t,
    "nvmlMemory_v2_t": pynvml.c_nvmlMemory_v2_t,
    "nvmlBAR1Memory_t": pynvml.c_nvmlBAR1Memory_t,
    "nvmlUtilization_t": pynvml.c_nvmlUtilization_t,
    "nvmlEccErrorCounts_t": pynvml.c_nvmlEccErrorCounts_t,
    "nvmlProcessInfo_t": pynvml.c_nvmlProcessInfo_v3_t,
    "nvmlProcessDetail_t": pynvml.c_nvmlProcessDetail_v1_t,
    "nvmlProcessDetailList_t": pynvml.c_nvmlProcessDetailList_v1_t,
    "nvmlProcessUtilizationSample_t": pynvml.c_nvmlProcessUtilizationSample_t,
    "nvmlProcessUtilizationInfo_t": pynvml.c_nvmlProcessUtilizationInfo_v1_t,
    "nvmlProcessesUtilizationInfo_t": pynvml.c_nvmlProcessesUtilizationInfo_v1_t,
    "nvmlAccountingStats_t": pynvml.c_nvmlAccountingStats_t,
    "nvmlSample_t": pynvml.c_nvmlSample_t,
    "nvmlViolationTime_t": pynvml.c_nvmlViolationTime_t,
    "nvmlFieldValue_t": pynvml.c_nvmlFieldValue_t,
    "nvmlEventData_t": pynvml.c_nvmlEventData_t,
    "nvmlSystemEventSetRequest_t": pynvml.c_nvmlSystemEventSetCreateRequest_v1_t,
    "nvmlSystemRegisterEventRequest_t": pynvml.c_nvmlSystemRegisterEventRequest_v1_t,
    "nvmlSystemEventData_t": pynvml.c_nvmlSystemEventData_v1_t,
    "nvmlSystemEventSetWaitRequest_t": pynvml.c_nvmlSystemEventSetWaitRequest_v1_t,
    "nvmlPlacement_t": pynvml.c_nvmlGpuInstancePlacement_t,
    "nvmlGpuInstanceProfileInfo_t": pynvml.c_nvmlGpuInstanceProfileInfo_t,
    "nvmlGpuInstanceProfileInfo_v2_t": pynvml.c_nvmlGpuInstanceProfileInfo_v2_t,
    "nvmlGpuInstanceInfo_t": pynvml.c_nvmlGpuInstanceInfo_t,
    "nvmlComputeInstanceProfileInfo_t": pynvml.c_nvmlComputeInstanceProfileInfo_t,
    "nvmlComputeInstanceProfileInfo_v2_t": pynvml.c_nvmlComputeInstanceProfileInfo_v2_t,
    "nvmlComputeInstanceInfo_t": pynvml.c_nvmlComputeInstanceInfo_t,
    "nvmlDeviceAttributes_t": pynvml.c_nvmlDeviceAttributes,
    "nvmlRowRemapperHistogram_t": pynvml.c_nvmlRowRemapperHistogramValues,
    "nvmlRemappedRows_v2_t": pynvml.c_nvmlRemappedRowsInfo_v2_t,
    "nvmlEccSramErrorStatus_t": pynvml.c_nvmlEccSramErrorStatus_v1_t,
    "nvmlGpuFabricInfo_t": pynvml.c_nvmlGpuFabricInfo_t,
    "nvmlGpuFabricInfo_v2_t": pynvml.c_nvmlGpuFabricInfo_v2_t,
    "nvmlGpuFabricInfo_v3_t": pynvml.c_nvmlGpuFabricInfo_v3_t,
    "nvmlPlatformInfo_t": pynvml.c_nvmlPlatformInfo_v2_t,
    "nvmlVersioned_t": pynvml.c_nvmlDeviceAddressingMode_t,
    "nvmlVersionedPair_t": pynvml.c_nvmlRepairStatus_t,
    "nvmlTemperature_t": pynvml.c_nvmlTemperature_v1_t,
    "nvmlMarginTemperature_t": pynvml.c_nvmlMarginTemperature_v1_t,
    "nvmlPdi_t": pynvml.c_nvmlPdi_t,
    "nvmlUUID_t": pynvml.c_nvmlUUID_t,
    "nvmlSystemDriverBranchInfo_t": pynvml.c_nvmlSystemDriverBranchInfo_v1_t,
    "nvmlPowerValue_v2_t": pynvml.c_nvmlPowerValue_v2_t,
    "nvmlC2cModeInfo_t": pynvml.c_nvmlC2cModeInfo_v1_t,
    "nvmlGpuDynamicPstatesInfo_t": pynvml.c_nvmlGpuDynamicPstatesInfo_t,
    "nvmlGpuThermalSettings_t": pynvml.c_nvmlGpuThermalSettings_t,
    "nvmlBridgeChipHierarchy_t": pynvml.c_nvmlBridgeChipHierarchy_t,
    "nvmlClockOffset_t": pynvml.c_nvmlClockOffset_t,
    "nvmlExcludedDeviceInfo_t": pynvml.c_nvmlExcludedDeviceInfo_t,
    "nvmlGpmMetric_t": pynvml.c_nvmlGpmMetric_t,
    "nvmlGpmMetricsGet_t": pynvml.c_nvmlGpmMetricsGet_t,
    "nvmlGpmSupport_t": pynvml.c_nvmlGpmSupport_t,
}
COMPUTED = {  # Not in nvidia-ml-py: version words that NVML's header computes.
    "nvmlGpuInstanceProfileInfo_v3_t": 0x98,
    "nvmlComputeInstanceProfileInfo_v3_t": 0x8C,
}


def test_every_struct_has_the_size_of_the_bindings(tmp_path: Path) -> None:
    names = [*STRUCTS, *COMPUTED]
    prints = "".join(f'printf("%zu\\n", sizeof({name}));' for name in names)
    source = tmp_path / "sizes.c"
    source.write_text(f'#include <stdio.h>\n#include "nvml.h"\nint main(void) {{ {prints} }}\n')
    program = tmp_path / "sizes"
    subprocess.run(["gcc", f"-I{simulation.SOURCES}", "-o", program, source], check=True)
    sizes = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    wanted = [ctypes.sizeof(struct) for struct in STRUCTS.values()] + list(COMPUTED.values())
    assert dict(zip(names, map(int, sizes), strict=True)) == dict(zip(names, wanted, strict=True))
