# SPDX-License-Identifier: Apache-2.0
"""A host with two cards for each maker, in the hands of the contract suite.

`SimulatedBench` writes the file of the simulated maker; `NvidiaBench` a host tree and the
mock NVML's state, so that the suite runs the product's own NVML code. What a bench does
to a card is named by what a user would see, not by how it is done.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Protocol

import pytest

from gpudeck.lab import hosttree, machine, places, simulation, tree_driver
from gpudeck.vendors import contract
from gpudeck.vendors.simulated import machine as simulated

BOOT_ID = "5f0c6c1e-4e0b-4b8e-9d52-6b0d1f6a7c11"


class Bench(Protocol):
    vendor: str
    settings: contract.VendorSettings
    cards: int

    def hang(self, card: int) -> None: ...
    def unhang(self, card: int) -> None: ...
    def lose(self, card: int) -> None: ...
    def find(self, card: int) -> None: ...
    def raise_hardware_error(self, card: int) -> int: ...
    def raise_application_error(self, card: int) -> int: ...
    def damage(self, card: int) -> None: ...
    def take_driver_away(self) -> None: ...


class SimulatedBench:
    """Cards of the simulated maker."""

    vendor = "simulated"
    cards = 2

    def __init__(self, root: Path) -> None:
        self.settings = contract.VendorSettings(host_root=str(root), host_root_on_node="/mnt/host")
        self._bench = simulated.Bench(root)
        self._bench.write(simulated.make(self.cards))

    def hang(self, card: int) -> None:
        self._bench.change_card(card, hangs=True)

    def unhang(self, card: int) -> None:
        self._bench.change_card(card, hangs=False)

    def lose(self, card: int) -> None:
        fault = contract.Fault(reason="GpuLost", message="The card is lost.")
        self._bench.change_card(card, error=fault)

    def find(self, card: int) -> None:
        self._bench.change_card(card, error=None)

    def raise_hardware_error(self, card: int) -> int:
        fault = contract.Fault(reason="HardwareXid", message="Xid 119.")
        self._bench.raise_event(card, 119, fault)
        return 119

    def raise_application_error(self, card: int) -> int:
        self._bench.raise_event(card, 31, None)
        return 31

    def damage(self, card: int) -> None:
        fault = contract.Fault(reason="RowRemapPending", message="A row is to be remapped.")
        self._bench.change_reading(card, faults=(fault,))

    def take_driver_away(self) -> None:
        away = contract.DriverState(ready=False, reason="DriverNotLoaded", message="No module.")
        self._bench.change(driver=away)


class NvidiaBench:
    """Cards of a simulated NVIDIA host: the product's NVML code on the mock library."""

    vendor = "nvidia"

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, name: str = "a30-x2") -> None:
        self.tree, self.folder = root / "root", root / "simulation"
        self.settings = contract.VendorSettings(
            host_root=str(self.tree), host_root_on_node="/mnt/host"
        )
        self._artifacts = simulation.build_native(places.cache())
        self.machine = machine.load(name)
        self.cards = len(self.machine.cards)
        self.libraries = tree_driver.library_folder(self.machine)
        hosttree.write(
            self.machine,
            self.tree,
            simulation=self.folder,
            artifacts=self._artifacts,
            boot_id=BOOT_ID,
        )
        simulation.Simulation.create(self.machine, self.folder, artifacts=self._artifacts)
        monkeypatch.setenv("GPUDECK_SIMULATION", str(self.folder))
        monkeypatch.setenv("GPUDECK_SIMULATION_DEV", str(self.tree / "dev"))

    def turn(self, card: int, *knobs: str) -> None:
        """Turn knobs of the mock."""
        self._simctl("set", str(self.folder), str(card), *knobs)

    def turn_host(self, *knobs: str) -> None:
        """Turn knobs of the mock's host."""
        self._simctl("host", str(self.folder), *knobs)

    def partition(self, card: int, profiles: str) -> None:
        """Make MIG instances with the mock's own nvidia-smi."""
        make = ["mig", "-i", str(card), "-cgi", profiles, "-C"]
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self._artifacts)}
        subprocess.run(
            [str(self._artifacts / "nvidia-smi"), *make],
            check=True,
            capture_output=True,
            env=environment,
        )

    def hang(self, card: int) -> None:
        self.turn(card, "hang=1")

    def unhang(self, card: int) -> None:
        self.turn(card, "hang=0")

    def lose(self, card: int) -> None:
        self.turn(card, "lose=15")

    def find(self, card: int) -> None:
        self.turn(card, "return=1")

    def raise_hardware_error(self, card: int) -> int:
        self.turn(card, "xid=119")
        return 119

    def raise_application_error(self, card: int) -> int:
        self.turn(card, "xid=31")
        return 31

    def damage(self, card: int) -> None:
        self.turn(card, "remap-pending=1")

    def take_driver_away(self) -> None:
        self.turn_host("init=9")

    def _simctl(self, *words: str) -> None:
        subprocess.run([str(self._artifacts / "simctl"), *words], check=True, capture_output=True)


def make(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench by name; NVIDIA's needs root, for it makes device nodes."""
    if name == "simulated":
        return SimulatedBench(root)
    if os.geteuid() != 0:
        pytest.skip("device nodes of the simulated host can be made by root only")
    return NvidiaBench(root, monkeypatch)
