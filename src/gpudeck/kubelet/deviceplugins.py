# SPDX-License-Identifier: Apache-2.0
"""The kubelet's device plugin protocol, v1beta1: our functions bound to it, and its registration.

One socket serves one resource (see protos/kubelet/deviceplugin.proto). The plugin calls
the kubelet to be known; the kubelet then calls back before it answers (1.34 to 1.37), so
the socket must be served first.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio

from gpudeck import sockets
from gpudeck.errors import GpudeckError, InvalidError, UnavailableError
from gpudeck.kubelet.services import Context, Handler
from gpudeck.kubelet.wire import deviceplugin_pb2 as pb

SERVICE = "v1beta1.DevicePlugin"
REGISTER = "/v1beta1.Registration/Register"
VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
"""In the folder of the plugins' sockets."""
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
OPTIONS = pb.DevicePluginOptions(get_preferred_allocation_available=True)
CALL_SECONDS = 5.0


class Plugin(Protocol):
    """What serves one resource. Refusals are raised as GpudeckErrors."""

    def watch(self) -> AsyncGenerator[pb.ListAndWatchResponse, None]: ...

    def prefer(self, request: pb.PreferredAllocationRequest) -> pb.PreferredAllocationResponse: ...

    def allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse: ...


def handler(plugin: Plugin) -> Handler[Any, Any]:
    """The service of the plugin's socket."""

    async def options(request: pb.Empty, context: Context) -> pb.DevicePluginOptions:
        return OPTIONS

    async def watch(request: pb.Empty, context: Context) -> AsyncIterator[pb.ListAndWatchResponse]:
        async with contextlib.aclosing(plugin.watch()) as lists:
            async for each in lists:
                yield each

    async def prefer(
        request: pb.PreferredAllocationRequest, context: Context
    ) -> pb.PreferredAllocationResponse:
        try:
            return plugin.prefer(request)
        except GpudeckError as error:
            await _refuse(context, error)
            raise

    async def allocate(request: pb.AllocateRequest, context: Context) -> pb.AllocateResponse:
        try:
            return plugin.allocate(request)
        except GpudeckError as error:
            await _refuse(context, error)
            raise

    async def before_start(
        request: pb.PreStartContainerRequest, context: Context
    ) -> pb.PreStartContainerResponse:
        return pb.PreStartContainerResponse()

    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "GetDevicePluginOptions": _unary(options, pb.Empty),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                watch,
                request_deserializer=pb.Empty.FromString,
                response_serializer=pb.ListAndWatchResponse.SerializeToString,
            ),
            "GetPreferredAllocation": _unary(prefer, pb.PreferredAllocationRequest),
            "Allocate": _unary(allocate, pb.AllocateRequest),
            "PreStartContainer": _unary(before_start, pb.PreStartContainerRequest),
        },
    )


async def register(folder: Path, *, endpoint: str, resource: str) -> None:
    """Make the plugin known that serves `resource` at the socket `endpoint` of the folder.

    Raises UnavailableError where no kubelet answers, InvalidError with its words where it
    refuses the plugin.
    """
    socket = folder / KUBELET_SOCKET
    request = pb.RegisterRequest(
        version=VERSION, endpoint=endpoint, resource_name=resource, options=OPTIONS
    )
    async with sockets.channel(socket) as channel:
        ask: Any = channel.unary_unary(
            REGISTER,
            request_serializer=pb.RegisterRequest.SerializeToString,
            response_deserializer=pb.Empty.FromString,
        )
        try:
            await ask(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _registration_error(socket, resource, error) from error


def _registration_error(socket: Path, resource: str, error: grpc.aio.AioRpcError) -> GpudeckError:
    away = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    if error.code() in away:
        return UnavailableError(
            f"no kubelet answers at {socket}: {error.details()}", reason="KubeletUnavailable"
        )
    return InvalidError(
        f"the kubelet refuses the plugin of {resource}: {error.details()}",
        reason="RegistrationRefused",
        field=resource,
    )


async def _refuse(context: Context, error: GpudeckError) -> None:
    """The kubelet shows these words in the pod's status (UnexpectedAdmissionError).

    It goes on with ", which is unexpected" (1.37), so they do not end with a full stop.
    """
    code = grpc.StatusCode.INVALID_ARGUMENT
    if isinstance(error, UnavailableError):
        code = grpc.StatusCode.UNAVAILABLE
    await context.abort(code, f"{error.reason}: {error.message.rstrip('.')}")


def _unary(function: Any, request: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        function,
        request_deserializer=request.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )
