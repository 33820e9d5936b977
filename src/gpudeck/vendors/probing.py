# SPDX-License-Identifier: Apache-2.0
"""Cards that are put aside, and the processes that were killed for them.

A card put aside is tried every so often in a short-lived process of its own, with
more patience than a card in use gets. It comes back after ANSWERS_TO_RETURN tries in a
row that answered; an error that the library tells is an answer too. While a killed process of the
card still exists (it sits in the kernel), the card is not tried: each try would leave
one more behind. Owned by `supervisor`.
"""

from __future__ import annotations

import asyncio
import dataclasses

from gpudeck import errors, finishing, logs
from gpudeck.vendors import calling

log = logs.get(__name__)

ANSWERS_TO_RETURN = 2


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds. `open` and `read` are deadlines of one call."""

    every: float = 30.0
    open: float = 30.0
    read: float = 20.0


@dataclasses.dataclass
class _Aside:
    due: float
    answers: int = 0
    task: asyncio.Task[None] | None = None


class Probing:
    """The cards put aside."""

    def __init__(self, program: calling.Program, timing: Timing) -> None:
        self._program = program
        self._timing = timing
        self._aside: dict[str, _Aside] = {}
        self._killed: dict[calling.LibraryProcess, str | None] = {}
        self._watches: set[asyncio.Task[None]] = set()

    @property
    def aside(self) -> frozenset[str]:
        """Addresses of the cards that are not to be read now."""
        return frozenset(self._aside)

    @property
    def blocked(self) -> bool:
        """A process that was killed for no card in particular still exists: start no other."""
        return any(address is None for address in self._living().values())

    def put_aside(self, address: str) -> None:
        """Take a card out; the first try is after one period."""
        due = asyncio.get_running_loop().time() + self._timing.every
        self._aside[address] = _Aside(due=due)

    def forget(self, address: str) -> None:
        """The card is no longer on the bus."""
        aside = self._aside.pop(address, None)
        if aside is not None and aside.task is not None:
            aside.task.cancel()

    def leave(self, process: calling.LibraryProcess, *, address: str | None) -> None:
        """Kill a process and do not wait for it; `address` is the card it was reading."""
        self._killed[process] = address
        watch = asyncio.create_task(self._kill(process, address))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    def step(self) -> list[str]:
        """Start the tries that are due; return the cards that came back."""
        now = asyncio.get_running_loop().time()
        held = set(self._living().values())
        returned = []
        for address, aside in list(self._aside.items()):
            if aside.task is not None:
                if not aside.task.done():
                    continue
                aside.task.result()
                aside.task = None
            if aside.answers >= ANSWERS_TO_RETURN:
                del self._aside[address]
                returned.append(address)
            elif now >= aside.due and address not in held:
                aside.due = now + self._timing.every
                aside.task = asyncio.create_task(self._try(address, aside))
        return returned

    async def close(self) -> None:
        """End the tries that are under way."""
        tasks = [each.task for each in self._aside.values() if each.task is not None]
        await finishing.ended(*tasks)
        await asyncio.gather(*self._watches)

    async def _try(self, address: str, aside: _Aside) -> None:
        process = await self._program.start(lambda events: None, lambda: None)
        try:
            state = await process.open(deadline_seconds=self._timing.open)
            if state.ready:
                await process.read(address, deadline_seconds=self._timing.read)
            aside.answers += 1
        except (calling.HungError, calling.EndedError) as error:
            log.info("Card put aside does not answer", card=address, why=error.message)
            aside.answers = 0
        except errors.GpudeckError:
            aside.answers += 1
        finally:
            self.leave(process, address=address)

    async def _kill(self, process: calling.LibraryProcess, address: str | None) -> None:
        if not await process.kill():
            log.warning(
                "Process does not end by SIGKILL, leaving it behind",
                pid=process.pid,
                entered=process.entered,
                card=address,
            )

    def _living(self) -> dict[calling.LibraryProcess, str | None]:
        self._killed = {each: why for each, why in self._killed.items() if not each.ended}
        return self._killed
