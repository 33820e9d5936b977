# SPDX-License-Identifier: Apache-2.0
"""Evict pods from a node when its processes, which may not do so themselves, ask for it."""
