# SPDX-License-Identifier: Apache-2.0
"""Decodes JSON of the API server however deep it is.

The server takes 10,000 levels (Go's decoder, 1.37), and whoever may make a ResourceClaim
has 10 KiB of opaque parameters for them; msgspec stops at Python's limit of recursion, some
1,000, even in what it only passes over. One such object would keep a whole list from being
read. A level costs few bytes of the stack, so for such a text alone the limit is raised.
"""

from __future__ import annotations

import sys
from typing import TypeVar

import msgspec

LEVELS = 10_000
T = TypeVar("T")


def decode(decoder: msgspec.json.Decoder[T], content: bytes | str | msgspec.Raw) -> T:
    """The content. Raises msgspec.DecodeError, also for what is deeper than the server takes."""
    try:
        return decoder.decode(content)
    except RecursionError:
        pass
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + LEVELS)
    try:
        return decoder.decode(content)
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error
    finally:
        sys.setrecursionlimit(limit)
