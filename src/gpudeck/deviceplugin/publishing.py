# SPDX-License-Identifier: Apache-2.0
"""Keep the PhysicalGPUs of this node true: what was read, what is offered, who has it.

`main` tells what there is to say; this follows who holds devices, by the kubelet's
pod-resources API. That API tells of no change, so it is asked after each Allocate, and
from time to time while anybody holds anything.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from gpudeck import errors, logs
from gpudeck.adapter import wire
from gpudeck.api import labels
from gpudeck.api.v1alpha1 import physicalgpu
from gpudeck.deviceplugin import status
from gpudeck.kube.client import Client
from gpudeck.kubelet import holding
from gpudeck.statuses import cards, writing

log = logs.get(__name__)

SETTLING_SECONDS = 0.5
"""So long after an Allocate the kubelet tells of it (1.37: once the pod is admitted)."""
HELD_SECONDS = 5.0
"""How often is asked whether those who hold something still do."""
IDLE_SECONDS = 60.0


class Publisher:
    """Says what is known of the cards; `run` must run."""

    def __init__(self, api: Client, node_name: str, *, vendor: str, pod_resources: str) -> None:
        self._vendor = vendor
        self._pod_resources = pod_resources
        self._writer = writing.Writer(api, node_name)
        self._known: status.Known | None = None
        self._found: tuple[holding.Holder, ...] | None = None
        self._holders: status.Holders = {}
        self._handed_out = asyncio.Event()

    def show(self, known: status.Known) -> None:
        """Say this from now on."""
        if known != self._known:
            self._known = known
            self._tell()

    def handed_out(self) -> None:
        """Somebody has just got a device."""
        self._handed_out.set()

    async def run(self) -> None:
        """Write for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._writer.cache.run(), name="physicalgpus")
            group.create_task(self._writer.run(self._report), name="cards' status")
            if self._pod_resources:
                group.create_task(self._follow(), name="holders")

    async def leave(self) -> None:
        """Take back what was said as the one who offers the cards: another does from now on."""
        for gpu in list(self._writer.cache.objects.values()):
            if self._is_ours(gpu):
                nothing = physicalgpu.PhysicalGPUStatus()
                await self._writer.write(gpu, nothing, labels.MANAGER_PUBLISHER)

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(errors.UnavailableError):
                found = await holding.holders(Path(self._pod_resources))
                if found != self._found:
                    self._found = found
                    self._tell()
            pause = HELD_SECONDS if self._found else IDLE_SECONDS
            if self._found is None:
                pause = SETTLING_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._handed_out.wait()
                self._handed_out.clear()
                await asyncio.sleep(SETTLING_SECONDS)

    def _tell(self) -> None:
        if self._known is not None:
            self._holders = status.holders(self._known, self._found or ())
            self._writer.wake()

    def _is_ours(self, gpu: physicalgpu.PhysicalGPU) -> bool:
        return (gpu.metadata.labels or {}).get(labels.VENDOR) == self._vendor

    async def _report(self, gpu: physicalgpu.PhysicalGPU) -> float | None:
        known, address = self._known, writing.address_of(gpu)
        if known is None or address is None or not self._is_ours(gpu):
            return None
        card = known.card(str(address))
        if card is None:
            wanted = cards.absent_status(gpu.status, cards.DEVICE_PLUGIN)
        else:
            wanted = cards.adapter_status(wire.card(card), self._vendor)
        gpu = await self._writer.write(gpu, wanted, labels.MANAGER_ADAPTER)
        plugin = (
            gpu.status.occupancy.plugin if gpu.status and gpu.status.occupancy else None
        ) or []
        if self._found is not None:  # Else nobody knows yet, so what was said last stands.
            plugin = status.kept(self._holders, str(address), plugin, self._found)
        wanted = status.card_status(known, str(address), plugin)
        await self._writer.write(gpu, wanted, labels.MANAGER_PUBLISHER)
        return None
