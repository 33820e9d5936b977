# SPDX-License-Identifier: Apache-2.0
"""The picture in ARCHITECTURE.md is the one that import-linter enforces."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_layers_drawn_are_the_layers_enforced() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    enforced = [
        [word.strip().removeprefix("gpudeck.") for word in layer.split("|")]
        for layer in next(each for each in contracts if each["type"] == "layers")["layers"]
    ]
    text = (ROOT / "ARCHITECTURE.md").read_text()
    block = re.search(r"```layers\n(.*?)```", text, re.DOTALL)
    assert block is not None
    drawn = [[word.strip() for word in line.split("|")] for line in block[1].strip().splitlines()]
    assert drawn == enforced


def test_the_flows_name_modules_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## Flows")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z]+(?:/[a-z_]+)+)`", text))
    source = ROOT / "src" / "gpudeck"
    known = {path.relative_to(source).with_suffix("").as_posix() for path in source.rglob("*")}
    # Within a flow the first word of a path may be left out.
    missing = [each for each in named if not any(f"/{path}".endswith(f"/{each}") for path in known)]
    assert named
    assert missing == []


def test_every_package_stands_in_a_layer() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    block = re.search(r"```layers\n(.*?)```", text, re.DOTALL)
    assert block is not None
    drawn = set(re.findall(r"\w+", block[1]))
    packages = {path.parent.name for path in (ROOT / "src" / "gpudeck").glob("*/__init__.py")}
    assert packages - drawn == set()
