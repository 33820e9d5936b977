# SPDX-License-Identifier: Apache-2.0
"""Wait for a state of the world that only asking tells of, such as another process's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
LIMIT_SECONDS = 15.0


async def eventually(
    read: Callable[[], Awaitable[T]], expected: T, *, seconds: float = LIMIT_SECONDS
) -> None:
    """Ask until the answer is `expected`; AssertionError with the last one after `seconds`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while (actual := await read()) != expected:
        assert loop.time() < deadline, f"not {expected!r} within {seconds} s but {actual!r}"
        await asyncio.sleep(0.01)
