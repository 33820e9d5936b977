# SPDX-License-Identifier: Apache-2.0
"""Say in the PhysicalGPU objects of this node what the adapter and the plugin know of the cards.

Two field managers write through this process: the adapter's fields (it has no access to
the API itself) and the plugin's own conditions. What is to stand there is `status` and
`statuses.cards`, how it comes there `statuses.writing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import labels, names
from gpudeck.api.meta import Condition
from gpudeck.api.v1alpha1 import physicalgpu
from gpudeck.dra import adapters, publishing, status
from gpudeck.kube import client
from gpudeck.kube.caching import Cache
from gpudeck.statuses import cards, writing

AWAY_SECONDS = 60.0
"""How long an adapter may be away, e.g. for an update, before its verdicts count no more."""


class Reporter:
    """Keeps the status of this node's cards, as far as the adapter and the plugin own it."""

    def __init__(
        self,
        api: client.Client,
        adapter: adapters.Adapter,
        publisher: publishing.Publisher,
        node_name: str,
    ) -> None:
        self.applied: Callable[[], Mapping[str, Condition]] = dict
        """The conditions PartitioningApplied by the cards' DRA device names; the switcher's."""
        self._adapter = adapter
        self._publisher = publisher
        self._pool = names.pool_name(node_name)
        self._away_since: float | None = None
        self._writer = writing.Writer(api, node_name)

    @property
    def cache(self) -> Cache[physicalgpu.PhysicalGPU]:
        """The PhysicalGPUs of this node."""
        return self._writer.cache

    async def run(self) -> None:
        """Report for ever; `cache.run` must run beside it."""
        await self.cache.synced()
        self._adapter.subscribe(self._adapter_changed)
        self._publisher.subscribe(self.wake)
        self._adapter_changed()
        await self._writer.run(self._report)

    def _adapter_changed(self) -> None:
        if self._adapter.is_connected:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = asyncio.get_running_loop().time()
        self.wake()

    def wake(self) -> None:
        """Look at all cards again."""
        self._writer.wake()

    def _patience(self) -> float | None:
        """Seconds until an adapter that is away counts as gone; None while it is there."""
        if self._away_since is None:
            return None
        return self._away_since + AWAY_SECONDS - asyncio.get_running_loop().time()

    async def _report(self, gpu: physicalgpu.PhysicalGPU) -> float | None:
        patience = self._patience()
        if patience is not None and patience <= 0:
            await self._writer.write(gpu, cards.away_status(gpu.status), labels.MANAGER_ADAPTER)
            return None
        if self._adapter.cards is not None:
            await self._report_card(gpu, self._adapter.cards.get(_device_of(gpu)))
        return patience

    async def _report_card(
        self, gpu: physicalgpu.PhysicalGPU, card: adapter_pb2.Card | None
    ) -> None:
        vendor = (gpu.metadata.labels or {}).get(labels.VENDOR)
        if card is None:
            if vendor != self._adapter.vendor or not _device_of(gpu):
                return  # A card of another maker's adapter, or one that the agent has yet to read.
            wanted = cards.absent_status(gpu.status)
        else:
            wanted = cards.adapter_status(card, self._adapter.vendor)
        gpu = await self._writer.write(gpu, wanted, labels.MANAGER_ADAPTER)
        published = self._publisher.published
        if published is not None:
            wanted = status.published_status(
                card,
                published,
                self._pool,
                rejection=self._publisher.rejection,
                parts_withheld=_device_of(gpu) in self._publisher.withheld,
                is_withdrawn=self._publisher.is_withdrawn,
                applied=self.applied().get(_device_of(gpu)),
            )
            await self._writer.write(gpu, wanted, labels.MANAGER_PUBLISHER)


def _device_of(gpu: physicalgpu.PhysicalGPU) -> str:
    """The DRA device name of an object's card; empty while the agent has not said its address."""
    address = writing.address_of(gpu)
    return "" if address is None else names.gpu_device_name(address)
