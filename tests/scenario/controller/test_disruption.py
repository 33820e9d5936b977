# SPDX-License-Identifier: Apache-2.0
"""Which Events stand at which pods when a card falls ill, stays ill, and recovers."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support import gpus
from tests.support.apiserver import ApiServer

from gpudeck.api import conditions
from gpudeck.api.resources import EVENT, LEASE, PHYSICAL_GPU, POD, RESOURCE_CLAIM
from gpudeck.controller import disruption, main
from gpudeck.controller.settings import Settings

pytestmark = pytest.mark.asyncio

CARD = "node-0-0000-1b-00-0"
SHARE = "share-0000-1b-00-0"


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disruption, "REST_SECONDS", 0.0)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """A card with a pod on one claim, and two of another namespace's claim on a share."""
    async with ApiServer() as server:
        show(server, "True")
        first = gpus.claim("c", gpus.result(), pods=("p",))
        second = gpus.claim("s", gpus.result(device=SHARE, shareID="1"), pods=("q", "r"))
        second["metadata"] |= {"namespace": "u"}
        server.put(RESOURCE_CLAIM, first)
        server.put(RESOURCE_CLAIM, second)
        server.put(PHYSICAL_GPU, gpus.gpu(address="0000:2a:00.0"))
        other = gpus.claim("other", gpus.result(address="0000:2a:00.0"), pods=("elsewhere",))
        server.put(RESOURCE_CLAIM, other)
        yield server


def show(
    server: ApiServer,
    status: str,
    reason: str = "Xid79",
    *,
    ago: float = 0.0,
    card: str = "",
    plugin: list[dict[str, str]] | None = None,
) -> None:
    """Give the card a condition HardwareHealthy that changed `ago` seconds ago."""
    gpu = gpus.gpu(address=card or gpus.ADDRESS, currentState={"uuid": "GPU-7"})
    since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ago)
    found = [
        each for each in gpu["status"]["conditions"] if each["type"] != conditions.HARDWARE_HEALTHY
    ]
    condition = gpus.condition(
        conditions.HARDWARE_HEALTHY, status, reason=reason, message="The card fell off the bus."
    )
    gpu["status"]["conditions"] = [
        *found, condition | {"lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ")}
    ]  # fmt: skip
    if plugin is not None:
        gpu["status"]["occupancy"] = {"plugin": plugin}
    server.put(PHYSICAL_GPU, gpu)


@contextlib.asynccontextmanager
async def controller(server: ApiServer, **fields: Any) -> AsyncIterator[main.Controller]:
    async with server.client() as client:
        server.put(POD, gpus.adapter_pod())
        replica = main.Controller(client, Settings(namespace="gpudeck-system", **fields))
        task = asyncio.create_task(replica.run())
        try:
            await server.until(lambda: b"gpudeck_controller_leading 1.0" in replica.metrics())
            yield replica
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def told(server: ApiServer) -> list[tuple[str, str, str]]:
    """Namespace, pod and reason of all Events about pods, with repetitions."""
    return sorted(
        (each["involvedObject"]["namespace"], each["involvedObject"]["name"], each["reason"])
        for each in server.objects(EVENT).values()
        if each["involvedObject"]["kind"] == "Pod"
    )


SICK = [
    ("t", "p", "CardUnhealthy"), ("u", "q", "CardUnhealthy"), ("u", "r", "CardUnhealthy"),
]  # fmt: skip
WELL = [(namespace, name, "CardRecovered") for namespace, name, _ in SICK]


async def test_every_pod_that_holds_a_part_of_a_sick_card_is_told(server: ApiServer) -> None:
    async with controller(server):
        show(server, "False")
        await server.until(lambda: told(server) == SICK)
    event = next(
        each for each in server.objects(EVENT).values() if each["involvedObject"]["name"] == "p"
    )
    assert event["type"] == "Warning"
    assert event["involvedObject"]["uid"] == "uid-p"
    assert event["metadata"]["namespace"] == "t"
    assert event["message"] == (
        "Card node-0-0000-1b-00-0 (GPU-7, NVIDIA H100 80GB HBM3, 0000:1b:00.0) on node node-0, "
        "which this pod holds, is unhealthy: Xid79: The card fell off the bus."
    )


def here(name: str, node: str = "node-0") -> dict[str, Any]:
    """A pod of a node."""
    meta = {"name": name, "namespace": "v", "uid": f"uid-{name}"}
    return {"metadata": meta, "spec": {"nodeName": node}}


async def test_a_node_has_nothing_told_to_pods_of_another(server: ApiServer) -> None:
    server.put(POD, here("elsewhere", "node-1"))
    server.put(POD, here("last"))
    holder = {"namespace": "v", "container": "main", "resource": "nvidia.com/gpu"}
    named = [
        holder | {"pod": name, "device": f"GPU-7::{number}"}
        for number, name in enumerate(("elsewhere", "last"))
    ]
    async with controller(server):
        show(server, "False", plugin=named)
        await server.until(lambda: ("v", "last", "CardUnhealthy") in told(server))
        assert told(server) == sorted([*SICK, ("v", "last", "CardUnhealthy")])


async def test_a_pod_that_has_the_card_from_a_device_plugin_is_told(server: ApiServer) -> None:
    server.put(POD, here("d"))
    holder = {"namespace": "v", "pod": "d", "container": "main", "resource": "nvidia.com/gpu"}
    gone = holder | {"pod": "gone", "device": "GPU-7::1"}
    async with controller(server):
        show(server, "False", plugin=[holder | {"device": "GPU-7"}, gone])
        await server.until(lambda: told(server) == [*SICK, ("v", "d", "CardUnhealthy")])
        server.put(POD, here("e"))
        late = [holder | {"device": "GPU-7"}, holder | {"pod": "e", "device": "GPU-7::2"}]
        show(server, "False", plugin=late)
        await server.until(lambda: ("v", "e", "CardUnhealthy") in told(server))
        show(server, "True", plugin=late)
        await server.until(lambda: ("v", "d", "CardRecovered") in told(server))


async def test_recovery_is_told_as_well(server: ApiServer) -> None:
    async with controller(server):
        show(server, "False")
        await server.until(lambda: told(server) == SICK)
        show(server, "True")
        await server.until(lambda: told(server) == sorted([*SICK, *WELL]))
    kinds = {each["reason"]: each["type"] for each in server.objects(EVENT).values()}
    assert (kinds["CardUnhealthy"], kinds["CardRecovered"]) == ("Warning", "Normal")


async def test_an_unknown_moment_between_is_no_news(server: ApiServer) -> None:
    async with controller(server) as replica:
        show(server, "False")
        await server.until(lambda: told(server) == SICK)
        show(server, "Unknown", "AdapterUnavailable")
        show(server, "False", ago=5)
        show(server, "True")
        await server.until(lambda: told(server) == sorted([*SICK, *WELL]))
        await server.until(lambda: idle(replica))


def idle(replica: main.Controller) -> bool:
    return b'waiting_keys{queue="disruption"} 0.0' in replica.metrics()


async def test_another_reason_is_told_once_and_its_return_never(server: ApiServer) -> None:
    async with controller(server):
        show(server, "False")
        await server.until(lambda: told(server) == SICK)
        for reason in ("GpuLost", "Xid79", "GpuLost", "Xid79"):
            show(server, "False", reason, ago=1)
            await server.until(lambda: len(told(server)) == 2 * len(SICK))
        show(server, "True")
        await server.until(lambda: len(told(server)) == 3 * len(SICK))
    assert len(told(server)) == 3 * len(SICK)


async def test_a_new_leader_does_not_tell_it_again(server: ApiServer) -> None:
    show(server, "False", ago=60)
    async with controller(server, identity="one"):
        await server.until(lambda: told(server) == SICK)
    server.remove(LEASE, "gpudeck-system/gpu-controller")
    async with controller(server, identity="two"):
        # A pod that takes the card now is told, and the others have been passed by then.
        server.put(RESOURCE_CLAIM, gpus.claim("c", gpus.result(), pods=("p", "late")))
        await server.until(lambda: ("t", "late", "CardUnhealthy") in told(server))
    assert told(server) == sorted([*SICK, ("t", "late", "CardUnhealthy")])


async def test_what_is_older_than_an_event_is_no_news_after_a_restart(server: ApiServer) -> None:
    show(server, "False", ago=2 * disruption.EVENT_SECONDS)
    async with controller(server) as replica:
        await server.until(lambda: idle(replica))
        server.put(RESOURCE_CLAIM, gpus.claim("c", gpus.result(), pods=("p", "late")))
        await server.until(lambda: told(server) == [("t", "late", "CardUnhealthy")])
        show(server, "True")
        await server.until(lambda: ("t", "p", "CardRecovered") in told(server))


async def test_a_namespace_that_takes_no_events_costs_its_own_pods_alone(server: ApiServer) -> None:
    async with controller(server):
        server.fail(1, 403, method="POST", path="/namespaces/t/events")
        show(server, "False")
        await server.until(lambda: told(server) == SICK[1:])


async def test_errors_of_the_api_server_are_waited_out(server: ApiServer) -> None:
    async with controller(server):
        server.fail(2, 503, method="POST", path="/namespaces/u/events")
        show(server, "False")
        await server.until(lambda: told(server) == SICK)


async def test_a_card_that_is_gone_with_its_object_tells_nobody(server: ApiServer) -> None:
    async with controller(server) as replica:
        server.remove(PHYSICAL_GPU, CARD)
        await server.until(lambda: idle(replica))
    assert told(server) == []
