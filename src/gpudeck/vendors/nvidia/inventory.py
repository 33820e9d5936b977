# SPDX-License-Identifier: Apache-2.0
"""What one card is: identity, abilities, MIG. Everything as NVML tells it, nothing computed.

Runs in the library process. Three queries must succeed (handle, UUID, name); each other that the
card lacks leaves its field empty. MIG profiles do not change while a process lives,
so they are read once (some 30 queries), as are its NVLinks; the instances are read every time.
"""

from __future__ import annotations

from typing import Any

import pynvml

from gpudeck.devices.identities import PciAddress
from gpudeck.host import root as host
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia import fabric, links, mig, slicing
from gpudeck.vendors.nvidia.mps import places
from gpudeck.vendors.nvidia.nvml import Nvml

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


class Inventory:
    """Reads cards; remembers what of them cannot change."""

    def __init__(self, nvml: Nvml, root: host.Root) -> None:
        self._nvml = nvml
        self._root = root
        self._profiles: dict[str, mig.Profiles] = {}
        self._links: dict[str, tuple[contract.Link, ...]] = {}

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
        partitions = mig.Partitions()
        if enabled:
            partitions = mig.read_partitions(nvml, handle, profiles)
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
            mode=mig.mode(mode[0] if mode is not None else None),
            pending_mode=mig.mode(mode[1] if mode is not None else None),
            dynamic=mode is not None and mig.is_dynamic(nvml, handle, capability),
            links=self._read_links(uuid, handle),
            share_support=slicing.support(nvml, handle, self._root, capability),
            mps_shares=places.Card(self._root, address).shares(),
            clique=fabric.read_clique(nvml, handle),
            partitions=partitions.found,
            partition_numbers=partitions.numbers,
        )

    def _read_profiles(self, uuid: str, handle: Handle) -> mig.Profiles:
        if uuid not in self._profiles:
            self._profiles[uuid] = mig.read_profiles(self._nvml, handle)
        return self._profiles[uuid]

    def _read_links(self, uuid: str, handle: Handle) -> tuple[contract.Link, ...]:
        if uuid not in self._links:
            self._links[uuid] = links.read(self._nvml, handle)
        return self._links[uuid]
