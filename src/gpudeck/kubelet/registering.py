# SPDX-License-Identifier: Apache-2.0
"""Serve a DRA plugin to the kubelet for as long as a block runs.

The plugin's socket listens before the registration socket appears, since the kubelet
connects as soon as it sees the latter (fsnotify on its registry folder, then every
second). At the end calls in flight are answered first: the kubelet (1.37) sends new ones
to the plugin that registered last, and when a registration socket goes it closes its
connection at once, whatever is in flight on it. Then that socket goes, then the plugin's.
Sockets that a killed plugin left are removed at the next start; a living one is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from gpudeck import logs, sockets
from gpudeck.host import root
from gpudeck.kubelet import paths, services
from gpudeck.kubelet.wire import dra_pb2, registration_pb2

log = logs.get(__name__)

GRACE_SECONDS = 18.0
"""How long calls in flight may go on after the plugin was told to stop; a pod has 30 s."""
LAST_SECONDS = 2.0
"""How long those may that came just before the registration went."""

LOOK_SECONDS = 1.0
"""How often is looked whether the sockets are there."""


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """One instance of a plugin: where it lives and the driver it serves."""

    driver: str
    data_dir: Path
    registry_dir: Path
    pod_uid: str = ""

    @property
    def plugin_socket(self) -> Path:
        return paths.plugin_socket(self.data_dir, self.pod_uid)

    @property
    def registration_socket(self) -> Path:
        return paths.registration_socket(self.registry_dir, self.driver, self.pod_uid)

    @property
    def sockets(self) -> tuple[Path, Path]:
        """Both. Raises InvalidError for paths that are too long."""
        return self.plugin_socket, self.registration_socket


class _Calls:
    """The calls of a plugin, counted while they are in flight; the stream never ends by itself."""

    def __init__(self, plugin: services.Plugin) -> None:
        self._plugin = plugin
        self.health = plugin.health
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def prepare(
        self, request: dra_pb2.NodePrepareResourcesRequest, context: services.Context
    ) -> dra_pb2.NodePrepareResourcesResponse:
        with self._counted():
            return await self._plugin.prepare(request, context)

    async def unprepare(
        self, request: dra_pb2.NodeUnprepareResourcesRequest, context: services.Context
    ) -> dra_pb2.NodeUnprepareResourcesResponse:
        with self._counted():
            return await self._plugin.unprepare(request, context)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def answered(self, seconds: float) -> None:
        """Wait until no call is in flight, no longer than so."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()


@contextlib.asynccontextmanager
async def served(
    endpoint: Endpoint, plugin: services.Plugin, notified: Callable[[bool, str], None]
) -> AsyncIterator[None]:
    """Serve `plugin` and keep it registered inside the block.

    `notified` hears whether the kubelet accepted it, and why not. Raises InvalidError
    for socket paths that are too long, UnavailableError where a socket cannot be made.
    """
    await asyncio.to_thread(_clear, endpoint)
    info = registration_pb2.PluginInfo(
        type="DRAPlugin",
        name=endpoint.driver,
        endpoint=str(endpoint.plugin_socket),
        supported_versions=[*services.DRA_SERVICES, *services.HEALTH_SERVICES],
    )
    calls = _Calls(plugin)
    answering = services.filled(*services.plugin_handlers(calls))
    registration = services.filled(services.registration_handler(info, notified))
    async with (
        sockets.served(endpoint.plugin_socket, answering, grace_seconds=LAST_SECONDS),
        sockets.served(endpoint.registration_socket, registration, grace_seconds=0),
    ):
        log.info("Serving the kubelet", socket=endpoint.plugin_socket)
        try:
            yield
        finally:
            await calls.answered(GRACE_SECONDS)


async def gone(endpoint: Endpoint) -> None:
    """Wait until somebody has removed a socket, or put something dead in its place.

    The kubelet (1.37) forgets a plugin whose registration socket goes. A living plugin that has
    taken the place stays there.
    """
    known = _stamps(endpoint)
    while None not in (now := _stamps(endpoint)):
        if now != known and not all(map(sockets.answers, endpoint.sockets)):
            return
        await asyncio.sleep(LOOK_SECONDS)


def _stamps(endpoint: Endpoint) -> list[tuple[int, int, int] | None]:
    return [root.Root().stamp(path.as_posix()) for path in endpoint.sockets]


def _clear(endpoint: Endpoint) -> None:
    """Remove sockets of pods that no longer answer."""
    sockets.clear(endpoint.registry_dir.glob(f"{endpoint.driver}-*reg.sock"))
    sockets.clear(endpoint.data_dir.glob("dra-*.sock"))
