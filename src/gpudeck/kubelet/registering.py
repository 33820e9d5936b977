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
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio

from gpudeck import logs
from gpudeck.errors import UnavailableError
from gpudeck.host import files
from gpudeck.kubelet import paths, services
from gpudeck.kubelet.wire import dra_pb2, registration_pb2

log = logs.get(__name__)

GRACE_SECONDS = 18.0
"""How long calls in flight may go on after the plugin was told to stop; a pod has 30 s."""
LAST_SECONDS = 2.0
"""How long those may that came just before the registration went."""


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


class _Calls:
    """The calls of a plugin, counted while they are in flight; the stream never ends by itself."""

    def __init__(self, plugin: services.Plugin) -> None:
        self._plugin = plugin
        self.health = plugin.health
        self._in_flight = 0
        self._answered = asyncio.Condition()

    async def prepare(
        self, request: dra_pb2.NodePrepareResourcesRequest, context: services.Context
    ) -> dra_pb2.NodePrepareResourcesResponse:
        async with self._counted():
            return await self._plugin.prepare(request, context)

    async def unprepare(
        self, request: dra_pb2.NodeUnprepareResourcesRequest, context: services.Context
    ) -> dra_pb2.NodeUnprepareResourcesResponse:
        async with self._counted():
            return await self._plugin.unprepare(request, context)

    @contextlib.asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            async with self._answered:
                self._answered.notify_all()

    async def answered(self, seconds: float) -> None:
        """Wait until no call is in flight, no longer than so."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._answered:
                await self._answered.wait_for(lambda: self._in_flight == 0)


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
    registration = services.registration_handler(info, notified)
    calls = _Calls(plugin)
    async with (
        listening(endpoint.plugin_socket, services.plugin_handlers(calls), LAST_SECONDS),
        listening(endpoint.registration_socket, [registration], 0),
    ):
        log.info("Serving the kubelet", socket=endpoint.plugin_socket)
        try:
            yield
        finally:
            await calls.answered(GRACE_SECONDS)


@contextlib.asynccontextmanager
async def listening(
    path: Path, handlers: list[services.Handler[Any, Any]], grace_seconds: float
) -> AsyncIterator[None]:
    """Serve on `path` inside the block; the socket goes before the calls in flight do."""
    # SO_REUSEPORT means nothing on AF_UNIX.
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers(tuple(handlers))
    mask = os.umask(0o177)  # The socket is root's alone: whoever calls it may unprepare claims.
    try:
        server.add_insecure_port(f"unix://{path}")
    except RuntimeError as error:
        raise UnavailableError(
            f"{path}: cannot listen on this socket; is its folder there and ours to write?",
            reason="SocketUnavailable",
        ) from error
    finally:
        os.umask(mask)
    try:
        await server.start()
        yield
    finally:
        files.remove(path)
        await server.stop(grace_seconds)


def _clear(endpoint: Endpoint) -> None:
    """Remove our own sockets of an earlier run, and those of pods that no longer answer."""
    files.remove(endpoint.registration_socket)
    files.remove(endpoint.plugin_socket)
    left = [
        *endpoint.registry_dir.glob(f"{endpoint.driver}-*reg.sock"),
        *endpoint.data_dir.glob("dra-*.sock"),
    ]
    for path in left:
        if not answers(path):
            log.info("Removing a dead socket", path=path)
            files.remove(path)


def answers(path: Path) -> bool:
    """Whether some process listens on the socket `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # Busy or not for us: somebody may be there, so it stays.
    return True
