# SPDX-License-Identifier: Apache-2.0
"""What a device plugin left on the node goes, and what NVIDIA's made stays."""

from __future__ import annotations

from pathlib import Path

from gpudeck.cdi import plugins

OURS = ("k8s.device-plugin.nvidia.com-gpu.json", "k8s.device-plugin.nvidia.com-gds.json")
OTHERS = ("k8s.gpu.deckhouse.io-claim_1.json", "nvidia.yaml")


def node(folder: Path) -> tuple[Path, Path]:
    """The runtime's folder and the plugin's, with files of all."""
    cdi, data = folder / "cdi", folder / "data"
    for each in (cdi, data):
        each.mkdir()
    for name in (*OURS, *OTHERS):
        (cdi / name).write_text("{}")
    (data / "checkpoint.json").write_text("{}")
    return cdi, data


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def test_what_a_device_plugin_of_ours_left_is_removed_once(tmp_path: Path) -> None:
    cdi, data = node(tmp_path)
    (data / plugins.STATE_FILE).write_text("{}")
    assert plugins.remove(cdi, data)
    assert (names(cdi), names(data)) == (set(OTHERS), {"checkpoint.json"})
    assert not plugins.remove(cdi, data)


def test_files_of_another_device_plugin_stay(tmp_path: Path) -> None:
    cdi, data = node(tmp_path)
    assert not plugins.remove(cdi, data)
    assert names(cdi) == {*OURS, *OTHERS}


def test_folders_that_are_not_there_are_no_trouble(tmp_path: Path) -> None:
    assert not plugins.remove(tmp_path / "cdi", tmp_path / "data")
    assert plugins.remove_leftovers(tmp_path / "cdi", tmp_path / "data") == 0


def test_half_written_files_are_removed_by_name(tmp_path: Path) -> None:
    cdi, data = node(tmp_path)
    (cdi / f".{OURS[0]}.0123.tmp").touch()
    (cdi / ".k8s.gpu.deckhouse.io-claim_1.json.0123.tmp").touch()
    (data / f".{plugins.STATE_FILE}.0123.tmp").touch()
    assert plugins.remove_leftovers(cdi, data) == 2
    assert ".k8s.gpu.deckhouse.io-claim_1.json.0123.tmp" in names(cdi)
