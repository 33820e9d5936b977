# SPDX-License-Identifier: Apache-2.0
"""Claims that a kubelet without memory never gives back."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from tests.scenario.dra.conftest import World
from tests.scenario.dra.standins import device, partition, partitionable

from gpudeck.api import resources
from gpudeck.cdi import rendering
from gpudeck.dra import collecting, main
from gpudeck.errors import InvalidError, UnavailableError
from gpudeck.kubelet.wire import podresources_pb2

LATER = 300.0
"""The default of `forgotten_seconds`."""
NOTHING = podresources_pb2.ListPodResourcesResponse()


def pod_with(claim: str, *cdi_devices: str) -> podresources_pb2.ListPodResourcesResponse:
    """What the kubelet lists while a pod uses a claim."""
    devices = [podresources_pb2.CDIDevice(name=each) for each in cdi_devices]
    used = podresources_pb2.DynamicResource(
        claim_name=claim,
        claim_namespace="t",
        claim_resources=[podresources_pb2.ClaimResource(cdi_devices=devices)],
    )
    container = podresources_pb2.ContainerResources(dynamic_resources=[used])
    pod = podresources_pb2.PodResources(containers=[container])
    return podresources_pb2.ListPodResourcesResponse(pod_resources=[pod])


@contextlib.asynccontextmanager
async def telling(
    socket: Path, answer: Callable[[], podresources_pb2.ListPodResourcesResponse]
) -> AsyncIterator[None]:
    """A kubelet that says what pods use."""

    async def respond(request: Any, context: Any) -> podresources_pb2.ListPodResourcesResponse:
        return answer()

    method = grpc.unary_unary_rpc_method_handler(
        respond,
        request_deserializer=podresources_pb2.ListPodResourcesRequest.FromString,
        response_serializer=podresources_pb2.ListPodResourcesResponse.SerializeToString,
    )
    server = grpc.aio.server()
    handlers = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method})
    server.add_generic_rpc_handlers((handlers,))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


def sockets(world: World) -> Path:
    return world.folder / "pods.sock"


@contextlib.asynccontextmanager
async def collector(world: World) -> AsyncIterator[collecting.Collector]:
    """Of a second plugin of the node, whose looks the test takes itself."""
    settings = dataclasses.replace(world.settings("second"), pod_resources=sockets(world))
    async with main.opened(settings) as plugin:
        following = asyncio.create_task(plugin.adapter.follow())
        try:
            await plugin.adapter.reach()
            yield plugin.collector
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following


@pytest.fixture
async def parts(stopped: World) -> World:
    """A world whose cards can be partitioned."""
    stopped.adapter.show(map(partitionable, range(4)))
    await stopped.start()
    await stopped.published(4)
    return stopped


async def test_a_claim_that_all_have_forgotten_is_given_back_at_the_second_look(
    world: World,
) -> None:
    first, second = world.claim("first", 1), world.claim("second", 1)
    await world.kubelet.prepare(first)
    async with telling(sockets(world), lambda: NOTHING), collector(world) as found:
        assert await found.look(0.0) == []
        world.forget_claim("first")
        assert await found.look(0.0) == []
        assert await found.look(LATER - 1) == []
        assert await found.look(LATER) == ["uid-first"]
    assert (world.specs(), world.states(), world.adapter.prepared) == ([], {}, set())
    assert (await world.kubelet.prepare(second))["uid-second"].error == ""


async def test_the_partition_of_a_forgotten_claim_goes_with_it(parts: World) -> None:
    await parts.kubelet.prepare(parts.claim("c", 1, device=partition(1, 2)))
    assert len(parts.adapter.partitions) == 1
    parts.forget_claim("c")
    async with telling(sockets(parts), lambda: NOTHING), collector(parts) as found:
        assert [await found.look(0.0), await found.look(LATER)] == [[], ["uid-c"]]
    assert (parts.specs(), parts.states(), parts.adapter.partitions) == ([], {}, set())


async def test_a_forgotten_claim_that_only_its_spec_told_of_is_given_back(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    world.forget_claim("c")
    await world.stop()
    world.checkpoint.unlink()
    await world.start()
    async with telling(sockets(world), lambda: NOTHING), collector(world) as found:
        assert [await found.look(0.0), await found.look(LATER)] == [[], ["uid-c"]]
    assert (world.specs(), world.states()) == ([], {})


async def test_a_claim_that_has_come_to_other_devices_is_given_back(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1), world.claim("d", 2))
    world.claim("c", 3)
    async with telling(sockets(world), lambda: NOTHING), collector(world) as found:
        assert [await found.look(0.0), await found.look(LATER)] == [[], ["uid-c"]]
    assert world.states() == {"d": "PrepareCompleted"}


@pytest.mark.parametrize("shown", ["by the kubelet's name", "by the kubelet's device"])
async def test_a_claim_that_a_pod_uses_is_never_given_back(world: World, shown: str) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    world.forget_claim("c")
    by_name = pod_with("c"), pod_with("other", rendering.device_id("uid-c", device(1)))
    used = by_name[shown != "by the kubelet's name"]
    async with telling(sockets(world), lambda: used), collector(world) as found:
        assert [await found.look(LATER * number) for number in range(3)] == [[], [], []]
    assert world.states() == {"c": "PrepareCompleted"}


async def test_a_claim_that_a_container_has_is_never_given_back(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    world.forget_claim("c")
    world.adapter.holding = [rendering.device_id("uid-c", device(1))]
    async with telling(sockets(world), lambda: NOTHING), collector(world) as found:
        assert [await found.look(LATER * number) for number in range(3)] == [[], [], []]
        world.adapter.holding = []
        assert [await found.look(LATER * number) for number in (3, 4)] == [[], ["uid-c"]]


async def test_a_later_claim_of_the_same_name_does_not_keep_the_one_before(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    world.forget_claim("c")
    used = pod_with("c", rendering.device_id("uid-later", device(2)))
    async with telling(sockets(world), lambda: used), collector(world) as found:
        assert [await found.look(0.0), await found.look(LATER)] == [[], ["uid-c"]]


async def test_a_claim_that_is_there_again_at_the_last_moment_stays(world: World) -> None:
    claim = world.claim("c", 1)
    await world.kubelet.prepare(claim)
    world.forget_claim("c")
    async with telling(sockets(world), lambda: NOTHING), collector(world) as found:
        await found.look(0.0)
        world.adapter.asked = lambda: world.api.put(resources.RESOURCE_CLAIM, claim)
        assert await found.look(LATER) == []
    assert world.states() == {"c": "PrepareCompleted"}


async def test_a_node_in_order_asks_the_api_server_nothing(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    used = pod_with("c", rendering.device_id("uid-c", device(1)))
    async with telling(sockets(world), lambda: used), collector(world) as found:
        before = len([each for each in world.api.seen if "resourceclaims" in each.path])
        assert await found.look(0.0) == []
        assert len([each for each in world.api.seen if "resourceclaims" in each.path]) == before


@pytest.mark.parametrize("silent", ["the kubelet", "the runtime", "the API server"])
async def test_nothing_is_given_back_while_one_of_the_three_does_not_answer(
    world: World, silent: str
) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    world.forget_claim("c")
    async with collector(world) as found:
        async with telling(sockets(world), lambda: NOTHING):
            await found.look(0.0)
        if silent == "the API server":
            await world.api.stop()
        world.adapter.holding = None if silent == "the runtime" else []
        kubelet = telling(sockets(world), lambda: NOTHING)
        async with contextlib.nullcontext() if silent == "the kubelet" else kubelet:
            with pytest.raises(UnavailableError):
                await found.look(LATER)
        if silent == "the API server":
            await world.api.start()
        world.adapter.holding = []
        async with telling(sockets(world), lambda: NOTHING):
            assert await found.look(LATER) == []
    assert world.states() == {"c": "PrepareCompleted"}


async def test_the_process_collects_by_itself(stopped: World) -> None:
    plain = stopped.settings()
    quick = dataclasses.replace(plain, forgotten_seconds=1.0, pod_resources=sockets(stopped))
    stopped.settings = lambda pod_uid="": quick  # type: ignore[method-assign,misc]
    async with telling(sockets(stopped), lambda: NOTHING):
        await stopped.start()
        await stopped.published(4)
        await stopped.kubelet.prepare(stopped.claim("c", 1), stopped.claim("d", 2))
        stopped.forget_claim("c")
        await stopped.until(lambda: stopped.states() == {"d": "PrepareCompleted"})
    assert stopped.specs() == ["d"]


async def test_a_time_that_is_none_is_refused(stopped: World) -> None:
    bad = dataclasses.replace(stopped.settings(), forgotten_seconds=0.0)
    with pytest.raises(InvalidError, match="--forgotten-seconds: 0 is not valid; allowed: at lea"):
        await main.run(bad)
