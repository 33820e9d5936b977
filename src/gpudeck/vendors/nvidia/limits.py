# SPDX-License-Identifier: Apache-2.0
"""Limits of card memory by cgroup: whether a card can keep a container to an amount.

NVML has `nvmlDeviceSetMemoryLimits_v1` since CUDA 13.4: the driver refuses what the
processes of a cgroup (version 2) would allocate past their hard limit. The cgroup exists
when the container is created, so a hook sets the limit, see `sharing`. Runs in the library process.
"""

from __future__ import annotations

from typing import Any

import pynvml

from gpudeck.host import root as host
from gpudeck.vendors.nvidia.nvml import Nvml, QueryError

_CGROUPS = "/sys/fs/cgroup"
_VERSION_2 = f"{_CGROUPS}/cgroup.controllers"


def probe(nvml: Nvml, handle: Any, own: host.Root) -> str:
    """Say why the card cannot keep a container to an amount of memory; "" where it can.

    Asks for the limits of this process's own cgroup: a driver that knows limits answers
    that none are set. `own` is this container's root. Raises QueryError for a card that fails.
    """
    if not own.exists(_VERSION_2):
        return "The node has cgroup version 1, the driver keeps limits by cgroup version 2 only."
    asked = pynvml.c_nvmlGetMemoryLimits_v1_t(_CGROUPS.encode(), 0, 0, 0)
    try:
        nvml.call(pynvml.nvmlDeviceGetMemoryLimits_v1, handle, asked)
    except QueryError as error:
        if error.code == pynvml.NVML_ERROR_NOT_FOUND:
            return ""
        if error.code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            return "The driver cannot limit memory by cgroup, which came with CUDA 13.4."
        if error.lacking:
            return "Neither card nor driver can limit memory by cgroup (CUDA 13.4 and newer)."
        if error.code == pynvml.NVML_ERROR_OPERATING_SYSTEM:
            return f"The driver cannot open {_CGROUPS}."
        raise
    return ""
