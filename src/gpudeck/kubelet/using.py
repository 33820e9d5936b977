# SPDX-License-Identifier: Apache-2.0
"""Which claims containers of this node use, as the kubelet's pod-resources API tells it.

`dra.collecting` asks before it frees what the kubelet may have forgotten. The kubelet
lists pods that it knows and that have not terminated, without their ordinary init
containers; a claim comes with its name and its CDI devices. A claim that it has forgotten
is left out even while a container of its pod runs (1.34 to 1.37). Changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gpudeck.errors import UnavailableError
from gpudeck.kubelet.wire import podresources_pb2

METHOD = "/v1.PodResourcesLister/List"
CALL_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Used:
    """The fully qualified CDI devices of each claim, which is `namespace/name`."""

    claims: Mapping[str, frozenset[str]]


async def used(socket: Path) -> Used:
    """Ask the kubelet. Raises UnavailableError when it does not answer."""
    options = [("grpc.default_authority", "localhost")]
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        ask: Any = channel.unary_unary(
            METHOD,
            request_serializer=podresources_pb2.ListPodResourcesRequest.SerializeToString,
            response_deserializer=podresources_pb2.ListPodResourcesResponse.FromString,
        )
        try:
            answer = await ask(podresources_pb2.ListPodResourcesRequest(), timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise UnavailableError(
                f"the kubelet does not tell at {socket} what containers use: {error.details()}",
                reason="PodResourcesUnavailable",
            ) from error
    return _read(answer)


def _read(answer: podresources_pb2.ListPodResourcesResponse) -> Used:
    found: dict[str, frozenset[str]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for claim in container.dynamic_resources:
                name = f"{claim.claim_namespace}/{claim.claim_name}"
                devices = {each.name for one in claim.claim_resources for each in one.cdi_devices}
                found[name] = found.get(name, frozenset()) | devices
    return Used(found)
