# SPDX-License-Identifier: Apache-2.0
"""The plugin's peers on its node: a kubelet's calls and a maker's adapter, with faults."""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.kubelet.wire import dra_pb2, health_pb2, registration_pb2

GIB = 1024**3


def card(number: int, **changes: Any) -> adapter_pb2.Card:
    """A healthy H100 on bus 0x10 + `number`."""
    made = adapter_pb2.Card(
        pci_address=f"0000:{0x10 + number:02x}:00.0",
        uuid=f"GPU-00000000-0000-0000-0000-{number:012x}",
        minor=number,
        product_name="NVIDIA H100 80GB HBM3",
        architecture="Hopper",
        compute_api="CUDA",
        compute_capability="9.0",
        memory_bytes=80 * GIB,
        driver=adapter_pb2.DriverState(
            ready=True, reason="DriverReady", message="", version="580.65.06"
        ),
        api_driver_version="13.0",
        health=adapter_pb2.Health(
            verdict=adapter_pb2.VERDICT_HEALTHY, reason="Healthy", since_unix_seconds=1
        ),
        pcie_root="pci0000:10",
        numa_node=0,
    )
    made.MergeFrom(adapter_pb2.Card(**changes))
    return made


def sick(number: int, reason: str = "HardwareXid") -> adapter_pb2.Card:
    """A card with a verdict against it."""
    health = adapter_pb2.Health(
        verdict=adapter_pb2.VERDICT_UNHEALTHY, reason=reason, message="Xid 79: off the bus."
    )
    return card(number, health=health)


def device(number: int) -> str:
    """The DRA device name of `card(number)`."""
    return f"gpu-0000-{0x10 + number:02x}-00-0"


def partitionable(number: int) -> adapter_pb2.Card:
    """`card(number)` with one profile, of two memory slices each, at four places."""
    profile = adapter_pb2.PartitionProfile(
        name="1g.20gb",
        profile_id=15,
        memory_mib=20 * 1024,
        max_instances=4,
        slices=1,
        multiprocessors=26,
        placements=[adapter_pb2.Placement(start=start, size=2) for start in (0, 2, 4, 6)],
    )
    support = adapter_pb2.PartitionSupport(
        supported=True, total_slices=7, profiles=[profile], dynamic=True
    )
    return card(number, partition_support=support)


def partition(number: int, start: int) -> str:
    """The DRA device name of a partition of `partitionable(number)`."""
    return f"mig-0000-{0x10 + number:02x}-00-0-1g20gb-15-{start}"


class Adapter:
    """Serves gpudeck.adapter.v1 from a list of cards."""

    def __init__(self, socket: Path, cards: Iterable[adapter_pb2.Card]) -> None:
        self.socket = socket
        self.cards = list(cards)
        self.prepared: set[str] = set()
        """UIDs of the claims that are prepared now."""
        self.partitions: set[tuple[str, int, int]] = set()
        """PCI address, start and size of each partition that there is now."""
        self.daemon_shares: set[str] = set()
        """Ids of the shares that use an MPS daemon now."""
        self.is_stubborn = False
        """Whether no partition can be removed."""
        self.keeps: set[str] = set()
        """UIDs of the claims that cannot be given back."""
        self.has_edits = True
        """Whether devices get what a container needs for them."""
        self.refusals: dict[str, adapter_pb2.Error] = {}
        """By PCI address: what Prepare answers."""
        self.environment = ["NVIDIA_VISIBLE_DEVICES=void"]
        """What every container of a claim gets."""
        self.holding: list[str] | None = []
        """The CDI devices that containers have; None: the runtime does not answer."""
        self.asked: Callable[[], object] = lambda: None
        """Called when somebody asks for them."""
        self.prepare_calls = 0
        self.readers = 0
        """How many plugins follow the inventory."""
        self.may_answer = asyncio.Event()
        """Cleared: Prepare does its work and holds the answer back."""
        self.may_answer.set()
        self.working = 0
        """How many calls of Prepare have not been answered."""
        self._server: grpc.aio.Server | None = None
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Listen."""
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self._handler(),))
        self._server.add_insecure_port(f"unix://{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        """Go away as a killed process does."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def show(self, cards: Iterable[adapter_pb2.Card]) -> None:
        """Change the inventory."""
        self.cards = list(cards)
        self._changed.set()
        self._changed = asyncio.Event()

    def _handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        def unary(method: Any, request: Any, response: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                method,
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            )

        pb2 = adapter_pb2
        return grpc.method_handlers_generic_handler(
            "gpudeck.adapter.v1.Adapter",
            {
                "Identify": unary(self._identify, pb2.IdentifyRequest, pb2.IdentifyResponse),
                "Prepare": unary(self._prepare, pb2.PrepareRequest, pb2.PrepareResponse),
                "Holding": unary(self._holding, pb2.HoldingRequest, pb2.HoldingResponse),
                "Unprepare": unary(self._unprepare, pb2.UnprepareRequest, pb2.UnprepareResponse),
                "WatchCards": grpc.unary_stream_rpc_method_handler(
                    self._watch,
                    request_deserializer=pb2.WatchCardsRequest.FromString,
                    response_serializer=pb2.WatchCardsResponse.SerializeToString,
                ),
            },
        )

    async def _identify(self, request: Any, context: Any) -> adapter_pb2.IdentifyResponse:
        return adapter_pb2.IdentifyResponse(vendor="nvidia", heartbeat_seconds=5)

    async def _holding(self, request: Any, context: Any) -> adapter_pb2.HoldingResponse:
        self.asked()
        if self.holding is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the runtime does not answer")
        return adapter_pb2.HoldingResponse(cdi_devices=self.holding)

    async def _watch(
        self, request: Any, context: Any
    ) -> AsyncIterator[adapter_pb2.WatchCardsResponse]:
        revision = 0
        self.readers += 1
        try:
            while True:
                revision += 1
                changed = self._changed
                snapshot = adapter_pb2.Snapshot(revision=revision, cards=self.cards)
                yield adapter_pb2.WatchCardsResponse(snapshot=snapshot)
                await changed.wait()
        finally:
            self.readers -= 1

    async def _prepare(self, request: Any, context: Any) -> adapter_pb2.PrepareResponse:
        self.prepare_calls += 1
        claims = [self._prepared(each, request.hook_path) for each in request.claims]
        self.working += 1
        try:
            await self.may_answer.wait()
        finally:
            self.working -= 1
        return adapter_pb2.PrepareResponse(claims=claims)

    def _prepared(
        self, request: adapter_pb2.ClaimRequest, hook_path: str
    ) -> adapter_pb2.PreparedClaim:
        minors = {each.pci_address: each.minor for each in self.cards}
        for each in request.devices:
            if each.pci_address in self.refusals:
                return adapter_pb2.PreparedClaim(
                    uid=request.claim.uid, error=self.refusals[each.pci_address]
                )
        self.prepared.add(request.claim.uid)
        self.partitions |= _partitions(request)
        self.daemon_shares |= _daemon_shares(request)
        hook = adapter_pb2.Hook(hook_name="createContainer", path=hook_path, args=["hook"])
        return adapter_pb2.PreparedClaim(
            uid=request.claim.uid,
            shared=adapter_pb2.ContainerEdits(
                env=self.environment, hooks=[hook] if hook_path else []
            ),
            devices=[
                adapter_pb2.PreparedDevice(
                    name=each.name,
                    edits=_edits(minors[each.pci_address]) if self.has_edits else None,
                )
                for each in request.devices
            ],
        )

    async def _unprepare(self, request: Any, context: Any) -> adapter_pb2.UnprepareResponse:
        return adapter_pb2.UnprepareResponse(claims=map(self._unprepared, request.claims))

    def _unprepared(self, request: adapter_pb2.ClaimRequest) -> adapter_pb2.UnpreparedClaim:
        gone = _partitions(request)
        if (gone and self.is_stubborn) or request.claim.uid in self.keeps:
            error = adapter_pb2.Error(reason="InUse", message="a process uses it", retryable=True)
            return adapter_pb2.UnpreparedClaim(uid=request.claim.uid, error=error)
        self.prepared.discard(request.claim.uid)
        self.partitions -= gone
        self.daemon_shares -= _daemon_shares(request)
        return adapter_pb2.UnpreparedClaim(uid=request.claim.uid)


def _partitions(request: adapter_pb2.ClaimRequest) -> set[tuple[str, int, int]]:
    return {
        (each.pci_address, each.partition.placement.start, each.partition.placement.size)
        for each in request.devices
        if each.HasField("partition") and not each.admin_access
    }


def _daemon_shares(request: adapter_pb2.ClaimRequest) -> set[str]:
    return {
        each.share.share_id
        for each in request.devices
        if each.share.strategy == adapter_pb2.SHARING_STRATEGY_MPS and not each.admin_access
    }


def _edits(minor: int) -> adapter_pb2.ContainerEdits:
    path = f"/dev/nvidia{minor}"
    node = adapter_pb2.DeviceNode(
        path=path, host_path=f"/mnt/host{path}", type="c", major=195, minor=minor, permissions="rw"
    )
    return adapter_pb2.ContainerEdits(device_nodes=[node])


class Kubelet:
    """Calls a plugin as kubelet 1.37 does."""

    def __init__(self, registry_dir: Path) -> None:
        self._registry_dir = registry_dir
        self._plugin: grpc.aio.Channel | None = None
        self._former: list[grpc.aio.Channel] = []
        """Of plugins that were registered before."""
        self.info = registration_pb2.PluginInfo()

    async def register(self, pod_uid: str = "") -> None:
        """Find the registration socket of the pod, ask who is there and accept it."""
        (path,) = self._registry_dir.glob(f"*{pod_uid}-reg.sock")
        # The kubelet's dialer sets no authority, so the server sees the percent-encoded path.
        authority = urllib.parse.quote(str(path), safe="")
        options = [("grpc.default_authority", authority)]
        async with grpc.aio.insecure_channel(f"unix://{path}", options=options) as channel:
            ask: Any = channel.unary_unary(
                "/pluginregistration.Registration/GetInfo",
                request_serializer=registration_pb2.InfoRequest.SerializeToString,
                response_deserializer=registration_pb2.PluginInfo.FromString,
            )
            tell: Any = channel.unary_unary(
                "/pluginregistration.Registration/NotifyRegistrationStatus",
                request_serializer=registration_pb2.RegistrationStatus.SerializeToString,
                response_deserializer=registration_pb2.RegistrationStatusResponse.FromString,
            )
            self.info = await ask(registration_pb2.InfoRequest(), timeout=5)
            status = registration_pb2.RegistrationStatus(plugin_registered=True)
            await tell(status, timeout=5)
        if self._plugin is not None:  # Its calls in flight go on.
            self._former.append(self._plugin)
        self._plugin = grpc.aio.insecure_channel(
            f"unix:{self.info.endpoint}", options=[("grpc.default_authority", "localhost")]
        )

    async def close(self) -> None:
        """Drop every connection."""
        if self._plugin is not None:
            self._former.append(self._plugin)
            self._plugin = None
        while self._former:
            await self._former.pop().close()

    async def prepare(
        self, *claims: dict[str, Any], version: str = "v1"
    ) -> dict[str, dra_pb2.NodePrepareResourceResponse]:
        """NodePrepareResources for claims as the API has them."""
        request = dra_pb2.NodePrepareResourcesRequest(claims=map(_claim, claims))
        response = await self._call(f"{version}.DRAPlugin/NodePrepareResources", request)
        return dict(response.claims)

    async def unprepare(self, *claims: dict[str, Any], version: str = "v1") -> dict[str, str]:
        """NodeUnprepareResources; returns the errors."""
        request = dra_pb2.NodeUnprepareResourcesRequest(claims=map(_claim, claims))
        response = await self._call(f"{version}.DRAPlugin/NodeUnprepareResources", request)
        return {uid: each.error for uid, each in response.claims.items()}

    async def open_health(self, version: str = "v1") -> Any:
        """The health stream, to be read and cancelled."""
        assert self._plugin is not None
        watch: Any = self._plugin.unary_stream(
            f"/{version}.DRAResourceHealth/NodeWatchResources",
            request_serializer=health_pb2.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=health_pb2.NodeWatchResourcesResponse.FromString,
        )
        return watch(health_pb2.NodeWatchResourcesRequest())

    async def health(self, version: str = "v1") -> health_pb2.NodeWatchResourcesResponse:
        """The first message of the health stream."""
        call = await self.open_health(version)
        try:
            response: health_pb2.NodeWatchResourcesResponse = await call.read()
        finally:
            call.cancel()
        return response

    async def _call(self, method: str, request: Any) -> Any:
        assert self._plugin is not None
        name = type(request).__name__.replace("Request", "Response")
        call: Any = self._plugin.unary_unary(
            f"/k8s.io.kubelet.pkg.apis.dra.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(dra_pb2, name).FromString,
        )
        return await call(request, timeout=45)


def _claim(claim: dict[str, Any]) -> dra_pb2.Claim:
    meta = claim["metadata"]
    return dra_pb2.Claim(namespace=meta["namespace"], uid=meta["uid"], name=meta["name"])
