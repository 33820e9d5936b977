# SPDX-License-Identifier: Apache-2.0
"""A kubelet as far as device plugins see it: it registers them, follows them, and restarts.

As kubelet 1.37 does, it removes every file of the folder when it starts and then makes its
socket, calls a plugin back before it answers the registration, replaces the endpoint of a
resource that registers anew, and offers nothing of a plugin whose stream has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gpudeck.kubelet import checkpoints, deviceplugins, podresources
from gpudeck.kubelet.wire import deviceplugin_pb2 as pb
from gpudeck.kubelet.wire import podresources_pb2


class Endpoint:
    """One registration that is followed."""

    def __init__(self, socket: Path, listed: Callable[[], None]) -> None:
        self._listed = listed
        self.channel = grpc.aio.insecure_channel(
            f"unix:{socket}", options=[("grpc.default_authority", "localhost")]
        )
        self.lists: list[dict[str, str]] = []
        self.is_open = False
        self.task: asyncio.Task[None] | None = None

    async def call(self, method: str, request: Any, answer: Any) -> Any:
        """Call a method of the plugin."""
        ask: Any = self.channel.unary_unary(
            f"/{deviceplugins.SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return await ask(request, timeout=5)

    async def follow(self) -> None:
        """Read the lists of the plugin until it ends."""
        ask: Any = self.channel.unary_stream(
            f"/{deviceplugins.SERVICE}/ListAndWatch",
            request_serializer=pb.Empty.SerializeToString,
            response_deserializer=pb.ListAndWatchResponse.FromString,
        )
        self.is_open = True
        try:
            async for each in ask(pb.Empty()):
                self.lists.append({one.ID: one.health for one in each.devices})
                self._listed()
        except grpc.aio.AioRpcError:
            pass
        finally:
            self.is_open = False

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
        await self.channel.close()


class Kubelet:
    """Serves kubelet.sock of a folder, and the pod-resources socket beside it."""

    def __init__(self, folder: Path, pod_resources: Path) -> None:
        self.folder = folder
        self.pod_resources = pod_resources
        self.endpoints: dict[str, Endpoint] = {}
        self.registrations: list[str] = []
        self.held: dict[str, list[str]] = {}
        """What pods hold, by resource."""
        self.untold: dict[str, list[str]] = {}
        """What init containers hold: the API does not tell it, the file has it."""
        self._ended: dict[str, list[str]] = {}
        self.refuses = False
        self.drops = False
        """It accepts registrations and follows nobody."""
        self._server: Any = None

    async def start(self) -> None:
        """Begin as a kubelet does: with an empty folder."""
        for path in self.folder.iterdir():
            if path.name != checkpoints.FILE:
                path.unlink()
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        register = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=pb.RegisterRequest.FromString,
            response_serializer=pb.Empty.SerializeToString,
        )
        lister = grpc.unary_unary_rpc_method_handler(
            self._list,
            request_deserializer=podresources_pb2.ListPodResourcesRequest.FromString,
            response_serializer=podresources_pb2.ListPodResourcesResponse.SerializeToString,
        )
        service, _, name = podresources.METHOD.strip("/").partition("/")
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "v1beta1.Registration", {"Register": register}
                ),
                grpc.method_handlers_generic_handler(service, {name: lister}),
            )
        )
        self._server.add_insecure_port(f"unix:{self.folder / deviceplugins.KUBELET_SOCKET}")
        self._server.add_insecure_port(f"unix:{self.pod_resources}")
        await self._server.start()

    async def stop(self) -> None:
        """End, and with it every connection."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(0)
        while self.endpoints:
            _, endpoint = self.endpoints.popitem()
            await endpoint.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def devices(self, resource: str) -> dict[str, str] | None:
        """Health of each device in the last list; None where no plugin is followed."""
        endpoint = self.endpoints.get(resource)
        if endpoint is None or not endpoint.is_open or not endpoint.lists:
            return None
        return endpoint.lists[-1]

    def allocatable(self, resource: str) -> int | None:
        """What the Node would show."""
        found = self.devices(resource)
        return None if found is None else list(found.values()).count("Healthy")

    async def allocate(self, resource: str, *ids: str) -> pb.ContainerAllocateResponse:
        """Give a container devices."""
        request = pb.AllocateRequest(
            container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)]
        )
        answer = await self.endpoints[resource].call("Allocate", request, pb.AllocateResponse)
        found: pb.ContainerAllocateResponse = answer.container_responses[0]
        return found

    async def prefer(self, resource: str, available: list[str], size: int) -> list[str]:
        """Ask which devices a container should get."""
        request = pb.PreferredAllocationRequest(
            container_requests=[
                pb.ContainerPreferredAllocationRequest(
                    available_deviceIDs=available, allocation_size=size
                )
            ]
        )
        answer = await self.endpoints[resource].call(
            "GetPreferredAllocation", request, pb.PreferredAllocationResponse
        )
        return list(answer.container_responses[0].deviceIDs)

    def _write(self) -> None:
        """As the kubelet does at each list; of pods that have ended it writes until it is asked."""
        entries = [
            {"PodUID": "uid", "ContainerName": "c", "ResourceName": name, "DeviceIDs": {"-1": ids}}
            for known in (self.held, self.untold, self._ended)
            for name, ids in known.items()
        ]
        content = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1}
        fresh = self.folder / ".fresh"
        fresh.write_text(json.dumps(content))
        fresh.rename(self.folder / checkpoints.FILE)

    def end(self, known: dict[str, list[str]]) -> None:
        """The pods that hold this have ended; the kubelet forgets them when it is asked next."""
        self._ended = dict(known)
        known.clear()

    async def _register(self, request: pb.RegisterRequest, context: Any) -> pb.Empty:
        if self.refuses or request.version != "v1beta1":
            await context.abort(grpc.StatusCode.UNKNOWN, "not now")
        server = self._server
        endpoint = Endpoint(self.folder / request.endpoint, self._write)
        async with contextlib.AsyncExitStack() as failed:
            failed.push_async_callback(endpoint.close)
            options = await endpoint.call(
                "GetDevicePluginOptions", pb.Empty(), pb.DevicePluginOptions
            )
            assert options == request.options
            if self._server is not server:  # It was stopped meanwhile, and ends nothing more.
                await context.abort(grpc.StatusCode.UNAVAILABLE, "stopped")
            failed.pop_all()
        old = self.endpoints.get(request.resource_name)
        self.endpoints[request.resource_name] = endpoint
        self.registrations.append(request.resource_name)
        if not self.drops:
            endpoint.task = asyncio.create_task(endpoint.follow())
        if old is not None:
            await old.close()
        return pb.Empty()

    async def _list(self, request: Any, context: Any) -> podresources_pb2.ListPodResourcesResponse:
        self._ended = {}
        devices = [
            podresources_pb2.ContainerDevices(resource_name=name, device_ids=ids)
            for name, ids in self.held.items()
        ]
        container = podresources_pb2.ContainerResources(name="main", devices=devices)
        pod = podresources_pb2.PodResources(name="pod", namespace="t", containers=[container])
        return podresources_pb2.ListPodResourcesResponse(pod_resources=[pod])
