# SPDX-License-Identifier: Apache-2.0
"""Keeps a library process going, reads every card, and publishes the inventory when it changes.

One task, `run`, makes passes: each poll period, and at once after an event or the end
of the process. A card whose reading passes its deadline is put aside: its process is
killed, another goes on with the rest, and the card is tried again from time to time
in a process of its own (`probing`). A process that even SIGKILL does not end is left
behind and said so; its card is not tried again before it has gone, so at most one is
left behind a card. Nothing here knows what a verdict depends on: that is `health`.

Whoever wants a card changed calls `act`. Calls into the library take turns, so that
none runs beside another; a change waits for the reading under way, not for a pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from gpudeck import errors, finishing, logs
from gpudeck.vendors import calling, contract, health, heeding, probing, records, remembering

log = logs.get(__name__)


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds. `open`, `read` and `act` are deadlines of one call."""

    poll: float = 10.0
    changeable: float = math.inf
    """The same while a card has a partitioning mode, which may change without a trace. The bus
    is looked at with every `poll`."""
    shortest_pause: float = 1.0
    """Between two passes, however many events come."""
    open: float = 30.0
    read: float = 5.0
    act: float = 9.0
    reset: float = 45.0
    """Of an action that may reset its card, and of the reset itself."""
    first_inventory: float = 8.0
    """At this age an inventory is published even if some cards have not answered."""
    events_silent: float = 30.0
    """Silence of the thread that waits for events after which the process is replaced."""
    longest_backoff: float = 30.0
    traces: float = 1.0
    """Between two looks at what the node shows without the library."""
    attentive: float = 10.0
    """How long each look is followed by a pass after a difference: a change comes in steps, as
    partitions and then a mode, or a driver and then its cards."""
    bus: float = 10.0
    """How long a look at the PCI bus may take before a pass goes on without it."""


_CRASHES_BEFORE_ASIDE = 3
RESET_HUNG = "ResetHung"
"""Reason of a reset that does not end."""

Publish = Callable[[records.Inventory], None]


class Supervisor:
    """The one holder of a node's library processes; `publish` gets each new inventory."""

    def __init__(
        self,
        vendor: contract.Vendor,
        program: calling.Program,
        publish: Publish,
        *,
        timing: Timing | None = None,
        probe_timing: probing.Timing | None = None,
        remembered: remembering.Remembering | None = None,
        heeded: heeding.Heeded | None = None,
    ) -> None:
        self._vendor = vendor
        self._program = program
        self._publish_to = publish
        self._timing = timing or Timing()
        self._probing = probing.Probing(program, probe_timing or probing.Timing())
        self._remembered = remembered
        self._heeded = heeded or heeding.Heeded()
        self._before: dict[str, health.Raised] = {}
        """What was raised before this process started, until the bus was looked at."""
        self._records: dict[str, records.Record] = {}
        self._driver = records.NOT_OPENED
        self._published: records.Inventory | None = None
        self._process: calling.LibraryProcess | None = None
        self._turn = asyncio.Lock()
        """Held for each call into the library."""
        self._acting: set[asyncio.Task[Any]] = set()
        self._wake = asyncio.Event()
        self._crashes = 0
        self._not_before = 0.0
        self._opened_for: frozenset[str] = frozenset()
        self._look: asyncio.Task[Sequence[contract.Site]] | None = None
        self._looked = -math.inf
        """When the bus was last seen."""
        self._traced: tuple[str, ...] | None = None

    async def run(self) -> None:
        """Make passes until cancelled; then end the library process and the probes."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_traces())
            if self._remembered is not None:
                kept = await self._remembered.load()
                judged = {at: self._heeded.raised(each) for at, each in kept.items()}
                self._before = {at: each for at, each in judged.items() if each is not None}
                group.create_task(self._remembered.run())
            await self._make_passes()

    async def _make_passes(self) -> None:
        loop = asyncio.get_running_loop()
        early = loop.call_later(self._timing.first_inventory, self._publish)
        try:
            while True:
                is_woken = self._wake.is_set()
                self._wake.clear()
                await self._pass(is_woken=is_woken)
                early.cancel()
                self._publish()
                await asyncio.sleep(min(self._timing.shortest_pause, self._timing.poll))
                await self._rest()
        finally:
            early.cancel()
            if self._look is not None:
                self._look.cancel()
            await finishing.whole(self._end())

    async def _end(self) -> None:
        try:
            await finishing.ended(*self._acting)
            await self._probing.close()
        finally:
            if self._process is not None:
                await self._process.kill()

    async def _follow_traces(self) -> None:
        """Read at once when somebody else has changed partitions or driver, for ever."""
        attentive_until = 0.0
        while True:
            try:
                now = await asyncio.to_thread(self._vendor.traces)
            except errors.GpudeckError as error:
                log.debug("The node does not show its driver", why=error.message)
                now = ()
            if self._acting:
                self._traced = None  # Ours is read when it is done.
            else:
                if self._traced is not None and now != self._traced:
                    attentive_until = time.monotonic() + self._timing.attentive
                self._traced = now
            if time.monotonic() < attentive_until:
                self._wake.set()
            await asyncio.sleep(self._timing.traces)

    async def act(self, address: str, action: contract.Action) -> contract.Partition | None:
        """`Library.act`, in the library process.

        Afterwards, also after an error, the card is read anew and the inventory published before
        the answer, so that whoever has the answer finds its outcome there. A caller that is
        cancelled leaves the action to its end. Raises what the library raised, HungError and
        EndedError as for a reading, UnavailableError for a card that cannot be asked now.
        """
        task = asyncio.create_task(self._act(address, action))
        self._acting.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._acting.discard(task)
        if not task.cancelled():
            task.exception()  # Perhaps nobody waits for it any more: it is not "never retrieved".

    async def switch(self, wanted: Mapping[str, bool]) -> Mapping[str, errors.GpudeckError]:
        """Turn the partitioning mode of cards on or off, by a reset where they need one.

        As `act` with SetPartitioning for each, but all that wait for a reset are reset together.
        Returns why cards are not so, by address.
        """
        task = asyncio.create_task(self._switch(wanted))
        self._acting.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    async def _act(self, address: str, action: contract.Action) -> contract.Partition | None:
        if isinstance(action, contract.SetPartitioning) and action.may_reset:
            failed = await self._switch({address: action.enabled})
            if address in failed:
                raise failed[address]
            return None
        async with self._turn, self._publishing():
            process = await self._process_for(address)
            try:
                return await self._call(process, address, action=action, seconds=self._timing.act)
            finally:
                if self._process is process:
                    await self._read(address)

    @contextlib.asynccontextmanager
    async def _publishing(self) -> AsyncIterator[None]:
        """Publish what the block has changed."""
        try:
            yield
        finally:
            self._traced = None
            if self._published is not None:  # Else the first pass is still to finish.
                self._publish()

    async def _call(
        self,
        process: calling.LibraryProcess,
        address: str,
        *,
        action: contract.Action,
        seconds: float,
    ) -> contract.Partition | None:
        log.info("Changing card", card=address, action=type(action).__name__)
        try:
            return await process.act(address, action, deadline_seconds=seconds)
        except calling.HungError as error:
            self._hung(process, address, error)
            raise
        except calling.EndedError as error:
            self._ended(process, address, error)
            raise

    async def _switch(self, wanted: Mapping[str, bool]) -> dict[str, errors.GpudeckError]:
        failed: dict[str, errors.GpudeckError] = {}
        async with self._turn, self._publishing():
            waiting = []
            for address, enabled in wanted.items():
                try:
                    if await self._ask_for_mode(address, enabled=enabled):
                        waiting.append(address)
                except errors.GpudeckError as error:
                    failed[address] = error
            asked = [each for each in wanted if each not in failed]
            if waiting:
                failed |= await self._reset(waiting)
            if asked:
                await self._renew(asked)
            left = [each for each in asked if self._mode(each) is not _mode(wanted[each])]
            return {each: _still_pending(each, _mode(wanted[each])) for each in left} | failed

    async def _ask_for_mode(self, address: str, *, enabled: bool) -> bool:
        """Have the driver change the mode; True where it leaves the reset to others."""
        action = contract.SetPartitioning(enabled=enabled, may_reset=True)
        process = await self._process_for(address)
        await self._call(process, address, action=action, seconds=self._timing.reset)
        return await self._read(address) and self._mode(address) is not _mode(enabled)

    async def _renew(self, addresses: Sequence[str]) -> None:
        """After changes that may have reset cards: what a process has asked of them may be lost."""
        if self._process is not None:
            await self._retire(self._process)
        if await self._ready():
            for address in addresses:
                await self._read(address)

    async def _reset(self, addresses: Sequence[str]) -> dict[str, errors.GpudeckError]:
        """`Vendor.reset`, with no library process of ours that has a card open.

        All of them at once; where that is refused, one after the other tells whose fault it is.
        """
        process = self._process
        if process is not None and not await self._retire(process):
            return {
                each: errors.UnavailableError(
                    f"{each}: the card cannot be reset, for process {process.pid} sits in the "
                    "driver and does not end; reboot the node.",
                    reason="Hung",
                )
                for each in addresses
            }
        failure = await self._reset_together(addresses)
        if failure is None:
            return {}
        if len(addresses) == 1 or failure.reason == RESET_HUNG:
            return dict.fromkeys(addresses, failure)
        each_alone = {each: await self._reset_together([each]) for each in addresses}
        return {each: error for each, error in each_alone.items() if error is not None}

    async def _reset_together(self, addresses: Sequence[str]) -> errors.GpudeckError | None:
        seconds = self._timing.reset * len(addresses)  # One after the other, at the worst.
        try:
            async with asyncio.timeout(seconds):
                await self._vendor.reset(addresses)
        except TimeoutError:
            return errors.UnavailableError(
                f"{', '.join(addresses)}: the reset of the card has not ended for {seconds:g} s; "
                "reboot the node.",
                reason=RESET_HUNG,
            )
        except errors.GpudeckError as error:
            return error
        return None

    async def _retire(self, process: calling.LibraryProcess) -> bool:
        """End the process that is in use; False if it does not end."""
        self._process = None
        ended = await process.kill()
        if not ended:
            self._probing.leave(process, address=None)
        return ended

    def _mode(self, address: str) -> contract.PartitioningMode | None:
        reading = self._records[address].reading
        return reading.mode if reading is not None else None

    async def _process_for(self, address: str) -> calling.LibraryProcess:
        record = self._records.get(address)
        if record is None or address in self._probing.aside or not record.site.served:
            why = record.memory.health.message if record is not None else "It left the bus."
            raise errors.UnavailableError(
                f"{address}: the card cannot be changed now. {why}", reason="CardNotReady"
            )
        if not await self._ready() or self._process is None:
            raise errors.UnavailableError(
                f"{address}: the card cannot be changed now. {self._driver.message}",
                reason="CardNotReady",
            )
        return self._process

    async def _rest(self) -> None:
        readings = [record.reading for record in self._records.values()]
        modes = {reading.mode for reading in readings if reading is not None}
        longest = self._timing.poll
        if modes - {contract.PartitioningMode.NOT_AVAILABLE}:
            longest = min(longest, self._timing.changeable)
        try:
            async with asyncio.timeout(longest):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _pass(self, *, is_woken: bool) -> None:
        sites = None
        # The bus costs more than all readings: a pass that only asks for modes spares it.
        if is_woken or time.monotonic() - self._looked >= self._timing.poll:
            sites = await self._look_at_bus()
        async with self._turn:
            if sites is not None:
                self._know(sites)
            is_ready = await self._ready()
        if not is_ready:
            self._note_silence()
            return
        answers = []
        for address in sorted(self._served() - self._probing.aside):
            async with self._turn:
                if not await self._ready():
                    break
                answers.append(await self._read(address))
        if answers and not any(answers) and self._process is not None:
            # Perhaps it is not the cards but the driver: another process asks it anew.
            self._probing.leave(self._process, address=None)
            self._process = None
        for address in self._probing.step():
            log.info("Card answers again", card=address)
            self._wake.set()
        self._note_silence()

    def _served(self) -> frozenset[str]:
        return frozenset(each for each, record in self._records.items() if record.site.served)

    async def _look_at_bus(self) -> Sequence[contract.Site] | None:
        """The cards on the bus; None when they cannot be told now, and what is known holds."""
        if self._look is None:
            self._look = asyncio.create_task(asyncio.to_thread(self._vendor.sites))
        try:
            async with asyncio.timeout(self._timing.bus):
                sites = await asyncio.shield(self._look)
        except TimeoutError:
            # A read of a dying device may block in the kernel; the next pass waits for the same.
            log.warning("The PCI bus does not answer, keeping what is known")
            return None
        except errors.GpudeckError as error:
            self._look = None
            log.warning("Cannot look at the PCI bus, keeping what is known", why=error.message)
            return None
        self._look = None
        self._looked = time.monotonic()
        return sites

    def _know(self, sites: Sequence[contract.Site]) -> None:
        now, known = _now(), self._records
        self._records = {
            site.address: known[site.address].at(site)
            if site.address in known
            else records.Record(site=site, memory=self._first(site.address, now))
            for site in sites
        }
        self._before = {}
        for address in known.keys() - self._records.keys():
            log.info("Card left the bus", card=address)
            self._probing.forget(address)

    def _first(self, address: str, now: health.Moment) -> health.Memory:
        raised = self._before.get(address)
        return health.start(now) if raised is None else health.resume(raised, now)

    async def _ready(self) -> bool:
        """Have an open library process, or say in the driver's state why there is none."""
        process = self._process
        if process is not None and not process.ended:
            silent = asyncio.get_running_loop().time() - process.heard_at
            if silent < self._timing.events_silent and self._served() <= self._opened_for:
                return True
            # NVML lists the cards once, when it is initialised: new ones need a new process.
            log.info("Replacing the library process", pid=process.pid, silent=round(silent))
            self._probing.leave(process, address=None)
            self._process = None
        elif process is not None:
            self._process = None
            self._crashed(process)
        if self._probing.blocked or asyncio.get_running_loop().time() < self._not_before:
            return False
        return await self._open()

    async def _open(self) -> bool:
        process = await self._program.start(self._take_events, self._wake.set)
        try:
            state = await process.open(deadline_seconds=self._timing.open)
        except asyncio.CancelledError:
            await process.kill()
            raise
        except calling.EndedError as error:
            self._crashed(process)
            if self._crashes >= _CRASHES_BEFORE_ASIDE:
                self._lose_driver(records.driver_crashed(error))
            return False
        except errors.GpudeckError as error:
            state = contract.DriverState(ready=False, reason=error.reason, message=error.message)
            if isinstance(error, calling.HungError):
                state = records.driver_hung(error)
        if not state.ready:
            self._probing.leave(process, address=None)
            self._lose_driver(state)
            return False
        if self._driver != state:
            log.info("Driver is ready", version=state.version, api=state.api_version)
        self._driver = state
        self._process = process
        self._opened_for = self._served()
        self._crashes = 0
        return True

    async def _read(self, address: str) -> bool:
        """Read one card; True if it answered. Events may come in meanwhile."""
        process = self._process
        if process is None:
            return False
        try:
            reading = await process.read(address, deadline_seconds=self._timing.read)
        except calling.HungError as error:
            self._hung(process, address, error)
        except calling.EndedError as error:
            self._ended(process, address, error)
        except errors.GpudeckError as error:
            fault = contract.Fault(reason=error.reason, message=error.message)
            self._records[address] = self._records[address].failed(fault, _now())
        else:
            heeded = self._heeded.reading(reading)
            self._records[address] = self._records[address].read(heeded, _now())
            return True
        return False

    def _hung(
        self, process: calling.LibraryProcess, address: str, error: errors.GpudeckError
    ) -> None:
        self._process = None
        self._probing.leave(process, address=address)
        self._put_aside(address, records.hung(address, error))

    def _ended(
        self, process: calling.LibraryProcess, address: str, error: errors.GpudeckError
    ) -> None:
        """It ended in a call for that card; the next call is made in another process."""
        self._process = None
        log.warning("Library process ended", pid=process.pid, card=address, why=error.message)
        self._wake.set()
        record = self._records[address]
        self._records[address] = record.replace(crashes=record.crashes + 1)
        if record.crashes + 1 >= _CRASHES_BEFORE_ASIDE:
            self._put_aside(address, records.crashed(address, error))

    def _put_aside(self, address: str, fault: contract.Fault) -> None:
        log.warning("Putting card aside", card=address, reason=fault.reason, why=fault.message)
        self._records[address] = self._records[address].replace(crashes=0).failed(fault, _now())
        self._probing.put_aside(address)

    def _crashed(self, process: calling.LibraryProcess) -> None:
        """It ended while it was opened, or idle: the more often in a row, the longer the wait."""
        log.warning("Library process ended", pid=process.pid, entered=process.entered)
        loop = asyncio.get_running_loop()
        # The first time no wait is needed: one crash in a long life is not a loop.
        wait = min(0.25 * 2**self._crashes, self._timing.longest_backoff) if self._crashes else 0.0
        self._crashes += 1
        self._not_before = loop.time() + wait
        loop.call_later(wait, self._wake.set)

    def _lose_driver(self, state: contract.DriverState) -> None:
        if self._driver != state:
            log.warning("Driver is not ready", reason=state.reason, why=state.message)
        self._driver = state
        now = _now()
        self._records = {
            address: record.without_driver(state, now) for address, record in self._records.items()
        }

    def _note_silence(self) -> None:
        now = _now()
        for address, record in self._records.items():
            self._records[address] = record.silent(now)

    def _take_events(self, events: tuple[contract.CardEvent, ...]) -> None:
        now = _now()
        for event in map(self._heeded.event, map(_meant, events)):
            log.info("Driver raised an event", card=event.address, xid=event.xid)
            for address in [event.address] if event.address else list(self._records):
                if address in self._records:
                    self._records[address] = self._records[address].raised(event, now)
        if self._published is not None:  # Else the first pass is still to finish.
            self._publish()
        self._wake.set()

    def _publish(self) -> None:
        if self._remembered is not None:
            now = {
                address: record.memory.raised
                for address, record in self._records.items()
                if record.memory.raised is not None
            }
            self._remembered.keep({**self._before, **now})
        inventory = records.inventory(self._records.values(), self._driver)
        if inventory != self._published:
            _tell(self._published or records.Inventory(), inventory)
            self._published = inventory
            self._publish_to(inventory)


def _tell(before: records.Inventory, after: records.Inventory) -> None:
    """Log the verdicts that have changed."""
    known = {card.site.address: card.health for card in before.cards}
    for card in after.cards:
        now, was = card.health, known.get(card.site.address)
        if was is None or (was.verdict, was.reason) != (now.verdict, now.reason):
            level = log.warning if now.verdict is health.Verdict.UNHEALTHY else log.info
            address, verdict = card.site.address, now.verdict.value
            level("Health", card=address, verdict=verdict, reason=now.reason, why=now.message)


def _meant(event: contract.CardEvent) -> contract.CardEvent:
    """A partition of a card that is not known may be one of any: every device is meant."""
    return event if event.address else msgspec.structs.replace(event, instance="")


def _mode(enabled: bool) -> contract.PartitioningMode:
    modes = contract.PartitioningMode
    return modes.ENABLED if enabled else modes.DISABLED


def _still_pending(address: str, mode: contract.PartitioningMode) -> errors.GpudeckError:
    return errors.UnavailableError(
        f"{address}: the card was reset and still does not show the partitioning mode {mode}; "
        "reboot the node.",
        reason="ModeStillPending",
    )


def _now() -> health.Moment:
    return health.Moment(steady=time.monotonic(), unix=int(time.time()))
