# SPDX-License-Identifier: Apache-2.0
"""Deep JSON is read up to what an API server takes."""

import sys

import msgspec
import pytest

from gpudeck import nesting

_any = msgspec.json.Decoder(dict[str, msgspec.Raw])


def nested(levels: int) -> bytes:
    return b'{"x":' + b"[" * levels + b"]" * levels + b"}"


def test_a_deep_text_is_read_and_the_limit_stays() -> None:
    limit = sys.getrecursionlimit()
    assert len(nesting.decode(_any, nested(9000))["x"]) == 18000
    assert sys.getrecursionlimit() == limit


def test_a_text_that_no_server_takes_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError, match="too deeply"):
        nesting.decode(_any, nested(100_000))


def test_what_is_no_json_is_refused_as_ever() -> None:
    with pytest.raises(msgspec.DecodeError, match="truncated"):
        nesting.decode(_any, b"{")
