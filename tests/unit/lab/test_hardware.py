# SPDX-License-Identifier: Apache-2.0
"""Where a node's cards are seen: commands as values, and cards by index."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.lab import hardware
from gpudeck.lab.state import Node

NODE = Node(name="node-0", index=2, machine="a30-x2")


def test_cards_are_numbered_from_nought() -> None:
    assert len(hardware.card_addresses(NODE)) == 2
    assert hardware.card_address(NODE, 1) == hardware.card_addresses(NODE)[1]
    for index in (-1, 2):
        with pytest.raises(errors.InvalidError, match="allowed: 0 to 1"):
            hardware.card_address(NODE, index)


def test_two_nodes_of_one_machine_have_cards_of_their_own() -> None:
    other = Node(name="node-1", index=3, machine="a30-x2")
    mine, theirs = hardware.describe(NODE).cards, hardware.describe(other).cards
    assert {card.uuid for card in mine}.isdisjoint(card.uuid for card in theirs)


def test_a_host_tree_over_the_root_spares_what_the_kernel_counts(tmp_path: Path) -> None:
    for folder in (
        "sys/devices/pci0000:15", "sys/devices/system", "sys/bus/pci", "proc/driver", "dev/pts",
        "dev/nvidia-caps",
    ):  # fmt: skip
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/modules").write_text("")
    kernel = tmp_path / "kernel"
    (kernel / "proc/driver").mkdir(parents=True)
    commands = hardware.over_root(tmp_path, kernel)
    bound = [command[-1] for command in commands if command[:2] == ["mount", "--bind"]]
    assert bound == [
        "/run/lab-stage/pci",
        "/run/lab-stage/pci0000:15",
        "/proc/driver",
        "/dev/nvidia-caps",
    ]
    assert commands[0] == ["mount", "--make-rprivate", "/"]
    assert commands[-1] == ["mount", "--make-rshared", "/"]
