# SPDX-License-Identifier: Apache-2.0
"""Make the GPUClasses of `shipped` and delete those that are no longer wanted.

Called by the queue of the classes. Nothing is ever written over: a class is created, or it is
deleted as it was read. Killed in between, the next pass goes on.
"""

from __future__ import annotations

from gpudeck import errors, logs
from gpudeck.api.resources import GPU_CLASS
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller import metrics
from gpudeck.controller.gpuclass import shipped, tally
from gpudeck.controller.physicalgpu import holdings
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client

_log = logs.get(__name__)


class Shipping:
    """Keeps the classes of the profiles that the cluster's cards have."""

    def __init__(
        self,
        client: Client,
        classes: Cache[GPUClass],
        cards: tally.Tally,
        held: holdings.Holdings,
        *,
        choice: str,
    ) -> None:
        self._client = client
        self._classes = classes
        self._cards = cards
        self._held = held
        self._choice = choice

    async def reconcile(self) -> None:
        """Bring about what the plan says."""
        plan = shipped.plan(
            self._cards.profiles(shipped.NVIDIA),
            self._held.profiles,
            self._classes.objects,
            choice=self._choice,
        )
        for gpu_class in plan.create:
            await self._create(gpu_class)
        for gpu_class in plan.delete:
            await self._delete(gpu_class)

    async def _create(self, gpu_class: GPUClass) -> None:
        try:
            await self._client.create(GPU_CLASS, gpu_class, GPUClass)
        except errors.AlreadyExistsError:
            return  # Somebody else's of this moment: it comes by the watch.
        metrics.writes.labels("GPUClass").inc()
        _log.info("Made GPUClass", name=gpu_class.metadata.name)

    async def _delete(self, gpu_class: GPUClass) -> None:
        meta = gpu_class.metadata
        try:
            # As it was read: one that is changed meanwhile is somebody's.
            await self._client.delete(
                GPU_CLASS, meta.name, uid=meta.uid, resource_version=meta.resource_version
            )
        except errors.NotFoundError:
            return
        metrics.writes.labels("GPUClass").inc()
        _log.info("Deleted GPUClass that no card serves", name=meta.name)
