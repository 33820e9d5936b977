# SPDX-License-Identifier: Apache-2.0
"""The lab that is measured: its API server, its nodes, the processes in its pods."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import processes
from gpudeck.api import labels
from gpudeck.api.core import Pod
from gpudeck.api.meta import Meta, ObjectMeta
from gpudeck.api.resource import ResourceSlice
from gpudeck.api.resources import NODE, PHYSICAL_GPU, POD, RESOURCE_SLICE, Resource
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.errors import NotFoundError, UnavailableError
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.lab import state

T = TypeVar("T")
NAMESPACE = "gpudeck-system"
PATIENCE_SECONDS = 180.0
"""Longer than anything that is waited for takes when all is well."""


@dataclasses.dataclass
class World:
    """A running lab with gpudeck installed; `node` is the worker with the most cards."""

    folder: state.Folder
    lab: state.Lab
    api: Client
    node: str
    cards: int

    @property
    def root(self) -> Path:
        """The node's files, as its processes see them."""
        init = self.lab.nodes[self.node].init
        if init is None:
            raise UnavailableError(f"node {self.node} does not run")
        return Path(f"/proc/{init.pid}/root")

    def process(self, name: str) -> processes.Process:
        """The process of that name on the node; UnavailableError if there is none."""
        for each in processes.found(self.folder.cgroup):
            if each.name == name and each.node == self.node:
                return each
        raise UnavailableError(f"{name} does not run on {self.node}")

    async def kill(self, name: str) -> None:
        """SIGKILL a process of the node and wait until the kernel is done with it."""
        pid = self.process(name).pid
        descriptor = os.pidfd_open(pid)
        try:
            ended = asyncio.Event()
            asyncio.get_running_loop().add_reader(descriptor, ended.set)
            os.kill(pid, signal.SIGKILL)
            await ended.wait()
            asyncio.get_running_loop().remove_reader(descriptor)
        finally:
            os.close(descriptor)

    async def settled(self) -> None:
        """Wait until gpudeck's pods are Ready and every card of the node is published."""
        deadline = processes.now() + PATIENCE_SECONDS
        while not await self._is_settled():
            if processes.now() > deadline:
                raise UnavailableError(f"gpudeck is not ready after {PATIENCE_SECONDS:g} s")
            await asyncio.sleep(0.5)
        await asyncio.sleep(2)  # The last writes of the start.

    async def _is_settled(self) -> bool:
        pods = await self.api.raw("GET", POD.path(NAMESPACE))
        if b'"ready":false' in pods or b'"phase":"Pending"' in pods or b"Terminating" in pods:
            return False
        slices = await self.api.list(
            RESOURCE_SLICE, ResourceSlice, field_selector=f"spec.nodeName={self.node}"
        )
        return sum(len(each.spec.devices or ()) for each in slices.items) == self.cards

    async def label(self, vendor: str | None) -> None:
        """Set or take away the node's vendor label, as the node agent does."""
        body = Meta(
            metadata=ObjectMeta(name=self.node, labels={labels.VENDOR: vendor} if vendor else None)
        )
        await self.api.apply(NODE, body, Meta, manager=labels.MANAGER_NODE_AGENT)

    async def delete_all(self, resource: Resource, *, field: str = "", label: str = "") -> None:
        """Delete the objects that the selectors choose, side by side."""
        listed = await self.api.list(resource, Meta, field_selector=field, label_selector=label)
        await asyncio.gather(*(self._delete(resource, each) for each in listed.items))

    async def _delete(self, resource: Resource, found: Meta) -> None:
        meta = found.metadata
        with contextlib.suppress(NotFoundError):
            await self.api.delete(resource, meta.name, namespace=meta.namespace)

    def resource_slices(self) -> Cache[ResourceSlice]:
        """A watch of the node's ResourceSlices."""
        selector = f"spec.nodeName={self.node}"
        return Cache(self.api, RESOURCE_SLICE, ResourceSlice, field_selector=selector)

    def physical_gpus(self) -> Cache[PhysicalGPU]:
        """A watch of the node's cards."""
        return Cache(
            self.api, PHYSICAL_GPU, PhysicalGPU, label_selector=f"{labels.NODE}={self.node}"
        )

    def pods(self, namespace: str) -> Cache[Pod]:
        """A watch of the pods of a namespace."""
        return Cache(self.api, POD, Pod, namespace=namespace)


class Watched:
    """When something watched first became true, on the clock of `processes.now`."""

    def __init__(self, cache: Cache[Any], holds: Callable[[dict[str, Any]], bool]) -> None:
        self._cache = cache
        self._holds = holds
        self._event = asyncio.Event()
        self._armed = False
        self.at = 0.0
        cache.subscribe(lambda change: self.look())

    def look(self) -> None:
        """Look now, without waiting for a change."""
        if self._armed and self._holds(self._cache.objects):
            self.at, self._armed = processes.now(), False
            self._event.set()

    def arm(self) -> None:
        """From now on, note the moment."""
        self._event.clear()
        self._armed = True

    async def moment(self) -> float:
        """Wait for the moment and return it; UnavailableError if it does not come."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._event.wait()
        except TimeoutError as error:
            raise UnavailableError(f"nothing seen within {PATIENCE_SECONDS:g} s") from error
        return self.at


@contextlib.asynccontextmanager
async def watched(
    cache: Cache[Any], holds: Callable[[dict[str, Any]], bool]
) -> AsyncIterator[Watched]:
    """A `Watched` whose cache runs inside the block."""
    task = asyncio.create_task(cache.run())
    try:
        await cache.synced()
        yield Watched(cache, holds)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
