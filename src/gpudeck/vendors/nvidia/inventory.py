# SPDX-License-Identifier: Apache-2.0
"""What one card is: identity, abilities, MIG. Everything as NVML tells it, nothing computed.

Runs in the library process. Three queries must succeed (handle, UUID, name); each other that the
card lacks leaves its field empty. MIG profiles do not change while a process lives,
so they are read once (18 queries); the instances are read every time.
"""

from __future__ import annotations

from typing import Any

import pynvml

from gpudeck.devices.identities import PciAddress
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia.nvml import Nvml, QueryError

Handle = Any
"""nvmlDevice_t, an opaque pointer."""

_ARCHITECTURES = {
    pynvml.NVML_DEVICE_ARCH_KEPLER: "Kepler",
    pynvml.NVML_DEVICE_ARCH_MAXWELL: "Maxwell",
    pynvml.NVML_DEVICE_ARCH_PASCAL: "Pascal",
    pynvml.NVML_DEVICE_ARCH_VOLTA: "Volta",
    pynvml.NVML_DEVICE_ARCH_TURING: "Turing",
    pynvml.NVML_DEVICE_ARCH_AMPERE: "Ampere",
    pynvml.NVML_DEVICE_ARCH_ADA: "Ada",
    pynvml.NVML_DEVICE_ARCH_HOPPER: "Hopper",
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: "Blackwell",
    pynvml.NVML_DEVICE_ARCH_RUBIN: "Rubin",
}

Profiles = tuple[contract.PartitionProfile, ...]


class Inventory:
    """Reads cards; remembers what of them cannot change."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._profiles: dict[str, Profiles] = {}

    def handle(self, address: str) -> Handle:
        """Look the card up by its place; initialises that card alone (nvml.h 13)."""
        parsed = PciAddress.parse(address)
        bus_id = f"{parsed.domain:08X}:{parsed.bus:02X}:{parsed.device:02X}.{parsed.function:x}"
        return self._nvml.call(pynvml.nvmlDeviceGetHandleByPciBusId, bus_id)

    def read(self, address: str, handle: Handle) -> contract.CardReading:
        """Read what the card is. Raises QueryError where it does not answer."""
        nvml = self._nvml
        uuid = nvml.call(pynvml.nvmlDeviceGetUUID, handle)
        name = nvml.call(pynvml.nvmlDeviceGetName, handle)
        architecture = nvml.optional(pynvml.nvmlDeviceGetArchitecture, handle)
        capability = nvml.optional(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        memory = nvml.optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
        mode = nvml.optional(pynvml.nvmlDeviceGetMigMode, handle)
        profiles = self._read_profiles(uuid, handle) if mode is not None else ()
        enabled = mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
        return contract.CardReading(
            address=address,
            uuid=uuid,
            minor=nvml.optional(pynvml.nvmlDeviceGetMinorNumber, handle),
            product_name=name,
            architecture=_ARCHITECTURES.get(architecture, "") if architecture else "",
            compute_api="CUDA",
            compute_capability=f"{capability[0]}.{capability[1]}" if capability else "",
            memory_bytes=int(memory.total) if memory is not None else None,
            total_slices=max((each.slices for each in profiles), default=0),
            profiles=profiles,
            mode=_mode(mode),
            partitions=self._read_partitions(handle) if enabled else (),
        )

    def _read_profiles(self, uuid: str, handle: Handle) -> Profiles:
        if uuid not in self._profiles:
            found = []
            for index in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
                profile = self._read_profile(handle, index)
                if profile is not None:
                    found.append(profile)
            self._profiles[uuid] = tuple(sorted(found, key=lambda each: each.profile_id))
        return self._profiles[uuid]

    def _read_profile(self, handle: Handle, index: int) -> contract.PartitionProfile | None:
        # Version 2 is the first with a name; drivers before 470 have none, and then no profile
        # is told rather than one whose name is computed from its size (case-29).
        info = self._nvml.optional(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, index)
        if info is None:
            return None
        return contract.PartitionProfile(
            name=info.name.removeprefix("MIG "),
            profile_id=info.id,
            memory_mib=info.memorySizeMB,
            max_instances=info.instanceCount,
            slices=info.sliceCount,
            multiprocessors=info.multiprocessorCount,
        )

    def _read_partitions(self, handle: Handle) -> tuple[contract.Partition, ...]:
        nvml = self._nvml
        count = nvml.optional(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
        found = []
        for index in range(count):
            device = nvml.optional(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            if device is not None:
                found.append(self._read_partition(handle, device))
        return tuple(sorted(found, key=lambda each: (each.start, each.uuid)))

    def _read_partition(self, handle: Handle, device: Handle) -> contract.Partition:
        nvml = self._nvml
        # "NVIDIA H100 80GB HBM3 MIG 1g.10gb": the part that the driver names the partition by.
        name = nvml.call(pynvml.nvmlDeviceGetName, device)
        instance_id = nvml.call(pynvml.nvmlDeviceGetGpuInstanceId, device)
        placement = None
        try:
            instance = nvml.call(pynvml.nvmlDeviceGetGpuInstanceById, handle, instance_id)
            placement = nvml.call(pynvml.nvmlGpuInstanceGetInfo, instance).placement
        except QueryError as error:
            if not error.lacking:
                raise
        return contract.Partition(
            profile=name.rpartition(" MIG ")[2],
            uuid=nvml.call(pynvml.nvmlDeviceGetUUID, device),
            start=placement.start if placement is not None else 0,
            size=placement.size if placement is not None else 0,
        )


def _mode(mode: list[int] | None) -> contract.PartitioningMode:
    if mode is None:
        return contract.PartitioningMode.NOT_AVAILABLE
    if mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
        return contract.PartitioningMode.ENABLED
    return contract.PartitioningMode.DISABLED
