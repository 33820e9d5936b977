# SPDX-License-Identifier: Apache-2.0
"""Wait for what must not be left half done, however often the waiting task is cancelled.

For steps at the end of a block, which a second cancellation would cut short: with them would stay
what they were to end. Used where a TaskGroup, which waits so by itself, does not fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def whole(step: Awaitable[T]) -> T:
    """Await `step` to its end, and be cancelled only then."""
    task = asyncio.ensure_future(step)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


async def ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended, however they do; be cancelled only then."""
    for task in tasks:
        task.cancel()
    await whole(asyncio.gather(*tasks, return_exceptions=True))
