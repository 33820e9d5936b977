# SPDX-License-Identifier: Apache-2.0
"""How long the kubelet's two calls take: Prepare and Unprepare of one whole card.

This program plays the kubelet: one gRPC connection straight to the plugin's socket. The
claims are real objects of the API server, with an allocation written by hand, one a card.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import grpc

from benchmarks import processes
from benchmarks.figures import Figure, percentile
from benchmarks.world import World
from gpudeck.api import labels
from gpudeck.api.meta import ObjectMeta
from gpudeck.api.resource import (
    AllocatedDevice,
    AllocatedDevices,
    Allocation,
    ClaimDevices,
    ClaimSpec,
    ClaimStatus,
    DeviceRequest,
    ExactRequest,
    ResourceClaim,
    ResourceSlice,
)
from gpudeck.api.resources import RESOURCE_CLAIM, RESOURCE_SLICE
from gpudeck.errors import TerminalError
from gpudeck.kubelet.wire import dra_pb2, registration_pb2

ROUNDS = 3
PACED_CALLS = 60
PACE_SECONDS = 0.5
BATCH_CALLS = 300
WARM_CALLS = 50
NAMESPACE = "default"
MANAGER = "gpudeck-benchmarks"
GROUP = "Calls of the kubelet, ms"
_PROCESSES = ("dra-plugin", "adapter nvidia")
_SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"


class Kubelet:
    """The kubelet's side of the plugin's two sockets."""

    def __init__(self, plugin: grpc.Channel, registration: grpc.Channel) -> None:
        self._prepare = plugin.unary_unary(
            f"{_SERVICE}NodePrepareResources",
            request_serializer=dra_pb2.NodePrepareResourcesRequest.SerializeToString,
            response_deserializer=dra_pb2.NodePrepareResourcesResponse.FromString,
        )
        self._unprepare = plugin.unary_unary(
            f"{_SERVICE}NodeUnprepareResources",
            request_serializer=dra_pb2.NodeUnprepareResourcesRequest.SerializeToString,
            response_deserializer=dra_pb2.NodeUnprepareResourcesResponse.FromString,
        )
        self._info = registration.unary_unary(
            "/pluginregistration.Registration/GetInfo",
            request_serializer=registration_pb2.InfoRequest.SerializeToString,
            response_deserializer=registration_pb2.PluginInfo.FromString,
        )

    def info(self) -> None:
        """The call that does nothing: what client, gRPC and scheduler cost alone."""
        self._info(registration_pb2.InfoRequest(), timeout=45)

    def prepare(self, *claims: dra_pb2.Claim) -> None:
        """NodePrepareResources; TerminalError if a claim is refused."""
        request = dra_pb2.NodePrepareResourcesRequest(claims=claims)
        _accepted(self._prepare(request, timeout=45))

    def prepare_together(self, claims: Sequence[dra_pb2.Claim]) -> None:
        """One call a claim, all at the same time, as pods that start together."""
        calls = [
            self._prepare.future(dra_pb2.NodePrepareResourcesRequest(claims=[each]), timeout=45)
            for each in claims
        ]
        for call in calls:
            _accepted(call.result())

    def unprepare(self, *claims: dra_pb2.Claim) -> None:
        """NodeUnprepareResources; TerminalError if a claim is refused."""
        request = dra_pb2.NodeUnprepareResourcesRequest(claims=claims)
        _accepted(self._unprepare(request, timeout=45))


def _accepted(response: Any) -> None:
    for uid, answer in response.claims.items():
        if answer.error:
            raise TerminalError(f"claim {uid} was refused: {answer.error}")


class Times:
    """Durations in ms by what was called."""

    def __init__(self) -> None:
        self.by_call: dict[str, list[float]] = {}

    def take(self, name: str, call: Callable[..., None], *arguments: Any) -> None:
        """Make the call and keep its duration."""
        start = time.perf_counter()
        call(*arguments)
        self.by_call.setdefault(name, []).append((time.perf_counter() - start) * 1000)


async def measure(world: World) -> list[Figure]:
    """All rows, each from `ROUNDS` processes of the plugin."""
    rounds: list[Times] = []
    async with _allocated(world) as claims:
        for number in range(ROUNDS):
            if number:
                await world.kill("dra-plugin")
                await asyncio.sleep(1)
            await world.settled()
            with _kubelet(world) as kubelet:
                pids = [world.process(name).pid for name in _PROCESSES]
                rounds.append(await asyncio.to_thread(_round, kubelet, claims, pids))
    return list(_figures(rounds))


def _round(kubelet: Kubelet, claims: Sequence[dra_pb2.Claim], pids: Sequence[int]) -> Times:
    for _ in range(WARM_CALLS):
        kubelet.info()
    kubelet.prepare(claims[0])
    kubelet.unprepare(claims[0])
    times = Times()
    for _ in range(BATCH_CALLS):
        times.take("floor", kubelet.info)
    for _ in range(BATCH_CALLS):
        times.take("nothing", kubelet.prepare)
    _paced(kubelet, claims, times)
    for _ in range(-(-BATCH_CALLS // len(claims))):
        for name, call in (
            ("prepare_batch", kubelet.prepare),
            ("again_batch", kubelet.prepare),
            ("unprepare_batch", kubelet.unprepare),
        ):
            before = _cpu(pids)
            for claim in claims:
                times.take(name, call, claim)
            used = (_cpu(pids) - before) * 1000 / len(claims)
            times.by_call.setdefault(f"{name}_cpu", []).append(used)
    for _ in range(10):
        times.take("together", kubelet.prepare_together, claims)
        kubelet.unprepare(*claims)
    return times


def _cpu(pids: Sequence[int]) -> float:
    return sum(map(processes.cpu_seconds, pids))


def _paced(kubelet: Kubelet, claims: Sequence[dra_pb2.Claim], times: Times) -> None:
    due = time.monotonic()
    for number in range(PACED_CALLS):
        claim = claims[number % len(claims)]
        times.take("prepare_paced", kubelet.prepare, claim)
        times.take("again_paced", kubelet.prepare, claim)
        times.take("unprepare_paced", kubelet.unprepare, claim)
        due += PACE_SECONDS
        time.sleep(max(due - time.monotonic(), 0))


_ROWS = {
    "floor": "GetInfo on the registration socket: the floor of client and gRPC",
    "nothing": "NodePrepareResources without a claim",
    "prepare_paced": f"NodePrepareResources, one card, new (paced 2/s, {PACED_CALLS} calls)",
    "again_paced": "NodePrepareResources again, already prepared (paced)",
    "unprepare_paced": "NodeUnprepareResources (paced)",
    "prepare_batch": f"NodePrepareResources, back to back ({BATCH_CALLS} calls)",
    "again_batch": "NodePrepareResources again, back to back",
    "unprepare_batch": "NodeUnprepareResources, back to back",
    "together": "one call a card, all at the same time: until the last is answered",
}


_CPU_ROWS = {
    "prepare_batch": "NodePrepareResources, new: CPU of dra-plugin and adapter a call",
    "again_batch": "NodePrepareResources again: the same",
    "unprepare_batch": "NodeUnprepareResources: the same",
}


def _figures(rounds: Sequence[Times]) -> Iterator[Figure]:
    for name, what in _ROWS.items():
        for share in (0.5, 0.99):
            yield Figure(
                key=f"{name}_p{share * 100:.0f}",
                group=GROUP,
                what=f"{what}, p{share * 100:.0f}",
                unit="ms",
                values=[percentile(each.by_call[name], share) for each in rounds],
            )
    for name, what in _CPU_ROWS.items():
        yield Figure(
            key=f"{name}_cpu",
            group=GROUP,
            what=what,
            unit="ms",
            values=[statistics.mean(each.by_call[f"{name}_cpu"]) for each in rounds],
        )


@contextlib.contextmanager
def _kubelet(world: World) -> Iterator[Kubelet]:
    """Connect to the sockets by open folders: the paths below /proc are too long for AF_UNIX."""
    kubelet_root = world.root / "var/lib/kubelet"
    with contextlib.ExitStack() as stack:
        channels = []
        for folder, pattern in (
            (kubelet_root / "plugins" / labels.DRIVER, "dra*.sock"),
            (kubelet_root / "plugins_registry", f"{labels.DRIVER}*reg.sock"),
        ):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, descriptor)
            (socket,) = folder.glob(pattern)
            path = f"unix:/proc/self/fd/{descriptor}/{socket.name}"
            channels.append(stack.enter_context(grpc.insecure_channel(path)))
        yield Kubelet(*channels)


@contextlib.asynccontextmanager
async def _allocated(world: World) -> AsyncIterator[list[dra_pb2.Claim]]:
    """One claim a card, allocated by hand; gone afterwards, for they count as used."""
    listed = await world.api.list(
        RESOURCE_SLICE, ResourceSlice, field_selector=f"spec.nodeName={world.node}"
    )
    devices = [device.name for each in listed.items for device in each.spec.devices or ()]
    made: list[dra_pb2.Claim] = []
    try:
        for number, device in enumerate(devices):
            made.append(await _claim(world, f"benchmark-{number}", device))
        yield made
    finally:
        for claim in made:
            await world.api.delete(RESOURCE_CLAIM, claim.name, namespace=NAMESPACE)


async def _claim(world: World, name: str, device: str) -> dra_pb2.Claim:
    meta = ObjectMeta(name=name, namespace=NAMESPACE)
    request = DeviceRequest(name="card", exactly=ExactRequest(device_class_name="gpu"))
    body = ResourceClaim(metadata=meta, spec=ClaimSpec(devices=ClaimDevices(requests=[request])))
    made = await world.api.apply(RESOURCE_CLAIM, body, ResourceClaim, manager=MANAGER)
    result = AllocatedDevice(request="card", driver=labels.DRIVER, pool=world.node, device=device)
    body = ResourceClaim(
        metadata=meta,
        status=ClaimStatus(allocation=Allocation(devices=AllocatedDevices(results=[result]))),
    )
    await world.api.apply(
        RESOURCE_CLAIM, body, ResourceClaim, manager=MANAGER, subresource="status"
    )
    return dra_pb2.Claim(uid=made.metadata.uid or "", namespace=NAMESPACE, name=name)
