# SPDX-License-Identifier: Apache-2.0
"""Shares by MPS on the mock: what a card offers, its compute mode, failures half way."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pynvml
import pytest
from tests.contract.vendors import benches

from gpudeck import errors
from gpudeck.host import root as host
from gpudeck.lab import places as caches
from gpudeck.lab import simulation
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia import driver, session
from gpudeck.vendors.nvidia.mps import places

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes")

GIB = 1 << 30
EXCLUSIVE, DEFAULT = 3, 0


class Card:
    """The first card of a bench whose node keeps MPS daemons."""

    def __init__(self, bench: benches.NvidiaBench) -> None:
        self.bench = bench
        self.library = session.NvmlLibrary(bench.settings, lambda _: None)
        self.version = self.library.open().version
        self.vendor = driver.NvidiaVendor(bench.settings)
        self.address = self.vendor.sites()[0].address
        self.folder = places.Card(host.Root(bench.tree), self.address)

    def read(self) -> contract.CardReading:
        return self.library.read(self.address)

    def join(self, share: str) -> None:
        assert self.library.act(self.address, contract.JoinMps(share_id=share)) is None

    def leave(self, share: str = "") -> None:
        assert self.library.act(self.address, contract.LeaveMps(share_id=share)) is None

    def mode(self) -> int:
        simctl = simulation.build_native(caches.cache()) / "simctl"
        words = [str(simctl), "show", str(self.bench.folder), "--json"]
        shown = subprocess.run(words, check=True, capture_output=True)
        return int(json.loads(shown.stdout)["cards"][0]["state"]["compute-mode"])


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[benches.NvidiaBench]:
    """A host; NVML of this process is initialised on no other before and after."""
    shut_down()
    yield benches.NvidiaBench(tmp_path, monkeypatch)
    shut_down()


def shut_down() -> None:
    with contextlib.suppress(pynvml.NVMLError):
        while True:
            pynvml.nvmlShutdown()


@pytest.fixture
def card(bench: benches.NvidiaBench) -> Iterator[Card]:
    """A card; the lock of mps-control is held."""
    made = Card(bench)
    with places.lock(host.Root(bench.tree)).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield made


def test_mps_is_offered_where_daemons_are_kept_and_the_driver_has_one(card: Card) -> None:
    assert card.read().share_support.mps
    (card.bench.tree / "usr/bin/nvidia-cuda-mps-control").unlink()
    assert not card.read().share_support.mps


def test_mps_is_not_offered_where_nobody_keeps_daemons(bench: benches.NvidiaBench) -> None:
    assert not Card(bench).read().share_support.mps


def test_a_card_is_exclusive_from_the_first_share_to_the_last(card: Card) -> None:
    for share in ("a", "b", "a"):
        card.join(share)
        assert card.mode() == EXCLUSIVE
    assert card.read().mps_shares == ("a", "b")
    for share in ("a", "a", "unknown"):
        card.leave(share)
        assert (card.mode(), card.read().mps_shares) == (EXCLUSIVE, ("b",))
    card.leave("b")
    assert (card.mode(), card.read().mps_shares) == (DEFAULT, ())


def test_all_shares_leave_at_once(card: Card) -> None:
    for share in ("a", "b"):
        card.join(share)
    for _ in range(2):
        card.leave()
        assert (card.mode(), card.read().mps_shares) == (DEFAULT, ())


def test_leaving_a_card_that_nobody_joined_leaves_its_mode_alone(card: Card) -> None:
    card.bench.turn(0, f"compute-mode={EXCLUSIVE}")
    card.leave("a")
    card.leave()
    assert card.mode() == EXCLUSIVE


def test_a_share_that_cannot_join_is_not_known_and_one_that_was_stays(card: Card) -> None:
    card.bench.turn(0, "fail.nvmlDeviceSetComputeMode=999")
    with pytest.raises(errors.UnavailableError, match="nvmlDeviceSetComputeMode"):
        card.join("a")
    assert card.read().mps_shares == ()
    card.bench.turn(0, "fail.nvmlDeviceSetComputeMode=0")
    card.join("a")
    card.bench.turn(0, "compute-mode=0", "fail.nvmlDeviceSetComputeMode=999")
    with pytest.raises(errors.UnavailableError):
        card.join("a")
    assert card.read().mps_shares == ("a",)


def test_a_share_that_cannot_leave_is_known_until_it_can(card: Card) -> None:
    card.join("a")
    card.bench.turn(0, "fail.nvmlDeviceSetComputeMode=999")
    with pytest.raises(errors.UnavailableError):
        card.leave("a")
    assert card.read().mps_shares == ("a",)
    card.bench.turn(0, "fail.nvmlDeviceSetComputeMode=0")
    card.leave("a")
    assert (card.mode(), card.read().mps_shares) == (DEFAULT, ())


def test_the_last_share_leaves_a_card_that_is_lost(card: Card) -> None:
    card.join("a")
    card.bench.lose(0)
    card.leave("a")
    assert card.folder.shares() == ()


@pytest.mark.parametrize(
    ("share", "env"),
    [
        ({}, set()),
        (
            {"memory_bytes": 8 * GIB + 5, "cores": 25},
            {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8192M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25"},
        ),
        ({"memory_bytes": 8 * GIB, "cores": 1, "enforce_memory": False}, set()),
    ],
)
def test_a_container_is_told_its_amounts(
    card: Card, share: dict[str, object], env: set[str]
) -> None:
    wanted = msgspec.convert({"share_id": "a", "strategy": "MPS", **share}, contract.Share)
    use = contract.Use(card=card.read(), share=wanted)
    given = card.vendor.inject([use], driver_version=card.version, hook_path="").uses[0]
    assert set(given.edits.env) == {"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", *env}
    assert {each.container_path for each in given.edits.mounts} == {"/tmp/nvidia-mps", "/dev/shm"}
    assert given.edits.device_nodes
    if env:
        assert given.limits_memory_message.startswith("MPS keeps each process to the amount")


def test_a_container_waits_for_its_daemon_and_a_whole_card_for_the_end_of_one(card: Card) -> None:
    share = contract.Share(share_id="a", strategy=contract.SharingStrategy.MPS)
    by_mps = contract.Use(card=card.read(), share=share)
    whole = contract.Use(card=card.read())
    assert card.vendor.pending(by_mps) == "The MPS daemon is not started yet."
    assert card.vendor.pending(whole) == ""
    card.folder.write_state(places.State(ready=False, message="It is starting."))
    assert card.vendor.pending(by_mps) == "It is starting."
    card.folder.write_state(places.State(ready=True))
    assert card.vendor.pending(by_mps) == ""
    assert card.vendor.pending(whole) == "The card's MPS daemon is still ending."
