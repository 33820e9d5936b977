# SPDX-License-Identifier: Apache-2.0
"""The part of PhysicalGPUs that whoever reads a node's cards writes, alike in both modes.

`cards` makes the fields from a card (pure), `writing` keeps the objects so. `dra` and
`deviceplugin` add what they offer the cards as.
"""
