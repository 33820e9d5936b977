# SPDX-License-Identifier: Apache-2.0
"""The process node-agent: finds the cards of its node and writes one PhysicalGPU for each.

A DaemonSet starts it on every node but those of the control plane. It owns, as field
manager gpudeck-node-agent, the objects' labels and owner, nodeInfo, pciInfo, driverType,
the condition Discovered, and the node's label `gpu.deckhouse.io/vendor`. It keeps
nothing on disk and loads no maker's library.

The flow, file by file: `supported` (the ConfigMap: what is a card) → `scanning` (looks at
the bus when it changes and every 30 s) → `discovering` (pure: which functions are cards)
→ `describing` (pure: what an object should say) → `planning` (pure: what to write) →
`publishing` (writes). `nodes` keeps the node's label.
"""
