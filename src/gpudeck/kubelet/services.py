# SPDX-License-Identifier: Apache-2.0
"""The kubelet's gRPC services, bound to plain coroutines.

v1 and v1beta1 of DRAPlugin, and v1 and v1alpha1 of DRAResourceHealth, are the same on
the wire as far as we use them (see protos/kubelet), so one function serves both. The
kubelet takes the first DRAPlugin version of the plugin's list that it knows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import grpc
import grpc.aio

from gpudeck.kubelet.wire import dra_pb2, health_pb2, registration_pb2

DRA_SERVICES = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}
"""What PluginInfo.supported_versions calls each service, preferred first, and its full name."""
HEALTH_SERVICES = {
    "v1.DRAResourceHealth": "v1.DRAResourceHealth",
    "v1alpha1.DRAResourceHealth": "v1alpha1.DRAResourceHealth",
}
REGISTRATION_SERVICE = "pluginregistration.Registration"

Handler = grpc.GenericRpcHandler
Context = Any  # grpc.aio.ServicerContext; its stubs are generic in ways that help nobody here.


class Plugin(Protocol):
    """What serves the kubelet's calls; every claim of a request must be in the response."""

    async def prepare(
        self, request: dra_pb2.NodePrepareResourcesRequest, context: Context
    ) -> dra_pb2.NodePrepareResourcesResponse: ...

    async def unprepare(
        self, request: dra_pb2.NodeUnprepareResourcesRequest, context: Context
    ) -> dra_pb2.NodeUnprepareResourcesResponse: ...

    def health(
        self, request: health_pb2.NodeWatchResourcesRequest, context: Context
    ) -> AsyncIterator[health_pb2.NodeWatchResourcesResponse]: ...


def filled(*handlers: Handler[Any, Any]) -> Callable[[grpc.aio.Server], None]:
    """What gives a server these services."""
    return lambda server: server.add_generic_rpc_handlers(handlers)


def plugin_handlers(plugin: Plugin) -> list[Handler[Any, Any]]:
    """The services of the plugin's own socket."""
    prepare = grpc.unary_unary_rpc_method_handler(
        plugin.prepare,
        request_deserializer=dra_pb2.NodePrepareResourcesRequest.FromString,
        response_serializer=dra_pb2.NodePrepareResourcesResponse.SerializeToString,
    )
    unprepare = grpc.unary_unary_rpc_method_handler(
        plugin.unprepare,
        request_deserializer=dra_pb2.NodeUnprepareResourcesRequest.FromString,
        response_serializer=dra_pb2.NodeUnprepareResourcesResponse.SerializeToString,
    )
    watch = grpc.unary_stream_rpc_method_handler(
        plugin.health,
        request_deserializer=health_pb2.NodeWatchResourcesRequest.FromString,
        response_serializer=health_pb2.NodeWatchResourcesResponse.SerializeToString,
    )
    calls = {"NodePrepareResources": prepare, "NodeUnprepareResources": unprepare}
    return [
        *(grpc.method_handlers_generic_handler(name, calls) for name in DRA_SERVICES.values()),
        *(
            grpc.method_handlers_generic_handler(name, {"NodeWatchResources": watch})
            for name in HEALTH_SERVICES.values()
        ),
    ]


def registration_handler(
    info: registration_pb2.PluginInfo, notified: Callable[[bool, str], None]
) -> Handler[Any, Any]:
    """The service of the registration socket: answers `info`, passes on the kubelet's verdict."""

    async def get_info(request: object, context: Context) -> registration_pb2.PluginInfo:
        return info

    async def notify(
        request: registration_pb2.RegistrationStatus, context: Context
    ) -> registration_pb2.RegistrationStatusResponse:
        notified(request.plugin_registered, request.error)
        return registration_pb2.RegistrationStatusResponse()

    return _registration(get_info, notify)


def _registration(
    get_info: Callable[[Any, Context], Awaitable[registration_pb2.PluginInfo]],
    notify: Callable[[Any, Context], Awaitable[registration_pb2.RegistrationStatusResponse]],
) -> Handler[Any, Any]:
    return grpc.method_handlers_generic_handler(
        REGISTRATION_SERVICE,
        {
            "GetInfo": grpc.unary_unary_rpc_method_handler(
                get_info,
                request_deserializer=registration_pb2.InfoRequest.FromString,
                response_serializer=registration_pb2.PluginInfo.SerializeToString,
            ),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                notify,
                request_deserializer=registration_pb2.RegistrationStatus.FromString,
                response_serializer=registration_pb2.RegistrationStatusResponse.SerializeToString,
            ),
        },
    )
