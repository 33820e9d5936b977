# SPDX-License-Identifier: Apache-2.0
"""The maker's adapter as the plugin sees it: the last inventory, and calls with deadlines.

`follow` keeps the inventory up to date over restarts of the adapter; while it is away
the last inventory stays, since cards do not vanish with the program that watches them.
The plugin itself never loads a maker's library. Protocol: protos/gpudeck/adapter/v1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gpudeck import logs
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import names
from gpudeck.devices.identities import PciAddress
from gpudeck.dra.allocations import HeldDevice
from gpudeck.errors import InvalidError, UnavailableError

log = logs.get(__name__)

IDENTIFY_SECONDS = 2.0
CALL_SECONDS = 10.0
"""Deadlines that the protocol names for Identify and for Prepare and Unprepare."""
MODE_SECONDS = 100.0
"""Deadline that the protocol names for SetPartitioning."""
REACH_SECONDS = 3.0
"""How long a call waits for an adapter that is restarting before it is refused."""
FIRST_SNAPSHOT_SECONDS = 15.0
"""The adapter promises its first snapshot 10 s after its start."""
MISSED_HEARTBEATS = 3
RETRY_SECONDS = 0.2

_OPTIONS = [
    # A socket that is not there is asked for again soon: its adapter is starting.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
]
_SERVICE = "/gpudeck.adapter.v1.Adapter/"


class Adapter:
    """One adapter behind a unix socket. Made on the event loop; `close` when done."""

    def __init__(self, socket: Path) -> None:
        self.vendor = ""
        self.cards: dict[str, adapter_pb2.Card] | None = None
        """By DRA device name; None until the first snapshot."""
        self._current = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._identify = self._unary("Identify", adapter_pb2.IdentifyResponse)
        self._prepare = self._unary("Prepare", adapter_pb2.PrepareResponse)
        self._unprepare = self._unary("Unprepare", adapter_pb2.UnprepareResponse)
        self._holding = self._unary("Holding", adapter_pb2.HoldingResponse)
        self._set_partitioning = self._unary("SetPartitioning", adapter_pb2.SetPartitioningResponse)
        self._metrics = self._unary("Metrics", adapter_pb2.MetricsResponse)
        self._watch: Any = self._channel.unary_stream(
            f"{_SERVICE}WatchCards",
            request_serializer=adapter_pb2.WatchCardsRequest.SerializeToString,
            response_deserializer=adapter_pb2.WatchCardsResponse.FromString,
        )

    def _unary(self, method: str, response: Any) -> Any:
        return self._channel.unary_unary(
            f"{_SERVICE}{method}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=response.FromString,
        )

    @property
    def is_connected(self) -> bool:
        """The adapter that answers now has told its cards."""
        return self._current.is_set()

    def card_of(self, device: HeldDevice) -> adapter_pb2.Card | None:
        """The card that a device is or is a part of, as the adapter told of it last."""
        address = names.address_of_device(device.name)
        cards = self.cards or {}
        return cards.get(names.gpu_device_name(address)) if address is not None else None

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call back whenever the inventory or the connection changed."""
        self._listeners.append(changed)

    async def close(self) -> None:
        """Close the channel; calls in flight fail."""
        await self._channel.close(None)

    async def follow(self) -> None:
        """Keep the inventory up to date, for ever."""
        while True:
            try:
                await self._read()
                self._lost("the adapter ended the stream")
            except grpc.aio.AioRpcError as error:
                self._lost(error.details() or error.code().name)
            except TimeoutError:
                self._lost("the adapter missed its heartbeats")
            await asyncio.sleep(RETRY_SECONDS)

    async def _read(self) -> None:
        """Read one stream to its end."""
        identity = await self._identify(
            adapter_pb2.IdentifyRequest(), timeout=IDENTIFY_SECONDS, wait_for_ready=True
        )
        self.vendor = identity.vendor
        silence = max(identity.heartbeat_seconds, 1) * MISSED_HEARTBEATS
        call = self._watch(adapter_pb2.WatchCardsRequest(), wait_for_ready=True)
        patience = FIRST_SNAPSHOT_SECONDS
        try:
            while True:
                async with asyncio.timeout(patience):
                    response = await call.read()
                if not isinstance(response, adapter_pb2.WatchCardsResponse):  # aio.EOF
                    return
                patience = float(silence)
                self._take(response)
        finally:
            call.cancel()

    def _take(self, response: adapter_pb2.WatchCardsResponse) -> None:
        if not response.HasField("snapshot"):
            return
        self.cards = by_device(response.snapshot.cards)
        if not self.is_connected:
            self._current.set()
            log.info("Connected to the adapter", vendor=self.vendor)
        self._tell()

    def _lost(self, why: str) -> None:
        if self.is_connected:
            self._current.clear()
            log.warning("Lost the adapter", vendor=self.vendor, error=why)
            self._tell()

    def _tell(self) -> None:
        for changed in self._listeners:
            changed()

    async def reach(self) -> None:
        """Wait a moment for a restarting adapter and its cards. Raises UnavailableError.

        The kubelet (1.37) repeats a refused Prepare only after a minute or more.
        """
        if self.is_connected:
            return
        try:
            async with asyncio.timeout(REACH_SECONDS):
                await self._current.wait()
        except TimeoutError as error:
            raise UnavailableError(
                f"the {self.vendor or 'card'} adapter on this node does not answer; "
                "it is restarting or has failed",
                reason="AdapterUnavailable",
            ) from error

    async def prepare(self, request: adapter_pb2.PrepareRequest) -> adapter_pb2.PrepareResponse:
        """Make devices ready. Raises UnavailableError when nothing is known of the outcome."""
        response: adapter_pb2.PrepareResponse = await _called(self._prepare, request)
        return response

    async def unprepare(
        self, request: adapter_pb2.UnprepareRequest
    ) -> adapter_pb2.UnprepareResponse:
        """Give back what `prepare` made. Raises UnavailableError."""
        response: adapter_pb2.UnprepareResponse = await _called(self._unprepare, request)
        return response

    async def holding(self, kind: str) -> frozenset[str]:
        """The CDI devices of a kind that containers of the node have. Raises UnavailableError."""
        answer = await _called(self._holding, adapter_pb2.HoldingRequest(kind=kind))
        return frozenset(answer.cdi_devices)

    async def set_partitioning(
        self, address: str, *, enabled: bool
    ) -> adapter_pb2.SetPartitioningResponse:
        """Change the mode of a card that needs a reset. Raises UnavailableError."""
        request = adapter_pb2.SetPartitioningRequest(pci_address=address, enabled=enabled)
        response: adapter_pb2.SetPartitioningResponse = await _called(
            self._set_partitioning, request, MODE_SECONDS
        )
        return response

    async def metrics(self) -> bytes:
        """Return the adapter's metrics, nothing if it does not answer."""
        try:
            answer = await self._metrics(adapter_pb2.MetricsRequest(), timeout=IDENTIFY_SECONDS)
        except grpc.aio.AioRpcError as error:
            log.debug("No metrics of the adapter", error=error.details())
            return b""
        text: bytes = answer.text
        return text


async def _called(method: Any, request: Any, seconds: float = CALL_SECONDS) -> Any:
    try:
        return await method(request, timeout=seconds)
    except grpc.aio.AioRpcError as error:
        timed_out = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        why = f"took longer than {seconds:g} s" if timed_out else error.details()
        raise UnavailableError(
            f"the adapter on this node does not answer: {why}", reason="AdapterUnavailable"
        ) from error


def by_device(cards: Any) -> dict[str, adapter_pb2.Card]:
    """Cards by the name of their DRA device; one with an unreadable address is left out."""
    found = {}
    for card in cards:
        try:
            address = PciAddress.parse(card.pci_address)
        except InvalidError as error:
            log.warning("Ignoring a card", error=error)
            continue
        found[names.gpu_device_name(address)] = card
    return found
