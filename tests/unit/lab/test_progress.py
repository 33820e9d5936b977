# SPDX-License-Identifier: Apache-2.0
"""What a command says while it works, off a terminal and on one."""

from __future__ import annotations

import io
import re

import pytest

from gpudeck.lab import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_off_a_terminal_each_step_is_one_line_at_its_end() -> None:
    out = io.StringIO()
    shown = progress.Progress(2, stream=out)
    with shown.step("First"):
        shown.detail("half")
        shown.detail("half")
    with shown.step("Second"):
        pass
    lines = out.getvalue().splitlines()
    assert lines[0] == "      half"
    assert re.fullmatch(r"\[1/2\] First +0\.\d s", lines[1])
    assert re.fullmatch(r"\[2/2\] Second +0\.\d s", lines[2])
    assert len(lines) == 3


def test_a_failed_step_says_so_and_lets_the_error_through() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="x"), progress.Progress(1, stream=out).step("Only"):
        raise ValueError("x")
    assert re.fullmatch(r"\[1/1\] Only +failed after 0\.\d s\n", out.getvalue())


def test_a_step_beyond_the_expected_ones_raises_the_total() -> None:
    out = io.StringIO()
    shown = progress.Progress(stream=out)
    with shown.step("A"):
        pass
    assert out.getvalue().startswith("[1/1] A")


def test_on_a_terminal_the_line_is_cleared_before_the_next() -> None:
    out = Terminal()
    with progress.Progress(1, stream=out).step("A"):
        pass
    assert out.getvalue().startswith("\r\x1b[K[1/1] A")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.96, "10.0 s"), (12.4, "12 s"), (59.7, "1 min 0 s"), (185, "3 min 5 s")],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text
