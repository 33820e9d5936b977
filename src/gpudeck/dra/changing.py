# SPDX-License-Identifier: Apache-2.0
"""Which cards' partition modes are being changed now, for all plugins of a node to see.

A reset takes up to a minute and a half, and other cards must not wait for it. So `switching`
takes a lock file of the card while it holds the lock of Prepare, and gives only the latter
back; `preparing` looks at the file under the lock of Prepare and refuses claims for the
card. The kernel drops the lock when its holder ends; an adapter that goes on by itself
refuses the card until it has ended, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from gpudeck.host import files, locks

WAIT_SECONDS = 10.0
"""How long a claim waits for a change that is in its way, with no lock held: the kubelet (1.37)
repeats a refused Prepare only after a minute or more, and gives a call 45 s."""
_LOOK_SECONDS = 0.1
_LOCK_SECONDS = 1.0
"""To take a card's lock, which nobody else holds for longer than a look."""


class Changing:
    """The lock files of one node's cards; cards are named by their DRA devices."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.asynccontextmanager
    async def held(self, card: str) -> AsyncIterator[None]:
        """Have the card being changed inside the block. Raises BusyError if it is already."""
        async with locks.held(self._path(card), deadline_seconds=_LOCK_SECONDS):
            yield

    def includes(self, card: str) -> bool:
        """Whether the card is being changed now."""
        return files.is_locked(self._path(card))

    async def over(self, cards: Collection[str]) -> None:
        """Wait until none of the cards is being changed, or WAIT_SECONDS have passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                while any(map(self.includes, cards)):  # noqa: ASYNC110 - perhaps another process.
                    await asyncio.sleep(_LOOK_SECONDS)

    def _path(self, card: str) -> Path:
        return self._folder / f"mode-{card}.lock"
