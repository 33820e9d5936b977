# SPDX-License-Identifier: Apache-2.0
"""Decode what the API server answers, also where what a user wrote in it is not quite JSON.

Some fields, as the parameters of a claim, hold JSON that the API server keeps as it came. It takes
half of a UTF-16 surrogate pair (`\\ud800`), of which Go's reader makes U+FFFD and which is an
error to msgspec 0.23: one claim of one user would make every list of claims unreadable. So it is
read as Go does.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from gpudeck import nesting

T = TypeVar("T")
_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPES = re.compile(rb"\\\\|" + _PAIR + rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})")


def decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    """Decode a text. Raises as the decoder does where it is not JSON of that type."""
    try:
        return nesting.decode(decoder, body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        mended = _ESCAPES.sub(_mended, bytes(body))
        if mended == bytes(body):
            raise
        return nesting.decode(decoder, mended)


def _mended(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape["half"] else escape[0]
