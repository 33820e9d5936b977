# SPDX-License-Identifier: Apache-2.0
"""The process dra-plugin: it serves one node's cards to the kubelet by DRA.

Started by the chart beside an adapter; it owns the node's ResourceSlices, the checkpoint and
the CDI specs. The flow of a claim: `server` → `preparing` → `allocations`, `holders`,
`ledger` → `adapters` → `metadata` and `exposing`, `edits` and `cdi` → the answer. The flow
of a card: `adapters` → `slices` → `publishing`, and `status` → `reporting` for its
PhysicalGPU.
"""
