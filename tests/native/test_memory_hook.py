# SPDX-License-Identifier: Apache-2.0
"""The hook at a container's start: whatever keeps it from setting limits, the container starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


@pytest.fixture
def run(artifacts: Path) -> Run:
    """Run the hook, see it succeed, and return what it wrote."""

    def start(state: str, *words: str) -> str:
        done = subprocess.run(
            [artifacts / "gpudeck-memory-limits", *words],
            input=state, capture_output=True, text=True, check=False, timeout=20,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "")
        return done.stderr

    return start


def test_the_process_is_the_one_of_the_state_s_outermost_object(run: Run) -> None:
    state = {"annotations": {"pid": "1", "x": '"pid": 1'}, "list": [{"pid": 1}], "pid": 2**22 + 1}
    assert f"/proc/{2**22 + 1}/cgroup" in run(json.dumps(state), "--library", "none")


@pytest.mark.parametrize(
    "state", ["", "{", "{}", '{"pid": "x"}', '{"annotations": {"pid": 5}}', '"']
)
def test_a_state_without_a_process_is_said(run: Run, state: str) -> None:
    assert "names no process" in run(state, "--library", "none")


def test_words_without_a_library_are_said(run: Run) -> None:
    assert "usage" in run("{}")


@pytest.mark.parametrize(
    "words",
    ["GPU-x", "GPU-x=1", "GPU-x/a", "GPU-x/a=", "GPU-x/a=1x", "GPU-x/=1", "/a=1", "GPU-x/a=none"],
)
def test_a_limit_in_other_words_is_said(run: Run, words: str) -> None:
    said = run(json.dumps({"pid": os.getpid()}), "--library", sys.executable, "--limit", words)
    assert f"--limit {words}: wanted is UUID/SHARE=BYTES" in said


@pytest.mark.skipif(
    Path("/sys/fs/cgroup/cgroup.controllers").exists(), reason="cgroup version 2 here"
)
def test_cgroup_version_1_is_said(run: Run) -> None:
    said = run(
        json.dumps({"pid": os.getpid()}), "--library", sys.executable, "--limit", "GPU-x/a=1"
    )
    assert said == (
        "gpudeck-memory-limits: no limit of card memory: "
        "the node has cgroup version 1, the driver needs version 2\n"
    )


@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/cgroup.controllers").exists(), reason="cgroup version 1 here"
)
def test_a_library_that_cannot_be_loaded_is_said(run: Run) -> None:
    said = run(
        json.dumps({"pid": os.getpid()}), "--library", "/nonexistent", "--limit", "GPU-x/a=1"
    )
    assert "/nonexistent" in said
