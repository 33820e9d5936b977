# SPDX-License-Identifier: Apache-2.0
"""Settings of the process features that cannot work are refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudeck.errors import InvalidError
from gpudeck.features import main, settings
from gpudeck.features.settings import Settings
from gpudeck.features.sources import reading


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (Settings(role="both"), "ROLE"),
        (Settings(role="worker"), "--node-name"),
        (Settings(role="worker", node_name="n", sources=("gpu",)), "--sources"),
        (Settings(role="master", label_whitelist="("), "--label-whitelist"),
        (Settings(role="master", print_only=True), "--print-only"),
    ],
)
async def test_a_setting_that_cannot_work_is_named(given: Settings, field: str) -> None:
    with pytest.raises(InvalidError) as caught:
        await main.run(given)
    assert caught.value.field == field
    assert "allowed:" in caught.value.message


async def test_a_worker_prints_what_it_would_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("ID=ubuntu\n")
    await main.run(Settings(role="worker", node_name="n", host_root=tmp_path, print_only=True))
    said = capsys.readouterr()
    printed = json.loads(said.out)
    assert printed["metadata"]["name"] == "n"
    assert printed["spec"]["labels"] == {
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu"
    }
    assert "left out: pci" in said.err


def test_every_source_that_can_be_chosen_is_there() -> None:
    assert sorted(settings.SOURCES) == sorted([*reading.SOURCES, "custom"])
