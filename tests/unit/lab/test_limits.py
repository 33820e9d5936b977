# SPDX-License-Identifier: Apache-2.0
"""The machine's limit of file watchers is raised where it is too low, and only there."""

from __future__ import annotations

from pathlib import Path

from gpudeck.lab import limits


def test_a_low_limit_is_raised_and_told(tmp_path: Path) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("128\n")
    told: list[str] = []
    limits.raise_inotify(told.append, limit=limit)
    assert limit.read_text() == str(limits.ENOUGH)
    assert "from 128" in told[0]


def test_a_high_limit_stays(tmp_path: Path) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("100000\n")
    told: list[str] = []
    limits.raise_inotify(told.append, limit=limit)
    assert limit.read_text() == "100000\n"
    assert told == []


def test_a_limit_that_cannot_be_raised_is_told_and_no_error(tmp_path: Path) -> None:
    told: list[str] = []
    limits.raise_inotify(told.append, limit=tmp_path / "missing" / "limit")
    assert "cannot be raised" in told[0]
