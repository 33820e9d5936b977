# SPDX-License-Identifier: Apache-2.0
"""Keeps the labels of the node: the task that writes them when cards or config have changed.

What is to be written is `labelling`'s, whether it is time for it `holding`'s, and where it goes
the sink's. A write that fails is repeated, less and less often.
"""

from __future__ import annotations

import asyncio
import enum
import math
import time

from gpudeck import errors, logs
from gpudeck.api import labels as names
from gpudeck.gfd import holding, labelling, metrics, options, publishing, table, virtual
from gpudeck.gfd.settings import Settings
from gpudeck.host.root import Root
from gpudeck.pluginconfig import selecting
from gpudeck.vendors import records

_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.5, 30.0
_HANGING_SECONDS = 60.0
_log = logs.get(__name__)


class Followed(enum.Enum):
    """What decides labels and is followed by the API server."""

    CONFIG = enum.auto()
    MODE = enum.auto()


def followed(settings: Settings, chosen: options.Options) -> frozenset[Followed]:
    """What this process follows; nothing where it needs no API server for its labels."""
    if settings.config_maps:
        return frozenset(Followed)
    return frozenset({Followed.MODE}) if chosen.use_node_feature_api else frozenset()


class Labels:
    """What is to be written, and the task that writes it."""

    def __init__(self, settings: Settings, sink: publishing.Sink, chosen: options.Options) -> None:
        self._settings = settings
        self._sink = sink
        self._options = chosen
        self._unknown = set(followed(settings, chosen))
        """What is followed and has told nothing yet; no label is written before."""
        self._by_claims = False
        self._root = Root(settings.host_root, on_node=settings.host_root_on_node)
        self._inventory: records.Inventory | None = None
        self._absence = holding.Absence()
        self._changed = asyncio.Event()
        self._written: dict[str, str] = {}
        """Without the timestamp."""
        self._sent: dict[str, str] | None = None
        """What the sink took last, in this interval."""
        self._since = 0
        self._told: tuple[str, ...] = ()
        self._retry_seconds = _FIRST_RETRY_SECONDS
        self._busy_since: float | None = time.monotonic()
        """Since when cards are awaited or a pass goes on."""

    def hanging(self) -> str:
        """Say what does not go on; "" while all does, also while writes fail and are repeated."""
        since = self._busy_since
        if since is None or time.monotonic() - since < _HANGING_SECONDS:
            return ""
        what = (
            "The cards have not been read" if self._inventory is None else "A write has not ended"
        )
        return f"{what} for {time.monotonic() - since:.0f} s."

    def take(self, inventory: records.Inventory) -> None:
        """The cards are so now."""
        self._inventory = inventory
        self._absence = self._absence.after(inventory, time.monotonic())
        self._changed.set()

    def choose(self, selected: selecting.Selected) -> None:
        """The config is this one now."""
        metrics.config_valid.set(selected.problem is None)
        before, self._options = self._options, options.merged(self._settings, selected.config)
        is_elsewhere = (before.use_node_feature_api, before.output_file) != (
            self._options.use_node_feature_api,
            self._options.output_file,
        )
        if is_elsewhere and selected.origin is selecting.Origin.FILE:
            _log.warning("Where the labels go is changed by a restart of the process only")
        self._know(Followed.CONFIG)

    def switch(self, mode: str | None) -> None:
        """The node's cards are handed out in this mode now; None: it is being changed.

        What held before it holds until the change is over, also where that is not known.
        """
        if mode is None:
            _log.info("Labels stay in the mode that they are in while it is changed")
            return
        if (mode == names.MODE_DRA) != self._by_claims:
            self._by_claims = not self._by_claims
            _log.info("Labels follow the mode", mode=mode)
        self._know(Followed.MODE)

    def renew(self) -> None:
        """Write also what was written already."""
        self._sent = None
        self._changed.set()

    def _know(self, known: Followed) -> None:
        self._unknown.discard(known)
        self._changed.set()

    async def run(self) -> None:
        """Write at each change and after each interval, for ever."""
        await self._sink.begin()
        while True:
            self._changed.clear()
            if self._inventory is not None:
                self._busy_since = time.monotonic()
            wait = await self._pass()
            if self._inventory is not None:
                self._busy_since = None
            try:
                async with asyncio.timeout(None if math.isinf(wait) else wait):
                    await self._changed.wait()
            except TimeoutError:
                self._sent = None  # Write also what is there already, if nobody has changed it.

    async def once(self) -> None:
        """Write the first time that the cards are known. Raises what makes that impossible."""
        while self._inventory is None or self._unknown or holding.is_partial(self._inventory):
            self._changed.clear()
            await self._changed.wait()
        why = self._absence.held(self._inventory, time.monotonic(), math.inf).why
        if why and self._options.fail_on_init_error:
            raise errors.UnavailableError(why, reason=self._inventory.driver.reason)
        await self._write(self._inventory)

    async def _pass(self) -> float:
        """Return the seconds until the next pass, if nothing happens before."""
        longest = self._options.sleep_seconds
        if self._inventory is None or self._unknown:
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
            self._sent = None
            metrics.writes.labels("failed").inc()
            _log.warning("Cannot write labels", reason=error.reason, error=error)
            wait = self._retry_seconds
            self._retry_seconds = min(2 * wait, _LONGEST_RETRY_SECONDS)
            return min(longest, wait)
        self._retry_seconds = _FIRST_RETRY_SECONDS
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
            if wanted == self._sent:
                return  # What has changed of the cards shows in no label.
            changed = await self._sink.write(wanted)
            self._sent = wanted
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
        virtuals = virtual.read(self._root, addresses)
        return labelling.Node(inventory, machine, virtuals, by_claims=self._by_claims)

    def _tell(self, warnings: tuple[str, ...]) -> None:
        for warning in warnings:
            if warning not in self._told:
                _log.warning("About the labels", warning=warning)
        self._told = warnings
