# SPDX-License-Identifier: Apache-2.0
"""How fast and how large gpudeck is, measured on a lab with real Kubernetes; never a test.

`run` is the command. Each figure belongs to one module (`starts`, `claims`, `footprint`,
`pods`, `lifecycle`), which returns `figures.Figure`s; `peers` holds what Kubernetes' other
GPU programs take, and `writing` makes the table.
"""
