# SPDX-License-Identifier: Apache-2.0
"""The controller against an API server in memory: what stands there at the end of each story."""

from __future__ import annotations

import datetime
import functools

import pytest
from tests.scenario.controller.replicas import (
    CARD,
    CLAIM,
    H100,
    class_status,
    controller,
    events,
    own_writes,
    phase_is,
    ready,
    settled,
    status,
)
from tests.support import gpus
from tests.support.apiserver import ApiServer

from gpudeck.api import labels
from gpudeck.api.resources import (
    GPU_CLASS,
    LEASE,
    PHYSICAL_GPU,
    POD,
    RESOURCE_CLAIM,
)
from gpudeck.controller import main
from gpudeck.kube.electing import Elector

pytestmark = pytest.mark.asyncio


async def test_a_claim_fills_its_card_and_frees_it_again() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu())
        server.put(GPU_CLASS, gpus.gpu_class("gpu"))
        async with controller(server):
            await server.until(phase_is(server, "Ready"))
            server.put(RESOURCE_CLAIM, gpus.claim("c", gpus.result(), pods=("p",)))
            await server.until(phase_is(server, "InUse"))
            held = status(server)["occupancy"]
            assert held["state"] == "Full"
            assert held["memoryMiB"] == {"total": 81559, "used": 81559}
            assert [(each["name"], each["pods"]) for each in held["claims"]] == [("c", ["p"])]
            await server.until(
                lambda: server.objects(GPU_CLASS)["gpu"].get("status", {}).get("allocated") == 1
            )
            server.put(RESOURCE_CLAIM, gpus.claim("c"))
            await server.until(phase_is(server, "Ready"))
            assert "claims" not in status(server)["occupancy"]


async def test_one_change_of_a_claim_is_one_write_of_one_card() -> None:
    async with ApiServer() as server:
        for bus in range(8):
            server.put(PHYSICAL_GPU, gpus.gpu(address=f"0000:0{bus}:00.0"))
        async with controller(server):
            await server.until(
                lambda: all(
                    each["status"].get("phase") for each in server.objects(PHYSICAL_GPU).values()
                )
            )
            before = len(own_writes(server, "/physicalgpus/"))
            result = gpus.result(address="0000:03:00.0")
            server.put(RESOURCE_CLAIM, gpus.claim("c", result, pods=("p",)))
            await server.until(phase_is(server, "InUse", "node-0-0000-03-00-0"))
            await settled(server)
            assert len(own_writes(server, "/physicalgpus/")) == before + 1


async def test_the_controller_owns_occupancy_and_phase_and_nothing_else() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu())
        async with controller(server):
            await server.until(phase_is(server, "Ready"))
        owned = server.owners(PHYSICAL_GPU, CARD)[labels.MANAGER_CONTROLLER]
        assert owned
        assert all("occupancy" in each or "phase" in each for each in owned)
        assert status(server)["capabilities"]["productName"] == "NVIDIA H100 80GB HBM3"


ADAPTER = "gpudeck-system/nvidia-adapter-node-0"


def free(server: ApiServer) -> int | None:
    found: int | None = server.objects(GPU_CLASS)["gpu"].get("status", {}).get("free")
    return found


async def test_a_card_is_not_free_while_its_node_has_no_adapter() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu())
        server.put(GPU_CLASS, gpus.gpu_class("gpu"))
        async with controller(server, attended=False, unattended_seconds=0.0):
            await server.until(phase_is(server, "NotReady"))
            await server.until(lambda: free(server) == 0)
            server.put(POD, gpus.adapter_pod())
            await server.until(phase_is(server, "Ready"))
            await server.until(lambda: free(server) == 1)
            server.put(POD, gpus.adapter_pod(ready="False"))
            await server.until(phase_is(server, "NotReady"))
            await server.until(lambda: free(server) == 0)
            server.put(POD, gpus.adapter_pod())
            await server.until(phase_is(server, "Ready"))
            server.remove(POD, ADAPTER)
            await server.until(phase_is(server, "NotReady"))


async def test_an_adapter_that_is_away_for_a_moment_changes_nothing() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu())
        async with controller(server, unattended_seconds=3600.0):
            await server.until(phase_is(server, "Ready"))
            before = len(own_writes(server, "/physicalgpus/"))
            server.remove(POD, ADAPTER)
            await settled(server)
            server.put(POD, gpus.adapter_pod(name="nvidia-adapter-next"))
            await settled(server)
            assert len(own_writes(server, "/physicalgpus/")) == before
            assert phase_is(server, "Ready")()


LOST = {**gpus.HEALTHY, "Discovered": "False"}


async def test_a_lost_card_goes_once_no_claim_names_it() -> None:
    async with ApiServer() as server:
        server.put(RESOURCE_CLAIM, gpus.claim("c", gpus.result(), pods=("p",)))
        server.put(PHYSICAL_GPU, gpus.gpu(states=LOST))
        async with controller(server):
            await server.until(phase_is(server, "Lost"))
            await server.until(lambda: "CardLost" in events(server))
            assert status(server)["occupancy"]["state"] == "Full"
            server.remove(RESOURCE_CLAIM, CLAIM)
            await server.until(lambda: CARD not in server.objects(PHYSICAL_GPU))


async def test_a_card_lost_a_moment_ago_keeps_its_object() -> None:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu(states=LOST, lostSince=now))
        async with controller(server, lost_seconds=3600.0):
            await server.until(phase_is(server, "Lost"))
            await settled(server)
            assert CARD in server.objects(PHYSICAL_GPU)
            server.put(PHYSICAL_GPU, gpus.gpu())
            await server.until(phase_is(server, "Ready"))


async def test_a_controller_that_starts_again_writes_nothing_that_is_so_already() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu())
        server.put(RESOURCE_CLAIM, gpus.claim("c", gpus.result(), pods=("p",)))
        server.put(GPU_CLASS, gpus.gpu_class("gpu", requirements=H100))
        async with controller(server):
            await server.until(
                lambda: server.objects(GPU_CLASS)["gpu"].get("status", {}).get("allocated") == 1
            )
            await settled(server)
        before = len(own_writes(server))
        async with controller(server, identity="second") as replica:
            await server.until(lambda: b"gpudeck_controller_leading 1.0" in replica.metrics())
            await settled(server)
        assert len(own_writes(server)) == before


async def test_faults_of_the_api_server_are_outlived() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu())
        server.put(GPU_CLASS, gpus.gpu_class("gpu"))
        server.fail(4, 500)
        async with controller(server):
            await server.until(phase_is(server, "Ready"))
            server.fail(2, 409, method="PATCH", path="/physicalgpus/")
            server.cut_streams()
            server.put(RESOURCE_CLAIM, gpus.claim("c", gpus.result()))
            await server.until(phase_is(server, "InUse"))
            server.expire()
            server.cut_streams()
            server.remove(RESOURCE_CLAIM, CLAIM)
            await server.until(phase_is(server, "Ready"))


async def test_only_the_leader_writes_and_the_next_one_goes_on() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu())
        async with controller(server, identity="second") as second:
            await server.until(phase_is(server, "Ready"))
            async with controller(server, identity="first") as first:
                holder = next(iter(server.objects(LEASE).values()))["spec"]["holderIdentity"]
                assert holder == "second"
                assert b"gpudeck_controller_leading 0.0" in first.metrics()
                assert b"gpudeck_controller_leading 1.0" in second.metrics()
        server.put(RESOURCE_CLAIM, gpus.claim("c", gpus.result()))
        async with controller(server, identity="first"):
            await server.until(phase_is(server, "InUse"))


async def test_a_leader_whose_lease_is_taken_stands_by_and_leads_again_once_it_is_free() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu())
        async with controller(server, identity="first") as replica:
            await server.until(phase_is(server, "Ready"))
            lease = next(iter(server.objects(LEASE).values()))
            server.put(LEASE, {**lease, "spec": {**lease["spec"], "holderIdentity": "other"}})
            await server.until(lambda: b"gpudeck_controller_leading 0.0" in replica.metrics())
            before = len(own_writes(server))
            server.put(RESOURCE_CLAIM, gpus.claim("c", gpus.result()))
            await server.until(
                lambda: b'waiting_keys{queue="physicalgpu"} 1.0' in replica.metrics()
            )
            assert len(own_writes(server)) == before
            server.put(LEASE, {**lease, "spec": {**lease["spec"], "holderIdentity": ""}})
            await server.until(phase_is(server, "InUse"))


async def test_claims_that_went_in_an_outage_longer_than_the_lease_free_their_cards_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        main, "Elector", functools.partial(Elector, renew_seconds=1.5, retry_seconds=0.05)
    )
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu())
        server.put(RESOURCE_CLAIM, gpus.claim("c", gpus.result(), pods=("p",)))
        async with controller(server) as replica:
            await server.until(phase_is(server, "InUse"))
            await server.stop()
            await server.until(lambda: b"gpudeck_controller_leading 0.0" in replica.metrics())
            server.remove(RESOURCE_CLAIM, CLAIM)
            await server.start()
            await server.until(phase_is(server, "Ready"))
            assert "claims" not in status(server)["occupancy"]


async def test_metrics_count_cards_by_phase_and_classes_by_readiness() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu())
        server.put(GPU_CLASS, gpus.gpu_class("gpu"))
        async with controller(server) as replica:
            await server.until(phase_is(server, "Ready"))
            await server.until(lambda: ready(server, "gpu"))
            await server.until(
                lambda: b'gpudeck_controller_gpu_classes{ready="true"} 1.0' in replica.metrics()
            )
            await server.until(
                lambda: b'gpudeck_controller_cards{phase="Ready"} 1.0' in replica.metrics()
            )


async def test_a_card_that_a_device_plugin_has_given_is_in_use_and_its_word_stays() -> None:
    holder = {
        "namespace": "t", "pod": "p", "container": "main", "resource": "nvidia.com/gpu",
        "device": "GPU-1",
    }  # fmt: skip
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu(occupancy={"plugin": [holder]}))
        async with controller(server):
            await server.until(phase_is(server, "InUse"))
            found = status(server)["occupancy"]
            assert (found["state"], found["plugin"]) == ("Full", [holder])
            owned = server.owners(PHYSICAL_GPU, CARD)["gpudeck-controller"]
            assert not any("plugin" in each for each in owned)


async def test_a_card_of_a_device_plugin_is_ready_and_nothing_for_claims() -> None:
    card = gpus.gpu()
    for each in card["status"]["conditions"]:
        if each["type"] == "Published":
            each["reason"] = "OfferedByDevicePlugin"
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, card)
        server.put(GPU_CLASS, gpus.gpu_class("h100", requirements=H100))
        async with controller(server):
            await server.until(phase_is(server, "Ready"))
            await server.until(
                lambda: "free" in server.objects(GPU_CLASS)["h100"].get("status", {})
            )
            found = class_status(server, "h100")
            assert (found["matching"]["gpus"], found["free"]) == (1, 0)
