# SPDX-License-Identifier: Apache-2.0
"""Which NVLink fabric a card belongs to, as NVML tells it. Runs in the library process.

Cards of several nodes that have the same cluster and clique reach each other's memory.
A card that is not joined yet, or whose cluster has no UUID (a fabric of one node), belongs to none.
"""

from __future__ import annotations

import ctypes
import uuid
from typing import Any

import pynvml

from gpudeck.vendors.nvidia.nvml import Nvml


def read_clique(nvml: Nvml, handle: Any) -> str:
    """Return `<cluster UUID>.<clique id>`, empty for a card in no fabric."""
    told = pynvml.c_nvmlGpuFabricInfo_t()
    if nvml.optional(pynvml.nvmlDeviceGetGpuFabricInfo, handle, ctypes.byref(told)) is None:
        return ""
    return clique(told.state, told.status, bytes(told.clusterUuid), told.cliqueId)


def clique(state: int, status: int, cluster: bytes, clique_id: int) -> str:
    """Return the name of the clique that these values mean."""
    joined = state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED and status == pynvml.NVML_SUCCESS
    if not joined or not any(cluster):
        return ""
    return f"{uuid.UUID(bytes=cluster)}.{clique_id}"
