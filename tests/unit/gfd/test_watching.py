# SPDX-License-Identifier: Apache-2.0
"""A look sees what changes of the driver, of MIG instances and of the bus, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.gfd import watching
from gpudeck.host.root import Root

VERSION = "proc/driver/nvidia/version"
INSTANCES = "proc/driver/nvidia/capabilities/gpu0/mig"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "sys/bus/pci/devices/0000:1b:00.0").mkdir(parents=True)
    (tmp_path / INSTANCES / "gi1/ci0").mkdir(parents=True)
    (tmp_path / VERSION).write_text("580.95.05\n")
    return tmp_path


def test_two_looks_at_the_same_are_equal(tree: Path) -> None:
    assert watching.look(Root(tree)) == watching.look(Root(tree))


@pytest.mark.parametrize("change", ["driver", "unload", "instance", "compute", "bus"])
def test_a_change_is_seen(tree: Path, change: str) -> None:
    before = watching.look(Root(tree))
    match change:
        case "driver":
            (tree / VERSION).write_text("590.10\n")
        case "unload":
            (tree / VERSION).unlink()
        case "instance":
            (tree / INSTANCES / "gi2").mkdir()
        case "compute":
            (tree / INSTANCES / "gi1/ci1").mkdir()
        case "bus":
            (tree / "sys/bus/pci/devices/0000:1c:00.0").mkdir()
    assert watching.look(Root(tree)) != before


def test_a_host_without_a_driver_can_be_looked_at(tmp_path: Path) -> None:
    assert watching.look(Root(tmp_path)) == ((), "", ())
