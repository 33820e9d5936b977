# SPDX-License-Identifier: Apache-2.0
"""The kubelet's calls in its own messages; the work is done by `preparing` and `health`.

Every claim of a request has an entry in the response, whatever happens: the kubelet
(1.37) takes a missing one for a failure of the whole batch. An error reads
`Reason: sentence`, since the kubelet shows it on the pod as it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from gpudeck import logs
from gpudeck.cdi import rendering
from gpudeck.dra import health, metrics, preparing
from gpudeck.dra.allocations import HeldDevice, Reference
from gpudeck.dra.checkpoint import Entry
from gpudeck.errors import GpudeckError
from gpudeck.kubelet import services
from gpudeck.kubelet.wire import dra_pb2, health_pb2

log = logs.get(__name__)


class Server:
    """Implements `kubelet.services.Plugin`."""

    def __init__(self, preparer: preparing.Preparer, verdicts: health.Health) -> None:
        self._preparer = preparer
        self._verdicts = verdicts

    async def prepare(
        self, request: dra_pb2.NodePrepareResourcesRequest, context: services.Context
    ) -> dra_pb2.NodePrepareResourcesResponse:
        claims = _references(request.claims)
        with metrics.call_seconds.labels("prepare").time():
            try:
                outcomes = await self._preparer.prepare(claims)
            except GpudeckError as error:
                outcomes = {claim.uid: error for claim in claims}
        response = dra_pb2.NodePrepareResourcesResponse()
        for claim in claims:
            outcome = outcomes[claim.uid]
            if isinstance(outcome, GpudeckError):
                response.claims[claim.uid].error = _told("prepare", claim, outcome)
            else:
                response.claims[claim.uid].devices.extend(_devices(claim.uid, outcome))
        return response

    async def unprepare(
        self, request: dra_pb2.NodeUnprepareResourcesRequest, context: services.Context
    ) -> dra_pb2.NodeUnprepareResourcesResponse:
        claims = _references(request.claims)
        with metrics.call_seconds.labels("unprepare").time():
            try:
                refused = await self._preparer.unprepare(claims)
            except GpudeckError as error:
                refused = dict.fromkeys((claim.uid for claim in claims), error)
        response = dra_pb2.NodeUnprepareResourcesResponse()
        for claim in claims:
            why = refused[claim.uid]
            response.claims[claim.uid].error = _told("unprepare", claim, why) if why else ""
        return response

    async def health(
        self, request: health_pb2.NodeWatchResourcesRequest, context: services.Context
    ) -> AsyncIterator[health_pb2.NodeWatchResourcesResponse]:
        # gRPC tells a stream by the function: it must itself be an async generator.
        async for report in self._verdicts.stream():
            yield report


def _references(claims: Sequence[dra_pb2.Claim]) -> list[Reference]:
    return [Reference(each.uid, each.namespace, each.name) for each in claims]


def _devices(claim_uid: str, entry: Entry) -> list[dra_pb2.Device]:
    """The devices of a claim; the first of each request brings what tells of all of them."""
    found = [_device(claim_uid, each) for each in entry.devices]
    if entry.metadata is not None:
        told: set[str] = set()
        for device in found:
            for request in device.request_names:
                if request not in told:
                    device.cdi_device_ids.append(rendering.metadata_id(claim_uid, request))
                    told.add(request)
    return found


def _device(claim_uid: str, held: HeldDevice) -> dra_pb2.Device:
    device = dra_pb2.Device(
        request_names=held.requests,
        pool_name=held.pool,
        device_name=held.name,
        cdi_device_ids=[rendering.device_id(claim_uid, held.key)],
    )
    if held.share_id is not None:
        device.share_id = held.share_id
    return device


def _told(call: str, claim: Reference, error: GpudeckError) -> str:
    metrics.claim_errors.labels(call, error.reason).inc()
    log.warning("Refused a claim", call=call, claim=claim, uid=claim.uid, error=error)
    return f"{error.reason}: {error}"
