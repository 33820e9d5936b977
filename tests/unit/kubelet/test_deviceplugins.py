# SPDX-License-Identifier: Apache-2.0
"""A plugin's refusals, as the kubelet reads them from its socket."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from gpudeck import sockets
from gpudeck.errors import GpudeckError, InvalidError, UnavailableError
from gpudeck.kubelet import deviceplugins, services
from gpudeck.kubelet.wire import deviceplugin_pb2 as pb

CALLS: dict[str, tuple[Any, Any]] = {
    "Allocate": (pb.AllocateRequest(), pb.AllocateResponse),
    "GetPreferredAllocation": (pb.PreferredAllocationRequest(), pb.PreferredAllocationResponse),
}


class Refusing:
    """A plugin that gives nothing."""

    def __init__(self, error: GpudeckError) -> None:
        self._error = error

    async def watch(self) -> AsyncGenerator[pb.ListAndWatchResponse, None]:
        yield pb.ListAndWatchResponse()

    def prefer(self, request: pb.PreferredAllocationRequest) -> pb.PreferredAllocationResponse:
        raise self._error

    def allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        raise self._error


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        yield Path(folder) / "gpu.sock"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidError("It is no more.", reason="Gone"), grpc.StatusCode.INVALID_ARGUMENT),
        (UnavailableError("It is no more", reason="Gone"), grpc.StatusCode.UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("method", list(CALLS))
async def test_a_refusal_is_a_sentence_that_the_kubelet_can_go_on_with(
    path: Path, error: GpudeckError, code: grpc.StatusCode, method: str
) -> None:
    """The kubelet puts ", which is unexpected" behind it (1.37)."""
    plugin = deviceplugins.handler(Refusing(error))
    request, response = CALLS[method]
    async with (
        sockets.served(path, services.filled(plugin), grace_seconds=0.1),
        grpc.aio.insecure_channel(f"unix:{path}") as channel,
    ):
        ask: Any = channel.unary_unary(
            f"/{deviceplugins.SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(request)
    assert (caught.value.code(), caught.value.details()) == (code, "Gone: It is no more")
