# SPDX-License-Identifier: Apache-2.0
"""Half a surrogate pair is read as Go reads it; what is no JSON at all stays an error."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.kube import decoding

ANY: msgspec.json.Decoder[object] = msgspec.json.Decoder()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\ud800"', "\ufffd"),
        (r'"a\udc00b\uD83D\uDE00\uDBFF"', "a\ufffdb\U0001f600\ufffd"),
        (r'"\\ud800\ud800"', "\\ud800\ufffd"),
        (r'"\ud800\ud800"', "\ufffd\ufffd"),
    ],
)
def test_half_a_pair_is_the_replacement_character(text: str, value: str) -> None:
    assert decoding.decode(ANY, text.encode()) == value


@pytest.mark.parametrize("text", [b'{"a":', b'"\\ud80"', b"", b'{"a":"\\ud800"'])
def test_what_is_no_json_is_an_error(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decoding.decode(ANY, text)
