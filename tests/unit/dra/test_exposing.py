# SPDX-License-Identifier: Apache-2.0
"""The files by which containers are told of their devices."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from gpudeck.dra.allocations import HeldDevice, Reference
from gpudeck.dra.checkpoint import Entry, Metadata, State
from gpudeck.dra.exposing import Exposure

CLAIM = Reference("u1", "t", "c")
OTHER = Reference("u11", "t", "d")
ENTRY = Entry(
    state=State.COMPLETED,
    devices=[HeldDevice(name="gpu-a", requests=["x"]), HeldDevice(name="gpu-b", requests=["y"])],
    metadata=Metadata(),
)


@pytest.fixture
def exposure(tmp_path: Path) -> Exposure:
    (tmp_path / "data").mkdir()
    return Exposure(tmp_path / "data", tmp_path / "cdi")


def found(tmp_path: Path) -> set[str]:
    return {path.name for path in tmp_path.rglob("*") if path.is_file()}


FILES = {"u1_x.json", "u1_y.json", "gpu.deckhouse.io-metadata_u1.json"}


def test_every_file_can_be_read_by_everybody_and_is_mounted_read_only(
    tmp_path: Path, exposure: Exposure
) -> None:
    exposure.write(CLAIM, ENTRY)
    assert found(tmp_path) == FILES
    spec = json.loads((tmp_path / "cdi/gpu.deckhouse.io-metadata_u1.json").read_text())
    assert (spec["kind"], spec["cdiVersion"]) == ("gpu.deckhouse.io/metadata", "0.5.0")
    assert [each["name"] for each in spec["devices"]] == ["u1_x", "u1_y"]
    (mount,) = spec["devices"][0]["containerEdits"]["mounts"]
    path = Path(mount["hostPath"])
    assert json.loads(path.read_text().splitlines()[0])["requests"][0]["name"] == "x"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert {"ro", "bind"} <= set(mount["options"])


def test_what_is_missing_or_changed_is_seen_and_made_again(
    tmp_path: Path, exposure: Exposure
) -> None:
    exposure.write(CLAIM, ENTRY)
    assert exposure.is_whole(CLAIM, ENTRY)
    for name in FILES:
        (path,) = tmp_path.rglob(name)
        before = path.read_bytes()
        path.write_bytes(before[:-1])
        assert not exposure.is_whole(CLAIM, ENTRY)
        path.unlink()
        assert not exposure.is_whole(CLAIM, ENTRY)
        exposure.write(CLAIM, ENTRY)
        assert path.read_bytes() == before


def test_a_claim_is_removed_and_no_other(tmp_path: Path, exposure: Exposure) -> None:
    exposure.write(CLAIM, ENTRY)
    exposure.write(OTHER, ENTRY)
    exposure.remove(OTHER.uid)
    exposure.remove(OTHER.uid)
    assert found(tmp_path) == FILES


def test_what_nobody_holds_is_swept_and_files_of_others_stay(
    tmp_path: Path, exposure: Exposure
) -> None:
    exposure.write(CLAIM, ENTRY)
    exposure.write(OTHER, ENTRY)
    folder = tmp_path / "data/dra-device-metadata"
    (folder / ".u11_x.json.0a0b.tmp").write_text("{")
    (folder / "notes.txt").write_text("")
    (tmp_path / "cdi/nvidia.com-gpu.json").write_text("{}")
    (tmp_path / "cdi/gpu.deckhouse.io-metadata_u11.json").unlink()
    assert exposure.sweep({"u1"}) == 1
    assert found(tmp_path) == {*FILES, "notes.txt", "nvidia.com-gpu.json"}


def test_a_claim_of_an_older_release_has_no_files(tmp_path: Path, exposure: Exposure) -> None:
    old = Entry(state=State.COMPLETED, devices=ENTRY.devices)
    exposure.write(CLAIM, old)
    assert exposure.is_whole(CLAIM, old)
    assert found(tmp_path) == set()
    exposure.remove(CLAIM.uid)
    assert exposure.sweep(set()) == 0
