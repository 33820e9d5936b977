# SPDX-License-Identifier: Apache-2.0
"""Write occupancy and phase of a card, and delete the object of a card that is gone for good.

One change of a claim is one server-side apply of one status. Nothing is written
that stands there already. A lost card keeps its object while a claim names it, and
`lost_seconds` longer, so that a card that falls off the bus and returns is the same
object and people see what happened.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

import msgspec

from gpudeck import errors, logs
from gpudeck.api import labels
from gpudeck.api.meta import ObjectMeta
from gpudeck.api.resources import PHYSICAL_GPU
from gpudeck.api.v1alpha1.physicalgpu import Phase, PhysicalGPU, PhysicalGPUStatus
from gpudeck.controller import events, metrics
from gpudeck.controller.physicalgpu import holdings, occupancy, phase
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client

_log = logs.get(__name__)


class Reconciler:
    """Brings PhysicalGPUs in line with the claims; called by one queue."""

    def __init__(
        self,
        client: Client,
        gpus: Cache[PhysicalGPU],
        held: holdings.Holdings,
        *,
        attended: Callable[[PhysicalGPU], bool],
        report: events.Events,
        lost_seconds: float,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._client = client
        self._gpus = gpus
        self._held = held
        self._attended = attended
        self._report = report
        self._lost_seconds = lost_seconds
        self._now = now

    async def reconcile(self, name: str) -> float | None:
        """Write what is not so yet; return the seconds after which to look at a lost card again."""
        gpu = self._gpus.objects.get(name)
        if gpu is None or gpu.metadata.deletion_timestamp is not None:
            return None
        wanted = wanted_status(gpu, self._held, attended=self._attended(gpu))
        written = gpu.status or PhysicalGPUStatus()
        if (written.occupancy, written.phase) != (wanted.occupancy, wanted.phase):
            if not await self._write(name, wanted):
                return None
            self._report.phase_changed(gpu, written.phase, wanted.phase)
        if wanted.phase is Phase.LOST and not self._held.of(name):
            return await self._expire(gpu)
        return None

    async def _write(self, name: str, wanted: PhysicalGPUStatus) -> bool:
        # Who has it from the device plugin is that one's to write.
        ours = wanted.occupancy and msgspec.structs.replace(wanted.occupancy, plugin=None)
        written = PhysicalGPUStatus(occupancy=ours, phase=wanted.phase)
        body = PhysicalGPU(metadata=ObjectMeta(name=name), status=written)
        try:
            await self._client.apply(
                PHYSICAL_GPU,
                body,
                PhysicalGPU,
                manager=labels.MANAGER_CONTROLLER,
                subresource="status",
            )
        except errors.NotFoundError:
            return False
        metrics.writes.labels("PhysicalGPU").inc()
        return True

    async def _expire(self, gpu: PhysicalGPU) -> float | None:
        left = self._lost_seconds - self._lost_for(gpu)
        if left > 0:
            return left
        name = gpu.metadata.name
        try:
            # The cache may lag: what is deleted is the object as it is seen here.
            found = await self._client.get(PHYSICAL_GPU, name, PhysicalGPU)
            if not phase.is_lost(found):
                return None
            await self._client.delete(
                PHYSICAL_GPU,
                name,
                uid=found.metadata.uid,
                resource_version=found.metadata.resource_version,
            )
        except errors.NotFoundError:
            return None
        _log.info("Deleted lost card", name=name, since=phase.lost_since(gpu))
        return None

    def _lost_for(self, gpu: PhysicalGPU) -> float:
        since = phase.lost_since(gpu)
        try:
            started = datetime.datetime.fromisoformat(since or "")
        except ValueError:
            return self._lost_seconds
        if started.tzinfo is None:
            started = started.replace(tzinfo=datetime.UTC)
        return (self._now() - started).total_seconds()


def wanted_status(
    gpu: PhysicalGPU, held: holdings.Holdings, *, attended: bool
) -> PhysicalGPUStatus:
    """Return the part of a card's status that the controller owns."""
    filled = occupancy.of(gpu, held.of(gpu.metadata.name))
    return PhysicalGPUStatus(occupancy=filled, phase=phase.of(gpu, filled, attended=attended))
