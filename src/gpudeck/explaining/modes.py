# SPDX-License-Identifier: Apache-2.0
"""How the cards of a node are handed out, or what its change to the other mode waits for. Pure."""

from __future__ import annotations

from gpudeck.api import conditions, labels
from gpudeck.api.core import Node


def of(node: Node | None) -> str:
    """Return the mode in force, or `changing to …`; empty where no controller says."""
    if node is None:
        return ""
    target = changing_to(node)
    if target:
        return f"changing to {target}"
    return (node.metadata.labels or {}).get(labels.ACTIVE_MODE, "")


def changing_to(node: Node) -> str:
    """Return the mode that the node changes to, empty while it does not."""
    taints = (node.spec.taints if node.spec else None) or ()
    return next((each.value or "" for each in taints if each.key == labels.MODE_CHANGE), "")


def sentence(node: Node) -> str:
    """Return what a change waits for, empty where nothing changes."""
    target = changing_to(node)
    if not target:
        return ""
    found = (node.status.conditions if node.status else None) or ()
    said = (each.message for each in found if each.type == conditions.MODE_ACTIVE)
    waits = next((each for each in said if each), "")
    text = (
        f"node {node.metadata.name} changes to the mode {target} and takes no new pods until then"
    )
    return f"{text}. {waits}".removesuffix(".") if waits else text
