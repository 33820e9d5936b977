# SPDX-License-Identifier: Apache-2.0
"""Write what `status` says into the PhysicalGPU objects of this node.

The node agent makes the objects; one that is not there yet is written as soon as it
appears. Each object is compared first, so only changes are written, and an edit or
deletion by somebody else is put right.
"""

from __future__ import annotations

from gpudeck import logs
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import conditions, labels, names, resources
from gpudeck.api.meta import ObjectMeta
from gpudeck.api.v1alpha1 import physicalgpu
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import adapters, publishing, status
from gpudeck.errors import InvalidError, NotFoundError
from gpudeck.kube import client, queueing, recording, watching
from gpudeck.kube.caching import Cache

log = logs.get(__name__)


class Reporter:
    """Keeps the status of this node's cards, as far as the adapter and the plugin own it."""

    def __init__(
        self,
        api: client.Client,
        adapter: adapters.Adapter,
        publisher: publishing.Publisher,
        node_name: str,
    ) -> None:
        self._api = api
        self._adapter = adapter
        self._publisher = publisher
        self._pool = names.pool_name(node_name)
        self._queue = queueing.Queue("physicalgpus", limit_seconds=30.0)
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
        self._adapter.subscribe(self._all)
        self._publisher.subscribe(self._all)
        self._all()
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

    def _all(self) -> None:
        for name in self.cache.objects:
            self._queue.add(name)

    async def _report(self, name: str) -> None:
        gpu = self._current(name)
        if gpu is None or self._adapter.cards is None:
            return
        device = _device_of(gpu)
        card = self._adapter.cards.get(device)
        vendor = (gpu.metadata.labels or {}).get(labels.VENDOR)
        if device == "" or (card is None and vendor != self._adapter.vendor):
            return  # A card of another maker's adapter.
        gpu = await self._write(gpu, self._of_adapter(gpu, card), labels.MANAGER_ADAPTER)
        published = self._publisher.published
        if published is not None:
            wanted = status.published_status(card, published, self._pool)
            await self._write(gpu, wanted, labels.MANAGER_DRA_PLUGIN)

    def _of_adapter(
        self, gpu: physicalgpu.PhysicalGPU, card: adapter_pb2.Card | None
    ) -> physicalgpu.PhysicalGPUStatus:
        if card is None:
            return status.absent_status(gpu.status)
        return status.adapter_status(card, self._adapter.vendor)

    async def _write(
        self,
        gpu: physicalgpu.PhysicalGPU,
        wanted: physicalgpu.PhysicalGPUStatus,
        manager: str,
    ) -> physicalgpu.PhysicalGPU:
        """Write if need be; return the object as it is then."""
        if status.same(wanted, gpu.status):
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
