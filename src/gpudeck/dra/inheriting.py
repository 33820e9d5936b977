# SPDX-License-Identifier: Apache-2.0
"""Take a node over from the device plugin: what that made there goes before cards are offered.

Run by `main` once no other plugin of this driver writes. The device plugin's state file shows
that it had the node before; it goes last, so that whoever is killed on the way, the next start
goes on. Partitions go if the MIG manager's config has made them, which makes them anew when the
mode returns: in DRA mode a partition that no claim made is another's, and its place is offered
to nobody. What somebody has made by other means stays, and so does what claims hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from gpudeck import logs
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import labels
from gpudeck.api.core import Node
from gpudeck.cdi import plugins
from gpudeck.dra import adapters, ledger, offering
from gpudeck.dra.settings import Settings
from gpudeck.errors import GpudeckError
from gpudeck.kube.caching import Cache

log = logs.get(__name__)

AGAIN_SECONDS = 5.0
"""To the next attempt at what could not be removed."""


class Inheritance:
    """What a device plugin has left on this node; `node` must be synced."""

    def __init__(
        self,
        settings: Settings,
        adapter: adapters.Adapter,
        book: ledger.Ledger,
        node: Cache[Node],
    ) -> None:
        self._settings = settings
        self._adapter = adapter
        self._ledger = book
        self._node = node
        self._told = ""

    async def run(self) -> None:
        """Remove what the first attempt has left, however long that takes."""
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            if await self.take():
                return

    async def take(self) -> bool:
        """Make one attempt; say whether nothing is left."""
        cdi_root, data_dir = self._settings.cdi_root, self._settings.data_dir
        try:
            if not await asyncio.to_thread(plugins.is_left, data_dir):
                return True
            if not await self._clear():
                return False
            await asyncio.to_thread(plugins.remove, cdi_root, data_dir)
        except GpudeckError as error:
            self._tell(error.message)
            return False
        return True

    def _tell(self, why: str) -> None:
        """Say once why something is still there."""
        if why != self._told:
            self._told = why
            log.warning("What a device plugin left cannot be removed yet", why=why)

    async def _clear(self) -> bool:
        """Have partitions removed; False if one is still there, or cannot be seen."""
        node = self._node.objects.get(self._settings.node_name)
        if node is None:
            return False
        if labels.MIG_CONFIG not in (node.metadata.labels or {}):
            return True
        await self._adapter.reach()
        # Under the lock of Prepare, so that no claim comes by a partition meanwhile.
        async with self._ledger.opened():
            cards = list((self._adapter.cards or {}).values())
            held = self._ledger.held_devices()
            devices = [each for card in cards for each in removals(card, held)]
            if devices:
                claim = adapter_pb2.ClaimRequest(
                    claim=adapter_pb2.ClaimReference(uid=plugins.VENDOR), devices=devices
                )
                answer = await self._adapter.unprepare(adapter_pb2.UnprepareRequest(claims=[claim]))
                for each in answer.claims:
                    if each.HasField("error"):
                        self._tell(each.error.message)
                        return False
                log.info("Removed the partitions of a config", count=len(devices))
        return all(card.driver.ready for card in cards)


def removals(card: adapter_pb2.Card, held: Collection[str]) -> list[adapter_pb2.DeviceRequest]:
    """The requests to remove the partitions of a card that no claim holds. Pure."""
    return [
        adapter_pb2.DeviceRequest(
            name=f"{each.profile}-{each.start}",
            pci_address=card.pci_address,
            partition=adapter_pb2.PartitionRequest(
                profile=each.profile,
                profile_id=each.profile_id,
                placement=adapter_pb2.Placement(start=each.start, size=each.size),
            ),
        )
        for each in offering.foreign(card, held)
        if each.HasField("profile_id")
    ]
