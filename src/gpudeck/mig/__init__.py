# SPDX-License-Identifier: Apache-2.0
"""How a node's cards are partitioned ahead of pods: the format of nvidia-mig-parted, plan and act.

`configs` reads the format, `planning` decides from it and from what the cards say (pure),
`applying` carries a plan out; `progress` and `nodes` are what stands of a change on its Node
(pure). Used by the command `gpudeck mig` on one host, and by mig-manager. In DRA mode partitions
follow the claims instead, and nothing of this runs.
"""
