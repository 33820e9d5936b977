# SPDX-License-Identifier: Apache-2.0
"""What a container runtime tells, over a real socket."""

from __future__ import annotations

import contextlib
import functools
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from gpudeck.adapter import containers, server
from gpudeck.adapter.cri import runtime_pb2
from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.adapter.v1 import adapter_pb2_grpc
from gpudeck.errors import UnavailableError
from gpudeck.vendors import contract, registry

KIND = "k8s.gpu.deckhouse.io/claim"
RUNNING, EXITED = runtime_pb2.CONTAINER_RUNNING, runtime_pb2.CONTAINER_EXITED
CREATED, UNKNOWN = runtime_pb2.CONTAINER_CREATED, runtime_pb2.CONTAINER_UNKNOWN


def details(*devices: str) -> dict[str, Any]:
    """What containerd 2.4 says of a container, as far as it matters."""
    config: dict[str, Any] = {"metadata": {"name": "c"}}
    if devices:
        config["CDI_devices"] = [{"name": each} for each in devices]
    return {"sandboxID": "s", "pid": 1, "config": config, "runtimeSpec": {"ociVersion": "1.3.0"}}


class Runtime:
    """Containers by id: their state, and what is said of them in detail."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.containers: dict[str, tuple[int, dict[str, Any]]] = {}
        self.removed: set[str] = set()
        """Listed and then not there."""

    async def list(self, request: Any, context: Any) -> runtime_pb2.ListContainersResponse:
        listed = [
            runtime_pb2.Container(id=each, state=state)  # type: ignore[arg-type]
            for each, (state, _) in self.containers.items()
        ]
        return runtime_pb2.ListContainersResponse(containers=listed)

    async def status(self, request: Any, context: Any) -> runtime_pb2.ContainerStatusResponse:
        if request.container_id in self.removed:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such container")
        said = self.containers[request.container_id][1] if request.verbose else {}
        return runtime_pb2.ContainerStatusResponse(info={"info": json.dumps(said)})

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer inside the block."""
        methods = {
            "ListContainers": grpc.unary_unary_rpc_method_handler(
                self.list,
                request_deserializer=runtime_pb2.ListContainersRequest.FromString,
                response_serializer=runtime_pb2.ListContainersResponse.SerializeToString,
            ),
            "ContainerStatus": grpc.unary_unary_rpc_method_handler(
                self.status,
                request_deserializer=runtime_pb2.ContainerStatusRequest.FromString,
                response_serializer=runtime_pb2.ContainerStatusResponse.SerializeToString,
            ),
        }
        made = aio.server()
        handlers = grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", methods)
        made.add_generic_rpc_handlers((handlers,))
        made.add_insecure_port(f"unix:{self.socket}")
        await made.start()
        try:
            yield
        finally:
            await made.stop(None)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with tempfile.TemporaryDirectory(prefix="cri-") as folder:
        yield Runtime(Path(folder) / "runtime.sock")


async def test_devices_of_all_containers_that_have_not_ended_are_told(runtime: Runtime) -> None:
    runtime.containers = {
        "runs": (RUNNING, details(f"{KIND}=u1-gpu", "vendor.com/net=x")),
        "starts": (CREATED, details(f"{KIND}=u2-gpu")),
        "lost": (UNKNOWN, details(f"{KIND}=u3-gpu")),
        "ended": (EXITED, details(f"{KIND}=u4-gpu")),
        "plain": (RUNNING, details()),
        "going": (RUNNING, details(f"{KIND}=u5-gpu")),
    }
    runtime.removed = {"going"}
    async with runtime.serving():
        found = await containers.cdi_devices(runtime.socket, KIND)
    assert found == [f"{KIND}=u1-gpu", f"{KIND}=u2-gpu", f"{KIND}=u3-gpu"]


@pytest.mark.parametrize("said", [{}, {"runtimeSpec": {}}, {"config": None}])
async def test_a_runtime_that_does_not_say_what_it_was_given_is_no_answer(
    runtime: Runtime, said: dict[str, Any]
) -> None:
    runtime.containers = {"c": (RUNNING, said)}
    async with runtime.serving():
        with pytest.raises(UnavailableError, match="does not tell what a container was made with"):
            await containers.cdi_devices(runtime.socket, KIND)


async def test_a_runtime_that_is_away_is_no_answer_and_is_heard_as_soon_as_it_is_back(
    runtime: Runtime,
) -> None:
    with pytest.raises(UnavailableError) as away:
        await containers.cdi_devices(runtime.socket, KIND)
    async with runtime.serving():
        assert await containers.cdi_devices(runtime.socket, KIND) == []
    assert str(runtime.socket) in str(away.value)  # Who keeps the error keeps its channel.


async def test_the_adapter_passes_the_answer_on_and_says_when_there_is_none(
    runtime: Runtime,
) -> None:
    vendor = registry.load("simulated").vendor(
        contract.VendorSettings(host_root=str(runtime.socket.parent))
    )
    holding = functools.partial(containers.cdi_devices, runtime.socket)
    runtime.containers = {"c": (RUNNING, details(f"{KIND}=u1-gpu"))}
    for given, wanted in ((holding, [f"{KIND}=u1-gpu"]), (None, None)):
        adapter = server.Adapter(vendor, server.Feed(), _no_action, holding=given)
        socket = runtime.socket.with_name("adapter.sock")
        async with (
            server.serving(adapter, socket),
            aio.insecure_channel(f"unix:{socket}") as channel,
        ):
            stub = adapter_pb2_grpc.AdapterStub(channel)  # type: ignore[no-untyped-call]
            ask = functools.partial(stub.Holding, pb.HoldingRequest(kind=KIND))
            if wanted is None:
                with pytest.raises(aio.AioRpcError) as none:
                    await ask()
                assert none.value.code() is grpc.StatusCode.UNAVAILABLE
                continue
            async with runtime.serving():
                assert list((await ask()).cdi_devices) == wanted
            with pytest.raises(aio.AioRpcError) as away:
                await ask()
            assert away.value.code() is grpc.StatusCode.UNAVAILABLE


async def _no_action(address: str, action: contract.Action) -> contract.Partition | None:
    return None
