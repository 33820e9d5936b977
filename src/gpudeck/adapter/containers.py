# SPDX-License-Identifier: Apache-2.0
"""With which CDI devices the containers of this node were made, as the runtime tells it (CRI v1).

`server` asks for the dra-plugin, which must not free what a container still has: a pod that
was deleted by force is gone from the API and from the kubelet's lists while its containers
go on to the end of their grace period, or for as long as they cannot be killed. Only the
runtime knows of those. The adapter asks, since whoever may call the runtime is as good as
root on the node, and the dra-plugin has a token. Changes nothing and keeps nothing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import msgspec
from grpc import aio

from gpudeck import sockets
from gpudeck.adapter.cri import runtime_pb2
from gpudeck.errors import UnavailableError

SERVICE = "/runtime.v1.RuntimeService/"
ASK_SECONDS = 8.0
"""For all containers of the node together; the caller of the adapter waits 10 s."""
_MESSAGE_BYTES = 16 * 1024 * 1024
"""What the kubelet (1.37) takes from a runtime in one message."""


class _Device(msgspec.Struct):
    name: str = ""


class _Config(msgspec.Struct):
    devices: list[_Device] | None = msgspec.field(default=None, name="CDI_devices")


class _Details(msgspec.Struct):
    """The JSON that containerd (2.x) gives for a container when asked in detail."""

    config: _Config


async def cdi_devices(socket: Path, kind: str) -> list[str]:
    """Names of the CDI devices of `kind` that containers which have not ended were made with.

    Raises UnavailableError when the runtime does not answer, or does not tell the devices.
    """
    size = ("grpc.max_receive_message_length", _MESSAGE_BYTES)
    try:
        async with asyncio.timeout(ASK_SECONDS), sockets.channel(socket, size) as channel:
            found = await _ask(channel)
    except TimeoutError as error:
        raise _unavailable(socket, f"it took longer than {ASK_SECONDS:g} s") from error
    except aio.AioRpcError as error:
        raise _unavailable(socket, error.details() or error.code().name) from error
    except msgspec.DecodeError as error:
        why = f"it does not tell what a container was made with: {error}"
        raise _unavailable(socket, why) from error
    return sorted(name for name in found if name.startswith(f"{kind}="))


async def _ask(channel: aio.Channel) -> set[str]:
    listing: Any = channel.unary_unary(
        f"{SERVICE}ListContainers",
        request_serializer=runtime_pb2.ListContainersRequest.SerializeToString,
        response_deserializer=runtime_pb2.ListContainersResponse.FromString,
    )
    detailing: Any = channel.unary_unary(
        f"{SERVICE}ContainerStatus",
        request_serializer=runtime_pb2.ContainerStatusRequest.SerializeToString,
        response_deserializer=runtime_pb2.ContainerStatusResponse.FromString,
    )
    listed = await listing(runtime_pb2.ListContainersRequest())
    found = set[str]()
    for each in listed.containers:
        if each.state == runtime_pb2.CONTAINER_EXITED:
            continue
        request = runtime_pb2.ContainerStatusRequest(container_id=each.id, verbose=True)
        try:
            answer = await detailing(request)
        except aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                continue  # It was removed meanwhile.
            raise
        details = msgspec.json.decode(answer.info["info"], type=_Details)
        found.update(device.name for device in details.config.devices or ())
    return found


def _unavailable(socket: Path, why: str) -> UnavailableError:
    return UnavailableError(
        f"the container runtime does not tell at {socket} what containers have: {why}",
        reason="RuntimeUnavailable",
    )
