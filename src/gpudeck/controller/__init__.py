# SPDX-License-Identifier: Apache-2.0
"""The controller: what concerns the whole cluster. Deployment gpu-controller, one replica leads.

GPUClass → `gpuclass.reconciler` → DeviceClass of the same name and the class's status
(`deviceclass`, `conflicts` and `tally` decide). ResourceClaim → `physicalgpu.holdings` →
`physicalgpu.reconciler` → occupancy and phase of a PhysicalGPU (`occupancy` and `phase`
decide). It never reads ResourceSlices, and keeps of each object what it reads (`keeping`).
"""
