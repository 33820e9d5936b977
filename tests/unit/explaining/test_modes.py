# SPDX-License-Identifier: Apache-2.0
"""The mode of a node, as people are told."""

from __future__ import annotations

import msgspec

from gpudeck.api.core import Node
from gpudeck.explaining import modes


def node(active: str = "", target: str = "", message: str = "") -> Node:
    taints = [{"key": "gpu.deckhouse.io/mode-change", "value": target, "effect": "NoSchedule"}]
    value = {
        "metadata": {
            "name": "node-0",
            "labels": {"gpu.deckhouse.io/active-mode": active} if active else {},
        },
        "spec": {"taints": taints if target else []},
        "status": {"conditions": [{"type": "GPUModeActive", "message": message}]},
    }
    return msgspec.convert(value, Node)


def test_a_node_has_a_mode_or_changes_it_or_nobody_says() -> None:
    assert modes.of(node("dra")) == "dra"
    assert modes.of(node("dra", "device-plugin")) == "changing to device-plugin"
    assert modes.of(node("", "dra")) == "changing to dra"
    assert modes.of(node()) == ""
    assert modes.of(None) == ""


def test_a_change_says_what_it_waits_for_if_that_is_known() -> None:
    assert modes.sentence(node("dra")) == ""
    plain = "node node-0 changes to the mode dra and takes no new pods until then"
    assert modes.sentence(node("", "dra")) == plain
    assert modes.sentence(node("", "dra", "It waits.")) == f"{plain}. It waits"
