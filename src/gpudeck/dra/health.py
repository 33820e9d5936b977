# SPDX-License-Identifier: Apache-2.0
"""The adapter's verdicts as the kubelet's DRAResourceHealth stream.

The kubelet copies it into the status of pods that use a claim by name (1.36 and later).
A device that is not named for its timeout decays to Unknown there, so everything is
sent again every few seconds; while the adapter is away nothing is sent, and that is
what then happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import names
from gpudeck.dra import adapters
from gpudeck.kubelet.wire import health_pb2

REPEAT_SECONDS = 10.0
TIMEOUT_SECONDS = 30
MESSAGE_LIMIT = 1024
"""Bytes that the kubelet keeps of a message."""

_STATUSES = {
    adapter_pb2.VERDICT_HEALTHY: health_pb2.HEALTHY,
    adapter_pb2.VERDICT_UNHEALTHY: health_pb2.UNHEALTHY,
    adapter_pb2.VERDICT_UNKNOWN: health_pb2.UNKNOWN,
}


class Health:
    """Serves any number of streams from one inventory."""

    def __init__(
        self,
        adapter: adapters.Adapter,
        node_name: str,
        published: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._adapter = adapter
        self._pool = names.pool_name(node_name)
        self._changed = asyncio.Event()
        self._closed = 0
        """How often all streams were ended."""
        self._published: Callable[[], Iterable[str]] = published
        adapter.subscribe(self._tell)

    async def stream(self) -> AsyncIterator[health_pb2.NodeWatchResourcesResponse]:
        """Every device's health: at once, on each change, and every ten seconds."""
        closed = self._closed
        while closed == self._closed:
            changed = self._changed
            if self._adapter.is_connected and self._adapter.cards is not None:
                names_ = {*self._adapter.cards, *self._published()}
                yield report(self._adapter.cards, names_, self._pool, int(time.time()))
            try:
                await asyncio.wait_for(changed.wait(), REPEAT_SECONDS)
            except TimeoutError:
                continue

    def close(self) -> None:
        """End the streams that there are, so that a server that stops has no call in flight."""
        self._closed += 1
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()  # The next change is a new one for every stream.


def report(
    cards: dict[str, adapter_pb2.Card], devices: Iterable[str], pool: str, now: int
) -> health_pb2.NodeWatchResourcesResponse:
    """One message with the cards' `devices`; `now` in seconds since 1970.

    A part of a card is as healthy as the card.
    """
    known = [(name, cards[key]) for name in sorted(devices) if (key := _card_of(name)) in cards]
    return health_pb2.NodeWatchResourcesResponse(
        devices=[
            health_pb2.DeviceHealth(
                device=health_pb2.DeviceIdentifier(pool_name=pool, device_name=name),
                health=_STATUSES[card.health.verdict],
                last_updated_time=now,
                health_check_timeout_seconds=TIMEOUT_SECONDS,
                message=_message(card.health),
            )
            for name, card in known
        ]
    )


def _card_of(device: str) -> str:
    """The device name of the whole card that a device is or is a part of."""
    address = names.address_of_device(device)
    return names.gpu_device_name(address) if address is not None else ""


def _message(health: adapter_pb2.Health) -> str:
    if health.verdict == adapter_pb2.VERDICT_HEALTHY:
        return ""
    text = f"{health.reason}: {health.message}" if health.message else health.reason
    return text.encode()[:MESSAGE_LIMIT].decode("utf-8", "ignore")
