# SPDX-License-Identifier: Apache-2.0
"""gRPC on the node's own sockets: serve on one, dial one for a question, see who is there.

`kubelet` and the device plugin serve the kubelet by it and ask it, `adapter` serves the
dra-plugin and asks the container runtime. What is served or asked is theirs.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import grpc.aio

from gpudeck import finishing, logs
from gpudeck.errors import GpudeckError, UnavailableError
from gpudeck.host import files

log = logs.get(__name__)

_OPTIONS = [
    # The kubelet's and the runtime's servers refuse a socket's path as the name of a host.
    ("grpc.default_authority", "localhost"),
    # Channels of a process share connections otherwise, and one that has just failed keeps every
    # new channel from dialling for a second and more while anybody keeps its error (gRPC 1.80).
    ("grpc.use_local_subchannel_pool", 1),
]


def channel(path: Path, *options: tuple[str, Any]) -> grpc.aio.Channel:
    """A new channel that dials by itself, however the last one fared. Close it when done."""
    return grpc.aio.insecure_channel(f"unix:{path}", options=[*_OPTIONS, *options])


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


def clear(paths: Iterable[Path]) -> None:
    """Remove those of the sockets that nobody serves, as a killed process leaves them."""
    for path in paths:
        if not answers(path):
            log.info("Removing a dead socket", path=path)
            _leave(path)


@contextlib.asynccontextmanager
async def served(
    path: Path, fill: Callable[[grpc.aio.Server], None], *, grace_seconds: float
) -> AsyncIterator[None]:
    """Serve on `path` inside the block what `fill` gives the server; mode 0600.

    What a killed process left at `path` goes. At the end the socket goes before the calls in
    flight do, which have `grace_seconds`. Raises UnavailableError where a socket cannot be made,
    and what `files.remove` does where something else is in its place.

    After half a start or stop gRPC (1.85) can neither serve nor be stopped, and the process waits
    for it without a limit when it ends.
    """
    files.remove(path)
    # SO_REUSEPORT means nothing on AF_UNIX.
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    fill(server)
    try:
        _bind(server, path)
        await finishing.whole(server.start())
        yield
    finally:
        _leave(path)
        await finishing.whole(server.stop(grace_seconds))


def _bind(server: grpc.aio.Server, path: Path) -> None:
    mask = os.umask(0o177)  # Root's alone: whoever may call could take cards from their pods.
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise UnavailableError(
            f"{path}: cannot listen on this socket; is its folder there and ours to write?",
            reason="SocketUnavailable",
        ) from error
    finally:
        os.umask(mask)


def _leave(path: Path) -> None:
    try:
        files.remove(path)
    except GpudeckError as error:
        log.warning("In the place of a socket is something that stays", error=error)
