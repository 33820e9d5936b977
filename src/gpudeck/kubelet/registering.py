# SPDX-License-Identifier: Apache-2.0
"""Serve a DRA plugin to the kubelet for as long as a block runs.

The plugin's socket listens before the registration socket appears, since the kubelet
connects as soon as it sees the latter (fsnotify on its registry folder, then every
second). At the end the registration socket goes first, so the kubelet unregisters the
endpoint, calls in flight are finished, and then the plugin's socket goes. Sockets that
a killed plugin left are removed at the next start; a living one is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc.aio

from gpudeck import logs
from gpudeck.host import files
from gpudeck.kubelet import paths, services
from gpudeck.kubelet.wire import registration_pb2

log = logs.get(__name__)

GRACE_SECONDS = 5.0
"""How long calls in flight may go on after the plugin was told to stop."""


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


@contextlib.asynccontextmanager
async def served(
    endpoint: Endpoint, plugin: services.Plugin, notified: Callable[[bool, str], None]
) -> AsyncIterator[None]:
    """Serve `plugin` and keep it registered inside the block.

    `notified` hears whether the kubelet accepted it, and why not. Raises
    InvalidError for socket paths that are too long, GpudeckError of `host.files` where a
    folder is missing or not ours to write.
    """
    await asyncio.to_thread(_clear, endpoint)
    info = registration_pb2.PluginInfo(
        type="DRAPlugin",
        name=endpoint.driver,
        endpoint=str(endpoint.plugin_socket),
        supported_versions=[*services.DRA_SERVICES, *services.HEALTH_SERVICES],
    )
    plugin_server = _server(endpoint.plugin_socket, services.plugin_handlers(plugin))
    registration = services.registration_handler(info, notified)
    registration_server = _server(endpoint.registration_socket, [registration])
    try:
        await plugin_server.start()
        await registration_server.start()
        log.info("Serving the kubelet", socket=endpoint.plugin_socket)
        yield
    finally:
        files.remove(endpoint.registration_socket)
        await registration_server.stop(0)
        await plugin_server.stop(GRACE_SECONDS)
        files.remove(endpoint.plugin_socket)


def _server(path: Path, handlers: list[services.Handler[object, object]]) -> grpc.aio.Server:
    # Keepalive pings are the kubelet's affair; SO_REUSEPORT means nothing on AF_UNIX.
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers(tuple(handlers))
    server.add_insecure_port(f"unix://{path}")
    return server


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
