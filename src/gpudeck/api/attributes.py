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
"""gpu for a whole card; every device has it, so a selector may rely on it."""
DEVICE_TYPE = "deviceType"
"""physical for a whole card; Deckhouse's virtualization selects by it."""
VENDOR = "vendor"
PRODUCT_NAME = "productName"
DEVICE = "device"
UUID = "uuid"
GPU_UUID = "gpuUUID"
ARCHITECTURE = "architecture"
COMPUTE_CAPABILITY = "cudaComputeCapability"
DRIVER_VERSION = "driverVersion"
CUDA_DRIVER_VERSION = "cudaDriverVersion"

PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

MEMORY = "memory"
"""Capacity in bytes; absent where the maker's library cannot say (unified memory)."""

TYPE_GPU = "gpu"
DEVICE_TYPE_PHYSICAL = "physical"

UNHEALTHY_TAINT = "gpu.deckhouse.io/unhealthy"
