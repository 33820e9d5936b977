# SPDX-License-Identifier: Apache-2.0
"""A host with two cards for each maker, in the hands of the contract suite.

`SimulatedBench` writes the file of the simulated maker; `NvidiaBench` a host tree and the
mock NVML's state, so that the suite runs the product's own NVML code. What a bench does
to a card is named by what a user would see, not by how it is done.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from gpudeck.lab import hosttree, machine, places, simulation, tree_driver
from gpudeck.vendors import contract
from gpudeck.vendors.simulated import machine as simulated

BOOT_ID = "5f0c6c1e-4e0b-4b8e-9d52-6b0d1f6a7c11"


def _make(profile_id: int, start: int, size: int) -> contract.MakePartition:
    place = contract.Placement(start=start, size=size)
    return contract.MakePartition(profile_id=profile_id, placement=place)


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


class PartitionBench(Bench, Protocol):
    """Cards whose partition mode changes at once."""

    small: contract.MakePartition
    """A partition at the start of the card, beside which another of it fits."""
    beside: contract.MakePartition
    across: contract.MakePartition
    """A larger one that takes the places of both."""

    def fail_making(self, card: int) -> None: ...
    def mend_making(self, card: int) -> None: ...
    def work(self, card: int) -> None:
        """A process works on the card, in its first partition if there is one."""

    def rest(self, card: int) -> None: ...


class ResetBench(Bench, Protocol):
    """Cards whose partition mode changes by a reset."""

    small: contract.MakePartition

    def work(self, card: int) -> None: ...
    def rest(self, card: int) -> None: ...
    def fail_reset(self, card: int) -> None: ...
    def mend_reset(self, card: int) -> None: ...


class SimulatedBench:
    """Cards of the simulated maker."""

    vendor = "simulated"
    cards = 2
    small = _make(19, 0, 1)
    beside = _make(19, 1, 1)
    across = _make(14, 0, 2)

    def __init__(self, root: Path, *, partitionable: bool = False, dynamic: bool = True) -> None:
        self.settings = contract.VendorSettings(host_root=str(root), host_root_on_node="/mnt/host")
        self._bench = simulated.Bench(root)
        if partitionable:
            self._bench.write(simulated.partitionable(self.cards, dynamic=dynamic))
        else:
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

    def share_by_mps(self, card: int) -> None:
        """As the device plugin leaves it behind when it ends."""
        support = contract.ShareSupport(mps=True)
        self._bench.change_reading(card, share_support=support, mps_shares=("device-plugin",))

    def mps_shares(self, card: int) -> tuple[str, ...]:
        return self._bench.read().cards[card].reading.mps_shares

    def start_anew(self, card: int) -> None:
        """As a host does that reboots: pending modes come into force."""
        reading = self._bench.read().cards[card].reading
        self._bench.change_reading(card, mode=reading.pending_mode, partitions=())

    def lose_partitions(self, card: int) -> None:
        """As a driver that is loaded anew does."""
        self._bench.change_reading(card, partitions=())

    def fail_making(self, card: int) -> None:
        self._bench.change_card(card, making_fails=True)

    def mend_making(self, card: int) -> None:
        self._bench.change_card(card, making_fails=False)

    def fail_reset(self, card: int) -> None:
        fault = contract.Fault(reason="ResetFailed", message="The card does not come back.")
        self._bench.change_card(card, reset_fails=fault)

    def mend_reset(self, card: int) -> None:
        self._bench.change_card(card, reset_fails=None)

    def work(self, card: int) -> None:
        self._bench.change_card(card, used=True)

    def rest(self, card: int) -> None:
        self._bench.change_card(card, used=False)

    def take_driver_away(self) -> None:
        away = contract.DriverState(ready=False, reason="DriverNotLoaded", message="No module.")
        self._bench.change(driver=away)


class NvidiaBench:
    """Cards of a simulated NVIDIA host: the product's NVML code on the mock library."""

    vendor = "nvidia"
    small = _make(19, 0, 1)
    beside = _make(19, 1, 1)
    across = _make(9, 0, 4)

    def __init__(
        self,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        name: str = "a30-x2",
        *,
        mode_change: str = "",
    ) -> None:
        # Inside the tree, so that a link of the tree leads to the files the driver keeps.
        self.tree = root / "root"
        self.folder = self.tree / "run/simulation"
        self.settings = contract.VendorSettings(
            host_root=str(self.tree), host_root_on_node="/mnt/host"
        )
        self.artifacts = simulation.build_native(places.cache())
        self.machine = _changing(machine.load(name), mode_change)
        self._resetting = "simReset" if mode_change == "pending" else "nvmlDeviceSetMigMode"
        self.cards = len(self.machine.cards)
        self.libraries = tree_driver.library_folder(self.machine)
        hosttree.write(
            self.machine,
            self.tree,
            simulation=self.folder,
            artifacts=self.artifacts,
            boot_id=BOOT_ID,
        )
        simulation.Simulation.create(self.machine, self.folder, artifacts=self.artifacts)
        capabilities = self.tree / "proc/driver/nvidia/capabilities"
        shutil.rmtree(capabilities, ignore_errors=True)
        capabilities.symlink_to("/run/simulation/proc/driver/nvidia/capabilities")
        monkeypatch.setenv("GPUDECK_SIMULATION", str(self.folder))
        monkeypatch.setenv("GPUDECK_SIMULATION_DEV", str(self.tree / "dev"))

    def turn(self, card: int, *knobs: str) -> None:
        """Turn knobs of the mock."""
        self._simctl("set", str(self.folder), str(card), *knobs)

    def turn_host(self, *knobs: str) -> None:
        """Turn knobs of the mock's host."""
        self._simctl("host", str(self.folder), *knobs)

    def enable_partitions(self, card: int) -> None:
        """Turn MIG mode on with the mock's own nvidia-smi."""
        self._smi("-i", str(card), "-mig", "1")

    def partition(self, card: int, profiles: str, *, compute: bool = True) -> None:
        """Make MIG instances with the mock's own nvidia-smi."""
        self._smi("mig", "-i", str(card), "-cgi", profiles, *(["-C"] if compute else []))

    def unpartition(self, card: int) -> None:
        """Remove all MIG instances of a card."""
        self._smi("mig", "-i", str(card), "-dci")
        self._smi("mig", "-i", str(card), "-dgi")

    def enable_mig(self, card: int) -> None:
        """Turn the card's MIG mode on."""
        self._smi("-i", str(card), "-mig", "1")

    def disable_partitions(self, card: int) -> None:
        """Turn MIG mode off with the mock's own nvidia-smi."""
        self._smi("-i", str(card), "-mig", "0")

    def compute_instance(self, card: int, profile: str) -> None:
        """Make a compute instance in the card's GPU instances."""
        self._smi("mig", "-i", str(card), "-cci", profile)

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

    def fail_making(self, card: int) -> None:
        self.turn(card, "fail.nvmlGpuInstanceCreateComputeInstance=999")

    def mend_making(self, card: int) -> None:
        self.turn(card, "fail.nvmlGpuInstanceCreateComputeInstance=0")

    def fail_reset(self, card: int) -> None:
        self.turn(card, f"fail.{self._resetting}=999")

    def mend_reset(self, card: int) -> None:
        self.turn(card, f"fail.{self._resetting}=0")

    def work(self, card: int) -> None:
        folder = self.folder / f"proc/driver/nvidia/capabilities/gpu{card}/mig"
        instances = sorted(path.name.removeprefix("gi") for path in folder.glob("gi*"))
        where = f":100:{instances[0]}:0" if instances else ""
        self.turn(card, f"busy=4242:100{where}")

    def rest(self, card: int) -> None:
        self.turn(card, "idle=4242")

    def take_driver_away(self) -> None:
        self.turn_host("init=9")

    def listed(self) -> str:
        """Cards and partitions, as the mock's own nvidia-smi numbers them."""
        return self._smi("-L")

    def _smi(self, *words: str) -> str:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.artifacts)}
        command = [str(self.artifacts / "nvidia-smi"), *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return done.stdout

    def _simctl(self, *words: str) -> None:
        subprocess.run([str(self.artifacts / "simctl"), *words], check=True, capture_output=True)


def _changing(found: machine.Machine, mode_change: str) -> machine.Machine:
    """The machine with cards whose MIG mode changes in another way; "" leaves it as it is."""
    models = {
        name: msgspec.structs.replace(
            model, mig=msgspec.structs.replace(model.mig, mode_change=mode_change)
        )
        for name, model in found.models.items()
        if model.mig is not None and mode_change
    }
    return msgspec.structs.replace(found, models={**found.models, **models})


def make(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench by name; NVIDIA's needs root, for it makes device nodes."""
    if name == "simulated":
        return SimulatedBench(root)
    if os.geteuid() != 0:
        pytest.skip("device nodes of the simulated host can be made by root only")
    return NvidiaBench(root, monkeypatch)


def make_partitionable(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> PartitionBench:
    """A bench by name whose cards' mode changes at once."""
    if name == "simulated":
        return SimulatedBench(root, partitionable=True)
    if os.geteuid() != 0:
        pytest.skip("device nodes of the simulated host can be made by root only")
    return NvidiaBench(root, monkeypatch, "h100-x8")


def make_resettable(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> ResetBench:
    """A bench by name whose cards' mode changes by a reset, by the driver or by its tool."""
    if name == "simulated":
        return SimulatedBench(root, partitionable=True, dynamic=False)
    if os.geteuid() != 0:
        pytest.skip("device nodes of the simulated host can be made by root only")
    return NvidiaBench(root, monkeypatch, "a100-40gb-x4", mode_change=name.removeprefix("nvidia-"))
