# SPDX-License-Identifier: Apache-2.0
"""One question to the kubelet's pod-resources API: what have the pods of this node?

`using` reads claims of its answer, `holding` devices by container, `listing` pods. The kubelet
lists pods that it knows and that have not terminated (1.34 to 1.37); it does not tell when that
changes. Changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gpudeck import sockets
from gpudeck.errors import UnavailableError
from gpudeck.kubelet.wire import podresources_pb2

METHOD = "/v1.PodResourcesLister/List"
CALL_SECONDS = 5.0


async def listed(socket: Path, *, what: str) -> podresources_pb2.ListPodResourcesResponse:
    """Ask. Raises UnavailableError, which says `what` is not told, without an answer."""
    async with sockets.channel(socket) as channel:
        ask: Any = channel.unary_unary(
            METHOD,
            request_serializer=podresources_pb2.ListPodResourcesRequest.SerializeToString,
            response_deserializer=podresources_pb2.ListPodResourcesResponse.FromString,
        )
        request = podresources_pb2.ListPodResourcesRequest()
        try:
            answer: podresources_pb2.ListPodResourcesResponse = await ask(
                request, timeout=CALL_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            raise UnavailableError(
                f"the kubelet does not tell at {socket} {what}: {error.details()}",
                reason="PodResourcesUnavailable",
            ) from error
    return answer
