# SPDX-License-Identifier: Apache-2.0
"""The process gfd: watches the cards by a library process, and keeps the node's labels.

The process keeps no state. It may be killed at any instruction: what it has written stays,
and the next one writes what holds then.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from gpudeck import errors, logs
from gpudeck.gfd import (
    holding,
    labelling,
    metrics,
    options,
    publishing,
    table,
    virtual,
    watching,
)
from gpudeck.gfd.settings import Settings
from gpudeck.host.root import Root
from gpudeck.pluginconfig import reading
from gpudeck.vendors import calling, contract, records, registry, supervisor

_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.5, 30.0
_SHORTEST_PAUSE_SECONDS = 0.5
_log = logs.get(__name__)


class Labels:
    """What is to be written, and the task that writes it."""

    def __init__(self, settings: Settings, sink: publishing.Sink, chosen: options.Options) -> None:
        self._settings = settings
        self._sink = sink
        self._options = chosen
        self._root = Root(settings.host_root, on_node=settings.host_root_on_node)
        self._inventory: records.Inventory | None = None
        self._absence = holding.Absence()
        self._changed = asyncio.Event()
        self._written: dict[str, str] = {}
        """Without the timestamp."""
        self._since = 0
        self._told: tuple[str, ...] = ()
        self._failures = 0
        """Writes in a row that failed."""

    def take(self, inventory: records.Inventory) -> None:
        """The cards are so now."""
        self._inventory = inventory
        self._absence = self._absence.after(inventory, time.monotonic())
        self._changed.set()

    def longest_unread(self) -> float:
        """For how many seconds the cards may go unread."""
        readings = [card.reading for card in self._inventory.cards] if self._inventory else []
        modes = {reading.mode for reading in readings if reading is not None}
        is_changeable = modes - {contract.PartitioningMode.NOT_AVAILABLE}
        return self._settings.mig_seconds if is_changeable else math.inf

    def choose(self, chosen: options.Options) -> None:
        """The config file has changed."""
        before, self._options = self._options, chosen
        if (before.use_node_feature_api, before.output_file) != (
            chosen.use_node_feature_api,
            chosen.output_file,
        ):
            _log.warning("Where the labels go is changed by a restart of the process only")
        self._changed.set()

    async def run(self) -> None:
        """Write at each change and after each interval, for ever."""
        while True:
            self._changed.clear()
            wait = await self._pass()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if math.isinf(wait) else wait):
                    await self._changed.wait()

    async def once(self) -> None:
        """Write the first time that the cards are known. Raises what makes that impossible."""
        while self._inventory is None:
            self._changed.clear()
            await self._changed.wait()
        why = self._absence.held(self._inventory, time.monotonic(), math.inf).why
        if why and self._options.fail_on_init_error:
            raise errors.UnavailableError(why, reason=self._inventory.driver.reason)
        await self._write(self._inventory)

    async def _pass(self) -> float:
        """Return the seconds until the next pass, if nothing happens before."""
        longest = self._options.sleep_seconds
        if self._inventory is None:
            return longest
        now = time.monotonic()
        held = self._absence.held(self._inventory, now, self._settings.hold_seconds)
        metrics.held.set(bool(held.why))
        if held.why:
            self._tell((f"Labels stay as they are: {held.why}",))
            return min(longest, held.seconds)
        try:
            await self._write(self._inventory)
        except errors.GpudeckError as error:
            metrics.writes.labels("failed").inc()
            _log.warning("Cannot write labels", reason=error.reason, error=error)
            wait = min(_FIRST_RETRY_SECONDS * 2**self._failures, _LONGEST_RETRY_SECONDS)
            self._failures += 1
            return min(longest, wait)
        self._failures = 0
        return longest

    async def _write(self, inventory: records.Inventory) -> None:
        with metrics.pass_seconds.time():
            node = await asyncio.to_thread(self._node, inventory)
            plan = labelling.plan(node, self._options)
            self._tell(plan.warnings)
            if plan.labels != self._written or not self._since:
                self._written, self._since = plan.labels, int(time.time())
            wanted = {table.PREFIX + name: value for name, value in plan.labels.items()}
            if self._options.timestamp:
                wanted[table.PREFIX + table.TIMESTAMP] = str(self._since)
            changed = await self._sink.write(wanted)
        metrics.labels.set(len(wanted))
        if changed:
            metrics.writes.labels("done").inc()
            _log.debug("Wrote labels", labels=len(wanted))

    def _node(self, inventory: records.Inventory) -> labelling.Node:
        try:
            machine = self._root.read_text(self._options.machine_type_file, limit=4096)
        except errors.GpudeckError:
            machine = ""
        addresses = [card.site.address for card in inventory.cards]
        return labelling.Node(inventory, machine, virtual.read(self._root, addresses))

    def _tell(self, warnings: tuple[str, ...]) -> None:
        for warning in warnings:
            if warning not in self._told:
                _log.warning("About the labels", warning=warning)
        self._told = warnings


class Config:
    """The config file: read at the start, and again when it is another."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files = Root()
        self._stamp = self._look()

    def read(self) -> options.Options:
        """Read it now. Raises InvalidError, or NotFoundError where it is named and not there."""
        metrics.config_valid.set(0)
        path = self._settings.config_file
        config = reading.parse(self._files.read_text(path) if path else "")
        chosen = options.merged(self._settings, config)
        metrics.config_valid.set(1)
        return chosen

    async def watch(self, labels: Labels) -> None:
        """Tell of each new content; a wrong one keeps the last good one in force."""
        while True:
            await asyncio.sleep(self._settings.look_seconds)
            stamp = self._look()
            if stamp == self._stamp:
                continue
            self._stamp = stamp
            try:
                chosen = self.read()
            except errors.GpudeckError as error:
                _log.warning("The config file is not valid, the last good one stays", error=error)
                continue
            _log.info("Using the new config file")
            labels.choose(chosen)

    def _look(self) -> tuple[int, int, int] | None:
        path = self._settings.config_file
        return self._files.stamp(path) if path else None


async def run(settings: Settings) -> None:
    """Run until cancelled, or once. Raises GpudeckError for settings that cannot work."""
    config = Config(settings)
    chosen = config.read()
    root = Root(settings.host_root, on_node=settings.host_root_on_node)
    async with _outside(settings, chosen, root) as (sink, serve):
        labels = Labels(settings, sink, chosen)
        cards = _supervisor(settings, labels)
        if chosen.oneshot:
            await _once(cards, labels)
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(cards.run(), name="cards")
                group.create_task(labels.run(), name="labels")
                group.create_task(config.watch(labels), name="config")
                group.create_task(
                    watching.watch(
                        root,
                        cards.again,
                        seconds=settings.look_seconds,
                        longest=labels.longest_unread,
                    ),
                    name="looking",
                )
                group.create_task(serve(), name="serving")
        finally:
            await sink.close()


@contextlib.asynccontextmanager
async def _outside(
    settings: Settings, chosen: options.Options, root: Root
) -> AsyncIterator[tuple[publishing.Sink, Callable[[], Coroutine[Any, Any, object]]]]:
    """Where the labels go, and what serves probes and metrics."""
    # The API server's client is a third of the process: a node that needs none does without.
    if not chosen.use_node_feature_api and not settings.metrics_port and not settings.health_port:
        yield publishing.File(root, chosen.output_file), asyncio.Event().wait
        return
    from gpudeck.gfd import serving  # noqa: PLC0415

    async with serving.connected(settings) as connected:
        sink: publishing.Sink = publishing.File(root, chosen.output_file)
        if chosen.use_node_feature_api:
            sink = connected.sink()
        yield sink, connected.serve


async def _once(cards: supervisor.Supervisor, labels: Labels) -> None:
    async with asyncio.TaskGroup() as group:
        watching_cards = group.create_task(cards.run(), name="cards")
        await labels.once()
        watching_cards.cancel()


def _supervisor(settings: Settings, labels: Labels) -> supervisor.Supervisor:
    places = contract.VendorSettings(
        host_root=str(settings.host_root), host_root_on_node=settings.host_root_on_node
    )
    program = calling.Program(vendor=settings.vendor, settings=places, log_level=settings.log_level)
    timing = supervisor.Timing(poll=settings.poll_seconds, shortest_pause=_SHORTEST_PAUSE_SECONDS)
    vendor = registry.load(settings.vendor).vendor(places)
    return supervisor.Supervisor(vendor, program, labels.take, timing=timing)
