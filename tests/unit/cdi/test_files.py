# SPDX-License-Identifier: Apache-2.0
"""Our specs in the runtime's folder."""

from __future__ import annotations

import stat
from pathlib import Path

from gpudeck.cdi.files import Folder


def test_a_spec_is_written_read_listed_and_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cdi")
    folder.write("u1", b"{}")
    assert folder.read("u1") == b"{}"
    assert folder.claims() == ["u1"]
    assert folder.remove("u1")
    assert not folder.remove("u1")
    assert folder.read("u1") is None


def test_everybody_may_read_a_spec(tmp_path: Path) -> None:
    Folder(tmp_path).write("u1", b"{}")
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_files_of_others_are_neither_listed_nor_cleared(tmp_path: Path) -> None:
    ours = tmp_path / ".k8s.gpu.deckhouse.io-claim_u1.json.0a0b.tmp"
    for path in (ours, tmp_path / ".nvidia.json.0a0b.tmp", tmp_path / "nvidia.com-gpu.json"):
        path.write_text("{}")
    folder = Folder(tmp_path)
    assert folder.claims() == []
    assert folder.remove_leftovers() == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".nvidia.json.0a0b.tmp",
        "nvidia.com-gpu.json",
    ]


def test_a_missing_folder_has_no_specs(tmp_path: Path) -> None:
    assert Folder(tmp_path / "none").claims() == []
