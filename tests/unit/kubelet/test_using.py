# SPDX-License-Identifier: Apache-2.0
"""What the kubelet says that pods use, over a real socket."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from gpudeck.errors import UnavailableError
from gpudeck.kubelet import using
from gpudeck.kubelet.wire import podresources_pb2


@pytest.fixture
def socket() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pods-") as folder:
        yield Path(folder) / "kubelet.sock"


def container(*claims: tuple[str, str]) -> podresources_pb2.ContainerResources:
    """A container with claims of namespace `t`, each with the name of one CDI device."""
    return podresources_pb2.ContainerResources(
        dynamic_resources=[
            podresources_pb2.DynamicResource(
                claim_name=claim,
                claim_namespace="t",
                claim_resources=[
                    podresources_pb2.ClaimResource(
                        cdi_devices=[podresources_pb2.CDIDevice(name=device)]
                    )
                ],
            )
            for claim, device in claims
        ]
    )


@contextlib.asynccontextmanager
async def kubelet(socket: Path, *pods: podresources_pb2.PodResources) -> AsyncIterator[None]:
    """It answers inside the block."""

    async def answer(request: Any, context: Any) -> podresources_pb2.ListPodResourcesResponse:
        return podresources_pb2.ListPodResourcesResponse(pod_resources=pods)

    method = grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=podresources_pb2.ListPodResourcesRequest.FromString,
        response_serializer=podresources_pb2.ListPodResourcesResponse.SerializeToString,
    )
    made = aio.server()
    handlers = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method})
    made.add_generic_rpc_handlers((handlers,))
    made.add_insecure_port(f"unix:{socket}")
    await made.start()
    try:
        yield
    finally:
        await made.stop(None)


async def test_claims_of_all_containers_come_with_their_devices(socket: Path) -> None:
    pods = [
        podresources_pb2.PodResources(
            containers=[container(("a", "k=1")), container(("a", "k=2"))]
        ),
        podresources_pb2.PodResources(containers=[container(("b", "k=3"))]),
        podresources_pb2.PodResources(containers=[container()]),
    ]

    async with kubelet(socket, *pods):
        found = await using.used(socket)
    assert found.claims == {"t/a": {"k=1", "k=2"}, "t/b": {"k=3"}}


async def test_a_kubelet_that_is_away_is_no_answer(socket: Path) -> None:
    with pytest.raises(UnavailableError, match="does not tell at"):
        await using.used(socket)


async def test_a_kubelet_that_was_away_is_heard_as_soon_as_it_is_back(socket: Path) -> None:
    with pytest.raises(UnavailableError) as away:
        await using.used(socket)
    async with kubelet(socket):
        assert (await using.used(socket)).claims == {}
    assert "does not tell" in str(away.value)  # Who keeps the error keeps its channel.
