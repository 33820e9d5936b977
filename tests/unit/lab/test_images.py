# SPDX-License-Identifier: Apache-2.0
"""Layers are reproducible, layouts are served by any name, and old sets go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpudeck.lab import images, oci, registry


def make_layout(folder: Path, tree: Path) -> Path:
    layer = oci.write_layer(tree, folder / "layer.tar")
    image = oci.Image("registry.lab/gpu-burn:latest", (layer,), {"Cmd": ["gpu-burn"]})
    oci.write_layout(folder / "layout", [image])
    return folder / "layout"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    (made / "usr/bin").mkdir(parents=True)
    (made / "usr/bin/tool").write_text("#!/bin/sh\n")
    (made / "bin").symlink_to("usr/bin")
    return made


def test_equal_trees_give_equal_layers_whatever_their_times(tmp_path: Path, tree: Path) -> None:
    first = oci.write_layer(tree, tmp_path / "first.tar")
    os.utime(tree / "usr/bin/tool", (1, 1))
    assert oci.write_layer(tree, tmp_path / "second.tar").digest == first.digest


def test_an_image_is_found_by_tag_by_digest_and_by_any_repository_of_its_name(
    tmp_path: Path, tree: Path
) -> None:
    layout = registry.Layout(make_layout(tmp_path, tree))
    by_tag = layout.manifest("gpu-burn", "latest")
    assert by_tag is not None
    assert layout.manifest("gpu-burn", "v3-of-somebody") == by_tag
    assert layout.manifest("gpu-burn", f"sha256:{by_tag[0]}") == by_tag
    assert layout.blob(by_tag[0]) is not None
    assert layout.manifest("gpu-burn", "sha256:" + "0" * 64) is None
    assert layout.manifest("unknown", "latest") is None


def test_a_layout_that_is_gone_has_no_images(tmp_path: Path) -> None:
    assert registry.Layout(tmp_path / "nowhere").manifest("gpu-burn", "latest") is None


def test_the_oldest_sets_go(tmp_path: Path) -> None:
    for age in range(7):
        (tmp_path / f"set-{age}").mkdir()
        os.utime(tmp_path / f"set-{age}", (1000 - age, 1000 - age))
    images._prune(tmp_path)
    kept = ["set-0", "set-1", "set-2", "set-3"]
    assert sorted(each.name for each in tmp_path.iterdir()) == kept
