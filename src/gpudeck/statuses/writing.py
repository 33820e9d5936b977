# SPDX-License-Identifier: Apache-2.0
"""Write fields of status into the PhysicalGPU objects of one node.

The node agent makes the objects; one that is not there yet is written as soon as it
appears. Each object is compared first, so only changes are written, and an edit or
deletion by somebody else is put right. `dra.reporting` and `deviceplugin.publishing` say
what is to stand there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gpudeck import logs
from gpudeck.api import conditions, labels, names, resources
from gpudeck.api.meta import ObjectMeta, version_of
from gpudeck.api.v1alpha1 import physicalgpu
from gpudeck.devices.identities import PciAddress
from gpudeck.errors import InvalidError, NotFoundError
from gpudeck.kube import client, queueing, recording, watching
from gpudeck.kube.caching import Cache
from gpudeck.statuses import cards

log = logs.get(__name__)

_PUBLISHERS = (conditions.PUBLISHED, conditions.PARTITIONING_APPLIED)
"""Conditions that whoever publishes the cards says in its own name."""

Report = Callable[[physicalgpu.PhysicalGPU], Awaitable[float | None]]
"""Writes what is to stand in an object; returns seconds after which to look again."""


class Writer:
    """The cards of a node as the API has them; `cache.run` must run beside `run`."""

    def __init__(self, api: client.Client, node_name: str) -> None:
        self._api = api
        self._queue = queueing.Queue("physicalgpus", limit_seconds=30.0)
        self._answers: dict[str, physicalgpu.PhysicalGPU] = {}
        """What our own last writes came to, until the watch has seen as much."""
        self.cache = Cache(
            api,
            resources.PHYSICAL_GPU,
            physicalgpu.PhysicalGPU,
            label_selector=f"{labels.NODE}={names.node_label(node_name)}",
        )

    async def run(self, report: Report) -> None:
        """Have each card reported, once at first and whenever it or what is said changes."""
        await self.cache.synced()
        self.cache.subscribe(self._changed)
        self.wake()

        async def look(name: str) -> float | None:
            gpu = self._current(name)
            return None if gpu is None else await report(gpu)

        await self._queue.work(look, workers=4)

    def wake(self) -> None:
        """Look at all cards again."""
        for name in self.cache.objects:
            self._queue.add(name)

    async def write(
        self, gpu: physicalgpu.PhysicalGPU, wanted: physicalgpu.PhysicalGPUStatus, manager: str
    ) -> physicalgpu.PhysicalGPU:
        """Write if need be; return the object as it is then."""
        publishes = manager == labels.MANAGER_PUBLISHER
        if cards.same(wanted, gpu.status, _PUBLISHERS if publishes else ()):
            return gpu
        old = gpu.status.conditions if gpu.status else None
        now = recording.timestamp()
        wanted.conditions = conditions.merge(old, wanted.conditions or (), now) or None
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

    def _changed(self, change: watching.Change[physicalgpu.PhysicalGPU]) -> None:
        if change.new is None:
            self._answers.pop(change.key, None)
        else:
            self._queue.add(change.key)

    def _current(self, name: str) -> physicalgpu.PhysicalGPU | None:
        cached, answer = self.cache.objects.get(name), self._answers.get(name)
        if cached is None or answer is None:
            return cached
        if version_of(answer.metadata) > version_of(cached.metadata):
            return answer
        del self._answers[name]
        return cached


def address_of(gpu: physicalgpu.PhysicalGPU) -> PciAddress | None:
    """Where an object's card is; None while the agent has not said it."""
    facts = gpu.status.pci_info if gpu.status else None
    try:
        return PciAddress.parse(facts.address if facts else "")
    except InvalidError:
        return None
