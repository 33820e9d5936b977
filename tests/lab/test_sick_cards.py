# SPDX-License-Identifier: Apache-2.0
"""One card that fails or hangs costs one card, and its condition says why."""

from __future__ import annotations

from typing import Any

import pytest
from tests.lab.test_restarts import devices
from tests.support.lab import Lab


def healthy(lab: Lab, node: str) -> dict[str, dict[str, Any]]:
    """Condition HardwareHealthy of each card of a node, by PCI address."""
    return {
        each["status"]["pciInfo"]["address"]: condition
        for each in lab.gpus().values()
        if each["metadata"]["labels"]["gpu.deckhouse.io/node"] == node
        for condition in each["status"].get("conditions", [])
        if condition["type"] == "HardwareHealthy"
    }


@pytest.mark.parametrize("fault", [("fail", "999"), ("hang",)])
def test_a_sick_card_is_named_and_the_others_stay(lab: Lab, fault: tuple[str, ...]) -> None:
    lab.lab("gpu", "node-0", "3", *fault)
    try:
        lab.kubectl(
            "delete",
            "pods",
            "-n",
            "gpudeck-system",
            "-l",
            "app.kubernetes.io/component=nvidia-adapter",
            "--field-selector",
            "spec.nodeName=node-0",
        )

        def one_is_sick() -> dict[str, Any]:
            verdicts = healthy(lab, "node-0")
            sick = [each for each in verdicts.values() if each["status"] == "False"]
            well = [each for each in verdicts.values() if each["status"] == "True"]
            return (
                sick[0] if len(sick) == 1 and len(well) == 7 and devices(lab, "node-0") >= 7 else {}
            )

        condition = lab.eventually("one card sick, seven well", one_is_sick, seconds=60)
        assert condition["reason"]
        assert condition["message"]
    finally:
        lab.lab("gpu", "node-0", "3", "clear")
    lab.eventually(
        "the card is well again",
        lambda: all(each["status"] == "True" for each in healthy(lab, "node-0").values()),
        seconds=120,
    )


def test_a_card_that_leaves_the_bus_is_lost_and_found(lab: Lab) -> None:
    lab.lab("gpu", "node-1", "0", "lose", "--unplug")

    def phases() -> list[str]:
        return [
            each["status"].get("phase", "")
            for each in lab.gpus().values()
            if each["metadata"]["labels"]["gpu.deckhouse.io/node"] == "node-1"
        ]

    lab.eventually("three cards are left", lambda: phases().count("Ready") == 3)
    lab.eventually("three are published", lambda: devices(lab, "node-1") == 3)
    lab.lab("gpu", "node-1", "0", "return")
    lab.eventually("four cards again", lambda: phases().count("Ready") == 4, seconds=90)
    lab.eventually("four are published", lambda: devices(lab, "node-1") == 4)
