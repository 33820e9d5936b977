# SPDX-License-Identifier: Apache-2.0
"""Keeps one control daemon for each card that a share wants one for.

Looks at the wishes several times a second: a look is one listing of a folder in memory.
A daemon that ends, or does not come to answer, is started again, each time after a longer wait;
one whose last share is given back is told to quit, and killed if it does not.
What it does stands in the card's state. Ends all daemons when it is cancelled: they
could not outlive this process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import msgspec

from gpudeck import errors, finishing, logs
from gpudeck.host import processes
from gpudeck.host import root as host
from gpudeck.vendors.nvidia.mps import control, places

log = logs.get(__name__)

_STARTING = places.State(ready=False, message="The MPS daemon is starting.")
_ENDING = places.State(ready=False, message="The MPS daemon of the last shares is still ending.")


class Timing(msgspec.Struct, frozen=True):
    """Seconds."""

    look: float = 0.25
    answer_pause: float = 0.1
    """Between two questions to a daemon that is starting."""
    start: float = 30.0
    """A daemon that has not answered by then is started again."""
    longest_backoff: float = 30.0
    steady: float = 60.0
    """A daemon that has lived so long ends the growth of the waits."""
    quit: float = 5.0


def changes(
    kept: Mapping[str, str], wanted: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """What to start and what to end, by address and UUID: another card in a place is both."""
    start = {place: uuid for place, uuid in wanted.items() if kept.get(place) != uuid}
    end = {place: uuid for place, uuid in kept.items() if wanted.get(place) != uuid}
    return start, end


class Daemons:
    """All daemons of a node."""

    def __init__(
        self, root: host.Root, controls: control.Control, timing: Timing | None = None
    ) -> None:
        self._root = root
        self._control = controls
        self._timing = timing or Timing()
        self._kept: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Keep what is wanted until cancelled. States of an earlier life are taken away first."""
        for card in places.cards(self._root):
            if card.state() is not None:  # Told before the wishes are looked at, see `_ends`.
                card.write_state(_STARTING)
            if card.uuid() is None:
                await self._forget(card)
        try:
            while True:
                wanted = {
                    card.address: uuid
                    for card in places.cards(self._root)
                    if (uuid := card.uuid()) is not None
                }
                await self._follow(wanted)
                await asyncio.sleep(self._timing.look)
        finally:
            await self._end(self._kept)

    async def _follow(self, wanted: Mapping[str, str]) -> None:
        start, end = changes(self._kept, wanted)
        await self._end({address: uuid for address, uuid in end.items() if self._ends(address)})
        for address, uuid in start.items():
            if address in self._kept:
                continue  # The next look tells what is wanted there.
            card = places.Card(self._root, address)
            self._kept[address] = uuid
            self._tasks[address] = asyncio.create_task(self._keep(card, uuid))
        for task in self._tasks.values():
            if task.done():
                task.result()  # It ends by an error alone, and this process with it.

    def _ends(self, address: str) -> bool:
        """Say that a card's daemon ends; False where a share has come for it meanwhile.

        A share is written down before the state is looked at, so that either the share finds the
        daemon ending or is found here: its containers would else be given the memory and the
        sockets of a daemon that is about to go.
        """
        card = places.Card(self._root, address)
        before = card.state()
        card.write_state(_ENDING)
        if card.uuid() != self._kept[address]:
            return True
        card.write_state(before)
        return False

    async def _end(self, addresses: Mapping[str, str]) -> None:
        tasks = [self._tasks.pop(address) for address in list(addresses)]
        for address in list(addresses):
            del self._kept[address]
        await finishing.ended(*tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _keep(self, card: places.Card, uuid: str) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        try:
            while True:
                began = loop.time()
                try:
                    why = await self._live(card, uuid)
                except errors.GpudeckError as error:
                    why = error.message
                failures = 0 if loop.time() - began > self._timing.steady else failures
                wait = min(0.25 * 2**failures, self._timing.longest_backoff) if failures else 0.0
                failures += 1
                log.warning("MPS daemon ended", card=card.address, why=why, again_in=wait)
                card.write_state(places.State(ready=False, message=f"{why.rstrip('.')}."))
                await asyncio.sleep(wait)
        finally:
            await self._forget(card)

    async def _live(self, card: places.Card, uuid: str) -> str:
        """One life of the daemon; how it ended. Cancelled, it ends the daemon."""
        card.write_state(_STARTING)
        with contextlib.suppress(errors.GpudeckError):
            await self._control.ask(card, "quit")  # One that outlived what started it.
        child = await self._control.start(card, uuid)
        try:
            if not await self._answers(card, child):
                return "the MPS daemon ended before it answered, or did not answer"
            log.info("MPS daemon serves", card=card.address, uuid=uuid, pid=child.pid)
            card.write_state(places.State(ready=True))
            return f"the MPS daemon ended with status {await child.wait()}"
        finally:
            await self._stop(card, child)

    async def _answers(self, card: places.Card, child: processes.Child) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timing.start):
                while child.status is None:
                    with contextlib.suppress(errors.GpudeckError):
                        await self._control.ask(card, "get_default_active_thread_percentage")
                        return True
                    await asyncio.sleep(self._timing.answer_pause)
        return False

    async def _stop(self, card: places.Card, child: processes.Child) -> None:
        if child.status is None:
            with contextlib.suppress(errors.GpudeckError, TimeoutError):
                await self._control.ask(card, "quit")
                async with asyncio.timeout(self._timing.quit):
                    await child.wait()
        await child.stop()  # What it started may have outlived it.

    async def _forget(self, card: places.Card) -> None:
        """The card has no daemon any more."""
        try:
            await asyncio.to_thread(self._control.clear, card)
        except errors.GpudeckError as error:
            log.warning("Cannot give back memory", card=card.address, why=error.message)
        card.write_state(None)
