# SPDX-License-Identifier: Apache-2.0
"""Lines are cut right however the bytes arrive."""

from __future__ import annotations

import pytest

from gpudeck import errors
from gpudeck.kube import watching


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_come_out_whole_for_any_size_of_chunk(size: int) -> None:
    text = b"first\nsecond one\n\nfourth\n"
    lines = watching.Lines()
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    assert found == [b"first", b"second one", b"", b"fourth"]


def test_what_has_no_end_yet_is_kept() -> None:
    lines = watching.Lines()
    assert list(lines.feed(b"one\ntw")) == [b"one"]
    assert list(lines.feed(b"o")) == []
    assert list(lines.feed(b"\n")) == [b"two"]


def test_a_line_far_larger_than_a_stream_buffer_is_cut() -> None:
    lines = watching.Lines()
    half = b"x" * 2_000_000
    assert list(lines.feed(half)) == []
    assert [len(line) for line in lines.feed(half + b"\nrest")] == [4_000_000]


def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LINE_LIMIT", 10)
    with pytest.raises(errors.ExpiredError):
        list(watching.Lines().feed(b"x" * 11))
