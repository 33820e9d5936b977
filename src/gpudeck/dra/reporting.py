# SPDX-License-Identifier: Apache-2.0
"""Write what `status` says into the PhysicalGPU objects of this node.

The node agent makes the objects; one that is not there yet is written as soon as it
appears. Each object is compared first, so only changes are written, and an edit or
deletion by somebody else is put right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from gpudeck import logs
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import conditions, labels, names, resources
from gpudeck.api.meta import Condition, ObjectMeta
from gpudeck.api.v1alpha1 import physicalgpu
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import adapters, publishing, status
from gpudeck.errors import InvalidError, NotFoundError
from gpudeck.kube import client, queueing, recording, watching
from gpudeck.kube.caching import Cache

log = logs.get(__name__)

AWAY_SECONDS = 60.0
"""How long an adapter may be away, e.g. for an update, before its verdicts count no more."""


_OWNED = (conditions.PUBLISHED, conditions.PARTITIONING_APPLIED)
"""Conditions that this process says in its own name."""


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
        self._api = api
        self._adapter = adapter
        self._publisher = publisher
        self._pool = names.pool_name(node_name)
        self._queue = queueing.Queue("physicalgpus", limit_seconds=30.0)
        self._away_since: float | None = None
        self._answers: dict[str, physicalgpu.PhysicalGPU] = {}
        """What our own last writes came to, until the watch has seen as much."""
        self.cache = Cache(
            api,
            resources.PHYSICAL_GPU,
            physicalgpu.PhysicalGPU,
            label_selector=f"{labels.NODE}={names.node_label(node_name)}",
        )

    async def run(self) -> None:
        """Report for ever; `cache.run` must run beside it."""
        await self.cache.synced()
        self.cache.subscribe(self._changed)
        self._adapter.subscribe(self._adapter_changed)
        self._publisher.subscribe(self.wake)
        self._adapter_changed()
        await self._queue.work(self._report, workers=4)

    def _changed(self, change: watching.Change[physicalgpu.PhysicalGPU]) -> None:
        if change.new is None:
            self._answers.pop(change.key, None)
        else:
            self._queue.add(change.key)

    def _current(self, name: str) -> physicalgpu.PhysicalGPU | None:
        cached, answer = self.cache.objects.get(name), self._answers.get(name)
        if cached is None or answer is None:
            return cached
        if publishing.version_of(answer.metadata) > publishing.version_of(cached.metadata):
            return answer
        del self._answers[name]
        return cached

    def _adapter_changed(self) -> None:
        if self._adapter.is_connected:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = asyncio.get_running_loop().time()
        self.wake()

    def wake(self) -> None:
        """Look at all cards again."""
        for name in self.cache.objects:
            self._queue.add(name)

    def _patience(self) -> float | None:
        """Seconds until an adapter that is away counts as gone; None while it is there."""
        if self._away_since is None:
            return None
        return self._away_since + AWAY_SECONDS - asyncio.get_running_loop().time()

    async def _report(self, name: str) -> float | None:
        gpu = self._current(name)
        if gpu is None:
            return None
        patience = self._patience()
        if patience is not None and patience <= 0:
            await self._write(gpu, status.away_status(gpu.status), labels.MANAGER_ADAPTER)
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
            wanted = status.absent_status(gpu.status)
        else:
            wanted = status.adapter_status(card, self._adapter.vendor)
        gpu = await self._write(gpu, wanted, labels.MANAGER_ADAPTER)
        published = self._publisher.published
        if published is not None:
            wanted = status.published_status(
                card,
                published,
                self._pool,
                rejection=self._publisher.rejection,
                parts_withheld=_device_of(gpu) in self._publisher.withheld,
                applied=self.applied().get(_device_of(gpu)),
            )
            await self._write(gpu, wanted, labels.MANAGER_DRA_PLUGIN)

    async def _write(
        self,
        gpu: physicalgpu.PhysicalGPU,
        wanted: physicalgpu.PhysicalGPUStatus,
        manager: str,
    ) -> physicalgpu.PhysicalGPU:
        """Write if need be; return the object as it is then."""
        owned = _OWNED if manager == labels.MANAGER_DRA_PLUGIN else ()
        if status.same(wanted, gpu.status, owned):
            return gpu
        old = gpu.status.conditions if gpu.status else None
        now = recording.timestamp()
        wanted.conditions = conditions.merge(old, wanted.conditions or (), now)
        body = physicalgpu.PhysicalGPU(metadata=ObjectMeta(name=gpu.metadata.name), status=wanted)
        try:
            answer = await self._api.apply(
                resources.PHYSICAL_GPU,
                body,
                physicalgpu.PhysicalGPU,
                manager=manager,
                subresource="status",
            )
        except NotFoundError:
            log.debug("A card's object was deleted meanwhile", name=gpu.metadata.name)
            return gpu
        self._answers[gpu.metadata.name] = answer
        return answer


def _device_of(gpu: physicalgpu.PhysicalGPU) -> str:
    """The DRA device name of an object's card; empty while the agent has not said its address."""
    facts = gpu.status.pci_info if gpu.status else None
    try:
        return names.gpu_device_name(PciAddress.parse(facts.address if facts else ""))
    except InvalidError:
        return ""
