# SPDX-License-Identifier: Apache-2.0
"""The contract over the file of simulated cards; see the package."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from gpudeck import errors
from gpudeck.cdi import spec
from gpudeck.vendors import contract
from gpudeck.vendors.simulated import machine, partitioning

_LOOK_SECONDS = 0.01
_MAJOR = 195


class SimulatedVendor:
    """The serving side."""

    name = "simulated"

    def __init__(self, settings: contract.VendorSettings) -> None:
        self._bench = machine.Bench(Path(settings.host_root))

    def sites(self) -> Sequence[contract.Site]:
        """`Vendor.sites`."""
        return sorted(
            (card.site for card in self._bench.read().cards), key=lambda site: site.address
        )

    def traces(self) -> tuple[str, ...]:
        """`Vendor.traces`."""
        cards = self._bench.read().cards
        return tuple(part.uuid for card in cards for part in card.reading.partitions)

    def pending(self, use: contract.Use) -> str:
        """`Vendor.pending`."""
        return ""

    def inject(
        self, uses: Sequence[contract.Use], *, driver_version: str, hook_path: str
    ) -> contract.Injection:
        """`Vendor.inject`."""
        for use in uses:
            is_whole = use.partition is None and not use.admin_access
            if is_whole and use.card.mode is contract.PartitioningMode.ENABLED:
                text = f"{use.card.address} is partitioned and cannot be used whole."
                raise errors.UnsupportedError(text, reason="CardPartitioned")
        hooks: tuple[spec.Hook, ...] = ()
        if hook_path:
            hooks = (spec.Hook(hook_name="createContainer", path=hook_path, args=("hook",)),)
        return contract.Injection(
            shared=spec.ContainerEdits(env=(f"SIMULATED_DRIVER={driver_version}",), hooks=hooks),
            uses=tuple(contract.UseEdits(edits=_edits(use)) for use in uses),
        )

    async def reset(self, addresses: Sequence[str]) -> None:
        """`Vendor.reset`."""
        while any(card.reset_hangs for card in self._bench.read().cards):  # noqa: ASYNC110 - a file.
            await asyncio.sleep(_LOOK_SECONDS)
        with self._bench.locked():
            cards = self._bench.read().cards
            for index, card in enumerate(cards):
                if card.site.address in addresses:
                    self._bench.put_card(index, partitioning.reset(card))


class SimulatedLibrary:
    """The library side."""

    def __init__(self, settings: contract.VendorSettings, progress: contract.Progress) -> None:
        self._bench = machine.Bench(Path(settings.host_root))
        self._progress = progress
        self._heard = 0
        self._read: frozenset[str] = frozenset()

    def open(self) -> contract.DriverState:
        """`Library.open`."""
        self._progress("simulatedOpen")
        host = self._bench.read()
        if host.opening_crashes:
            os._exit(1)
        while host.opening_hangs:
            time.sleep(_LOOK_SECONDS)
            host = self._bench.read()
        self._heard = len(host.events)
        return host.driver

    def read(self, address: str) -> contract.CardReading:
        """`Library.read`."""
        self._progress("simulatedRead")
        card = self._answering(address)
        self._read |= {address}
        return card.reading

    def act(self, address: str, action: contract.Action) -> contract.Partition | None:
        """`Library.act`."""
        self._progress("simulatedAct")
        try:
            self._answering(address)
        except errors.GpudeckError as error:
            leaves = isinstance(action, contract.RemovePartition | contract.LeaveMps)
            if error.reason in contract.GONE and leaves:
                return None
            raise
        with self._bench.locked():
            cards = self._bench.read().cards
            index = [card.site.address for card in cards].index(address)
            card, made = partitioning.act(cards[index], action)
            self._bench.put_card(index, card)
        return made

    def wait(self, seconds: float) -> Sequence[contract.CardEvent]:
        """`Library.wait`."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            events = self._bench.read().events[self._heard :]
            self._heard += len(events)
            heard = {None, *self._read}
            known = tuple(each.event for each in events if each.event.address in heard)
            if known:
                return known
            time.sleep(_LOOK_SECONDS)
        return ()

    def _answering(self, address: str) -> machine.Card:
        """The card, if it is not made to fail."""
        while (card := self._card(address)).hangs:
            time.sleep(_LOOK_SECONDS)
        if card.crashes:
            os._exit(1)
        if card.error is not None:
            raise errors.UnavailableError(card.error.message, reason=card.error.reason)
        return card

    def _card(self, address: str) -> machine.Card:
        for card in self._bench.read().cards:
            if card.site.address == address:
                return card
        raise errors.NotFoundError(f"{address} is not in the driver.", reason="CardNotInDriver")


def _edits(use: contract.Use) -> spec.ContainerEdits:
    number = use.card.minor or 0
    nodes = [_node(f"/dev/simulated{number}", number)]
    if use.partition is not None:
        part = f"/dev/simulated{number}p{use.partition.start}"
        nodes.append(_node(part, 100 + 10 * number + use.partition.start))
    return spec.ContainerEdits(device_nodes=tuple(nodes))


def _node(path: str, minor: int) -> spec.DeviceNode:
    return spec.DeviceNode(
        path=path, host_path=path, type="c", major=_MAJOR, minor=minor, permissions="rw"
    )
