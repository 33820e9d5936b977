# SPDX-License-Identifier: Apache-2.0
"""Names of the attributes and capacities of the devices that gpudeck publishes.

Part of the contract with users' claims: a name here is never changed. Those of our
own stand in the domain of the driver; a name without a domain in a ResourceSlice
belongs to the driver's domain as well (resource.k8s.io/v1).
"""

from __future__ import annotations

from gpudeck.api import labels

DOMAIN = labels.DRIVER

TYPE = "type"
"""gpu, mig or share; every device has it, so a selector may rely on it."""
DEVICE_TYPE = "deviceType"
"""physical, mig or share; Deckhouse's virtualization selects by it."""
VENDOR = "vendor"
PRODUCT_NAME = "productName"
DEVICE = "device"
UUID = "uuid"
GPU_UUID = "gpuUUID"
PARENT_UUID = "parentUUID"
"""On parts of a card: the UUID of the card."""
PROFILE = "profile"
"""On partitions: the driver's name of the profile, e.g. 1g.10gb+me."""
CARD_MEMORY = "cardMemory"
"""On partitions: memory of the whole card in bytes, as an integer."""
SHARING_STRATEGY = "sharingStrategy"
"""On shares: TimeSlicing or MPS."""
ARCHITECTURE = "architecture"
COMPUTE_CAPABILITY = "cudaComputeCapability"
DRIVER_VERSION = "driverVersion"
CUDA_DRIVER_VERSION = "cudaDriverVersion"

PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

MEMORY = "memory"
"""Capacity in bytes; absent where the maker's library cannot say (unified memory)."""

CORES = "cores"
"""Capacity of shares: percent of the card's multiprocessors, 100 in all."""
MULTIPROCESSORS = "multiprocessors"
"""Capacity of partitions."""

TYPE_GPU = "gpu"
TYPE_MIG = "mig"
TYPE_SHARE = "share"
DEVICE_TYPE_PHYSICAL = "physical"

MODE_TAINT = "gpu.deckhouse.io/mig-mode"
"""Key of the taint of a card whose partition mode is about to change."""
UNHEALTHY_TAINT = "gpu.deckhouse.io/unhealthy"
