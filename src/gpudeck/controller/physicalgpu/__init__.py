# SPDX-License-Identifier: Apache-2.0
"""PhysicalGPU: who holds each card, its phase, and the end of cards that are gone."""
