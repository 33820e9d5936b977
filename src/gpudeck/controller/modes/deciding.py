# SPDX-License-Identifier: Apache-2.0
"""Which mode a Node is to have. Pure; `reconciler` acts.

An administrator's wish is the label gpu.deckhouse.io/mode; without it the cluster's default
counts. What is in force is the label gpu.deckhouse.io/active-mode, which the DaemonSets of a
mode select: only what it says runs on the node.
"""

from __future__ import annotations

from gpudeck.api import labels
from gpudeck.api.meta import ObjectMeta


def wanted(meta: ObjectMeta, default: str) -> str:
    """Return the mode that the Node is to have; a wish that says nothing known changes nothing."""
    known = meta.labels or {}
    chosen = known.get(labels.MODE, default)
    if chosen in labels.MODES:
        return chosen
    active = known.get(labels.ACTIVE_MODE)
    return active if active in labels.MODES else default


def label(meta: ObjectMeta, default: str) -> str | None:
    """Return what the label of the active mode is to say; None for no label."""
    known = meta.labels or {}
    if labels.VENDOR not in known:
        return None
    active = known.get(labels.ACTIVE_MODE)
    return active if active in labels.MODES else wanted(meta, default)
