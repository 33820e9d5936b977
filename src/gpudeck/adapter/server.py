# SPDX-License-Identifier: Apache-2.0
"""Serves gpudeck.adapter.v1 on a unix socket.

`Feed` holds the inventory of now; every stream follows it at its own pace and may skip
inventories that were replaced meanwhile. Prepare and Unprepare wait for the maker's library
only where a card has to be changed: all else they need was read before.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio

from gpudeck import errors, logs, sockets
from gpudeck.adapter import metrics, planning, preparing, wire
from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.adapter.v1 import adapter_pb2_grpc
from gpudeck.vendors import contract, records

log = logs.get(__name__)

if TYPE_CHECKING:
    Context = aio.ServicerContext[Any, Any]

Holding = Callable[[str], Awaitable[Iterable[str]]]
"""The CDI devices of a kind that containers have; raises UnavailableError if nobody knows."""

HEARTBEAT_SECONDS = 5
READERS_SECONDS = 25.0
"""How long an adapter that is told to end serves on for those who follow its cards.

The dra-plugin of the same pod is told at the same moment. It takes no new calls then, finishes
those in work, for which it needs the adapter, and follows the cards to its own end.
"""
_GRACE_SECONDS = 10.0
"""For calls in work after that: a change of a card has 9 s."""


class Feed:
    """The inventory of now and its revision; readers wait for the next."""

    def __init__(self) -> None:
        self.inventory: records.Inventory | None = None
        self.revision = 0
        self._changed = asyncio.Event()
        self._is_closed = False
        self._readers = 0
        self._unread = asyncio.Event()
        self._unread.set()

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Somebody reads on inside the block."""
        self._readers += 1
        self._unread.clear()
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._unread.set()

    async def unread(self, deadline_seconds: float) -> None:
        """Wait until nobody reads on, or for the deadline."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_seconds):
                await self._unread.wait()

    def publish(self, inventory: records.Inventory) -> None:
        """Replace the inventory."""
        self.inventory = inventory
        self.revision += 1
        self._changed.set()
        self._changed = asyncio.Event()
        metrics.published(inventory)
        log.info("Inventory changed", revision=self.revision, cards=len(inventory.cards))

    async def after(self, revision: int) -> records.Inventory | None:
        """Wait for an inventory newer than `revision`, 0 waits for the first; None at the end."""
        while self.inventory is None or self.revision <= revision:
            if self._is_closed:
                return None
            await self._changed.wait()
        return None if self._is_closed else self.inventory

    def close(self) -> None:
        """There will be no more; those who read are told so."""
        self._is_closed = True
        self._changed.set()


class Adapter(adapter_pb2_grpc.AdapterServicer):
    """The methods; what each promises is written in adapter.proto."""

    def __init__(
        self,
        vendor: contract.Vendor,
        feed: Feed,
        act: preparing.Act,
        *,
        holding: Holding | None = None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._holding = holding or _nobody_knows
        self._vendor = vendor
        self.feed = feed
        self._heartbeat_seconds = heartbeat_seconds
        self._preparing = preparing.Preparing(vendor, self._inventory, act)

    async def Identify(self, request: pb.IdentifyRequest, context: Context) -> pb.IdentifyResponse:
        return pb.IdentifyResponse(
            vendor=self._vendor.name,
            heartbeat_seconds=max(1, round(self._heartbeat_seconds)),
        )

    async def WatchCards(
        self, request: pb.WatchCardsRequest, context: Context
    ) -> AsyncIterator[pb.WatchCardsResponse]:
        sent = 0
        with self.feed.followed():
            while True:
                try:
                    async with asyncio.timeout(self._heartbeat_seconds):
                        inventory = await self.feed.after(sent)
                except TimeoutError:
                    yield wire.heartbeat(sent)
                    continue
                if inventory is None:
                    return
                sent = self.feed.revision
                yield wire.snapshot(inventory, sent)

    async def Prepare(self, request: pb.PrepareRequest, context: Context) -> pb.PrepareResponse:
        await self._need_inventory(context)
        with metrics.call_seconds.labels("prepare").time():
            return await self._preparing.prepare(request)

    async def Unprepare(
        self, request: pb.UnprepareRequest, context: Context
    ) -> pb.UnprepareResponse:
        devices = [device for each in request.claims for device in each.devices]
        if any(planning.undoing(device) is not None for device in devices):
            await self._need_inventory(context)
        with metrics.call_seconds.labels("unprepare").time():
            return await self._preparing.unprepare(request)

    async def SetPartitioning(
        self, request: pb.SetPartitioningRequest, context: Context
    ) -> pb.SetPartitioningResponse:
        await self._need_inventory(context)
        with metrics.call_seconds.labels("set_partitioning").time():
            return await self._preparing.set_partitioning(request)

    async def Metrics(self, request: pb.MetricsRequest, context: Context) -> pb.MetricsResponse:
        return pb.MetricsResponse(text=metrics.render())

    async def Holding(self, request: pb.HoldingRequest, context: Context) -> pb.HoldingResponse:
        try:
            return pb.HoldingResponse(cdi_devices=await self._holding(request.kind))
        except errors.UnavailableError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)

    async def _need_inventory(self, context: Context) -> None:
        if self.feed.inventory is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "The cards have not been read yet.")

    def _inventory(self) -> records.Inventory:
        return self.feed.inventory or records.Inventory()


@contextlib.asynccontextmanager
async def serving(adapter: Adapter, socket: Path) -> AsyncIterator[None]:
    """Serve on `socket` inside the block; the socket is the owner's alone (mode 0600).

    After it those who follow the cards are served on for a while, and calls in work finished.
    Raises UnavailableError where the socket cannot be made.
    """
    fill = functools.partial(adapter_pb2_grpc.add_AdapterServicer_to_server, adapter)
    async with sockets.served(socket, fill, grace_seconds=_GRACE_SECONDS):
        log.info("Serving", socket=socket)
        try:
            yield
        finally:
            try:
                await adapter.feed.unread(READERS_SECONDS)
            finally:
                adapter.feed.close()


async def _nobody_knows(kind: str) -> Iterable[str]:
    raise errors.UnavailableError(
        "No socket of the container runtime is set.", reason="RuntimeUnknown"
    )
