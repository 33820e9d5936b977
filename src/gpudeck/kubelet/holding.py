# SPDX-License-Identifier: Apache-2.0
"""Which devices of device plugins the containers of this node have, as the kubelet tells it.

The kubelet lists pods that have not terminated (pod-resources API, 1.34 to 1.37), also
those of a resource that no plugin serves any more. Changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gpudeck.errors import UnavailableError
from gpudeck.kubelet import using
from gpudeck.kubelet.wire import podresources_pb2


async def held(socket: Path) -> dict[str, frozenset[str]]:
    """Ids of devices by resource. Raises UnavailableError when the kubelet does not answer."""
    options = [("grpc.default_authority", "localhost")]
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        ask: Any = channel.unary_unary(
            using.METHOD,
            request_serializer=podresources_pb2.ListPodResourcesRequest.SerializeToString,
            response_deserializer=podresources_pb2.ListPodResourcesResponse.FromString,
        )
        try:
            answer = await ask(
                podresources_pb2.ListPodResourcesRequest(), timeout=using.CALL_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            raise UnavailableError(
                f"the kubelet does not tell at {socket} what containers have: {error.details()}",
                reason="PodResourcesUnavailable",
            ) from error
    found: dict[str, frozenset[str]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for each in container.devices:
                ids = frozenset(each.device_ids)
                found[each.resource_name] = found.get(each.resource_name, frozenset()) | ids
    return found
