# SPDX-License-Identifier: Apache-2.0
"""The fault matrix names tests that exist, so no row is a promise alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MATRIX = ROOT / "docs" / "explanation" / "faults.md"
NAME = re.compile(r"[a-z]+(?:_[a-z0-9]+)+")
KNOWN = {
    found
    for path in (ROOT / "tests").rglob("test_*.py")
    for found in re.findall(r"def test_(\w+)\(", path.read_text())
}


def rows() -> list[list[str]]:
    lines = [line for line in MATRIX.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [each for each in cells if each[-1] != "test"]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_fault_names_files_and_tests_that_exist(row: list[str]) -> None:
    assert len(row) == 3
    shown = row[-1]
    quoted = re.findall(r"`([^`]+)`", shown)
    missing = [
        each
        for each in quoted
        if "/" in each and not any((root / each).exists() for root in (ROOT, ROOT / "src/gpudeck"))
    ]
    assert missing == []
    names = NAME.findall(re.sub(r"`[^`]+`", "", shown))
    assert [name for name in names if not any(test.startswith(name) for test in KNOWN)] == []
    assert names or quoted or shown.startswith("the same")
