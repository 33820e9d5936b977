# SPDX-License-Identifier: Apache-2.0
"""Shares of NVIDIA cards: what a card offers, its time slice, and what a container is given."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from tests.contract.vendors import benches

from gpudeck import errors
from gpudeck.host import programs
from gpudeck.lab import places, simulation
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia import driver, session, sharing, slicing

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes")

GIB = 1 << 30
HOOK = "/var/lib/kubelet/plugins/gpu.deckhouse.io/bin/nvidia-cdi-hook-00000000"
LIMITS = contract.ShareSupport(time_slicing=True, memory_limits=True)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> benches.NvidiaBench:
    return benches.NvidiaBench(tmp_path, monkeypatch)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The image has the hook's program."""
    path = tmp_path / sharing.PROGRAM.name
    path.write_bytes(b"program")
    monkeypatch.setattr(sharing, "PROGRAM", path)
    return b"program"


class Card:
    """A card of the bench, and shares of it."""

    def __init__(self, bench: benches.NvidiaBench) -> None:
        self.library = session.NvmlLibrary(bench.settings, lambda _: None)
        self.state = self.library.open()
        self.vendor = driver.NvidiaVendor(bench.settings)
        self.address = self.vendor.sites()[0].address

    def read(self) -> contract.CardReading:
        return self.library.read(self.address)

    def give(
        self, share: contract.Share, support: contract.ShareSupport = LIMITS
    ) -> contract.UseEdits:
        card = msgspec.structs.replace(self.read(), share_support=support)
        given = self.vendor.inject(
            [contract.Use(card=card, share=share)],
            driver_version=self.state.version,
            hook_path=HOOK,
        )
        return given.uses[0]


def test_a_driver_before_13_4_slices_time_but_limits_no_memory(
    bench: benches.NvidiaBench,
) -> None:
    support = Card(bench).read().share_support
    assert (support.time_slicing, support.mps, support.memory_limits) == (True, False, False)
    assert support.memory_limits_message.endswith(".")


@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/cgroup.controllers").exists(), reason="cgroup version 1"
)
def test_a_card_that_can_limit_memory_says_so(bench: benches.NvidiaBench) -> None:
    bench.turn_host("cuda=13040")
    support = Card(bench).read().share_support
    assert (support.memory_limits, support.memory_limits_message) == (True, "")


@pytest.mark.parametrize(
    ("interval", "number"),
    [(contract.TimeSlice.LONG, 3), (contract.TimeSlice.SHORT, 1), (contract.TimeSlice.DEFAULT, 0)],
)
def test_the_time_slice_is_the_card_s(
    bench: benches.NvidiaBench, interval: contract.TimeSlice, number: int
) -> None:
    card = Card(bench)
    for _ in range(2):
        assert card.library.act(card.address, contract.SetTimeSlice(interval=interval)) is None
    shown = subprocess.run(
        [str(simulation.build_native(places.cache()) / "simctl"), "show", bench.folder, "--json"],
        check=True,
        capture_output=True,
    )
    assert json.loads(shown.stdout)["cards"][0]["state"]["timeslice"] == number


def test_a_card_that_knows_no_time_slice_is_told_from_one_that_fails(
    bench: benches.NvidiaBench,
) -> None:
    card = Card(bench)
    bench.turn(0, "fail.simSetTimeslice=3")
    with pytest.raises(errors.UnsupportedError, match="time slice stays as it is"):
        card.library.act(card.address, contract.SetTimeSlice(interval=contract.TimeSlice.LONG))


def test_a_share_is_the_card_and_a_limit_of_its_own_amount(
    bench: benches.NvidiaBench, program: bytes
) -> None:
    card = Card(bench)
    given = card.give(contract.Share(share_id="a", memory_bytes=8 * GIB))
    hook = given.edits.hooks[-1]
    name = programs.installed_name("gpudeck-memory-limits", program)
    assert (given.limits_memory, given.limits_memory_message) == (True, sharing.KEPT)
    assert "/dev/nvidia0" in [node.path for node in given.edits.device_nodes]
    assert (hook.hook_name, hook.path) == ("createRuntime", f"{HOOK.rpartition('/')[0]}/{name}")
    assert hook.args[0] == "gpudeck-memory-limits"
    assert hook.args[1] == "--library"
    assert hook.args[2].startswith("/mnt/host/")
    assert hook.args[3:] == ("--limit", f"{card.read().uuid}/a={8 * GIB}")


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (contract.Share(share_id="a"), ""),
        (
            contract.Share(share_id="a", memory_bytes=GIB, enforce_memory=False),
            "The claim wants its amount reported only.",
        ),
    ],
)
def test_a_share_without_a_limit_is_kept_out_of_its_pod_s(
    bench: benches.NvidiaBench, program: bytes, share: contract.Share, message: str
) -> None:
    card = Card(bench)
    given = card.give(share)
    (hook,) = [hook for hook in given.edits.hooks if hook.hook_name == "createRuntime"]
    assert (given.limits_memory, given.limits_memory_message) == (False, message)
    assert hook.args[3:] == ("--limit", f"{card.read().uuid}/a=unlimited")
    assert given.edits.device_nodes


@pytest.mark.parametrize("enforce", [True, False])
def test_where_the_driver_keeps_no_limits_the_card_is_given_and_the_reason_said(
    bench: benches.NvidiaBench, program: bytes, enforce: bool
) -> None:
    old = contract.ShareSupport(memory_limits_message="The node has cgroup version 1.")
    wanted = contract.Share(share_id="a", memory_bytes=GIB, enforce_memory=enforce)
    given = Card(bench).give(wanted, old)
    assert not given.limits_memory
    assert ("version 1" if enforce else "reported only") in given.limits_memory_message
    assert not [hook for hook in given.edits.hooks if hook.hook_name == "createRuntime"]
    assert given.edits.device_nodes


def test_an_image_without_the_program_limits_nothing_and_says_so(
    bench: benches.NvidiaBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "PROGRAM", tmp_path / "none")
    given = Card(bench).give(contract.Share(share_id="a", memory_bytes=GIB))
    assert not given.limits_memory
    assert "none" in given.limits_memory_message


def test_a_tool_that_hangs_is_ended_and_named(
    bench: benches.NvidiaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Card(bench)
    monkeypatch.setattr(slicing, "_SECONDS", 0.3)
    bench.turn(0, "fail.simSetTimeslice=hang")
    with pytest.raises(errors.UnavailableError, match="nvidia-smi did not end within"):
        card.library.act(card.address, contract.SetTimeSlice(interval=contract.TimeSlice.LONG))
