# SPDX-License-Identifier: Apache-2.0
"""The controller against an API server in memory: what stands there at the end of each story."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import re
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support import gpus
from tests.support.apiserver import ApiServer

from gpudeck import errors
from gpudeck.api import labels
from gpudeck.api.resources import (
    DEVICE_CLASS,
    EVENT,
    GPU_CLASS,
    LEASE,
    MUTATING_WEBHOOKS,
    PHYSICAL_GPU,
    POD,
    RESOURCE_CLAIM,
    SECRET,
    VALIDATING_WEBHOOKS,
)
from gpudeck.controller import main
from gpudeck.controller.admission import registration
from gpudeck.controller.gpuclass import reconciler
from gpudeck.controller.settings import Settings
from gpudeck.kube.electing import Elector

pytestmark = pytest.mark.asyncio

CARD = "node-0-0000-1b-00-0"
CLAIM = "t/c"
H100 = {"products": ["*H100*"]}


@contextlib.asynccontextmanager
async def controller(
    server: ApiServer, *, attended: bool = True, **fields: Any
) -> AsyncIterator[main.Controller]:
    """Run a replica for the length of the block; node-0 has its adapter."""
    if attended:
        server.put(POD, gpus.adapter_pod())
    async with server.client() as client:
        replica = main.Controller(
            client, Settings(namespace="gpudeck-system", count_seconds=0.0, **fields)
        )
        task = asyncio.create_task(replica.run())
        try:
            yield replica
        finally:
            if task.done():
                await task
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def status(server: ApiServer, name: str = CARD) -> dict[str, Any]:
    found: dict[str, Any] = server.objects(PHYSICAL_GPU)[name].get("status", {})
    return found


def phase_is(server: ApiServer, expected: str, name: str = CARD) -> Callable[[], bool]:
    return lambda: status(server, name).get("phase") == expected


def device_class(server: ApiServer, name: str) -> dict[str, Any] | None:
    return server.objects(DEVICE_CLASS).get(name)


def class_status(server: ApiServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.objects(GPU_CLASS)[name].get("status", {})
    return found


def ready(server: ApiServer, name: str) -> dict[str, Any]:
    found = server.objects(GPU_CLASS)[name].get("status", {})
    return next((each for each in found.get("conditions", []) if each["type"] == "Ready"), {})


def events(server: ApiServer) -> set[str]:
    return {each["reason"] for each in server.objects(EVENT).values()}


async def test_a_class_gets_its_device_class_and_counts_its_cards() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu())
        server.put(PHYSICAL_GPU, gpus.gpu(address="0000:2a:00.0", product="NVIDIA A100-SXM4-40GB"))
        server.put(GPU_CLASS, gpus.gpu_class("h100", requirements=H100))
        async with controller(server):
            await server.until(
                lambda: server.objects(GPU_CLASS)["h100"].get("status", {}).get("free") == 1
            )
        made = device_class(server, "h100")
        assert made is not None
        assert made["spec"]["extendedResourceName"] == "gpu.deckhouse.io/h100"
        assert made["metadata"]["ownerReferences"][0]["name"] == "h100"
        found = server.objects(GPU_CLASS)["h100"]["status"]
        assert found["matching"] == {"gpus": 1, "devices": 1}
        assert found["allocated"] == 0
        assert found["deviceClassName"] == "h100"
        assert ready(server, "h100")["status"] == "True"
        assert server.owners(DEVICE_CLASS, "h100").keys() == {labels.MANAGER_CONTROLLER}


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


async def test_a_device_class_of_somebody_else_is_left_alone_and_the_class_says_so() -> None:
    async with ApiServer() as server:
        foreign = {"metadata": {"name": "h100"}, "spec": {"selectors": []}}
        server.put(DEVICE_CLASS, foreign)
        server.put(GPU_CLASS, gpus.gpu_class("h100"))
        async with controller(server):
            await server.until(lambda: ready(server, "h100"))
            assert ready(server, "h100")["reason"] == "DeviceClassConflict"
            left = device_class(server, "h100")
            assert left is not None
            assert "labels" not in left["metadata"]
            await server.until(lambda: "DeviceClassConflict" in events(server))
            server.remove(DEVICE_CLASS, "h100")
            await server.until(lambda: ready(server, "h100").get("status") == "True")
            assert device_class(server, "h100") is not None


async def test_where_extended_resources_are_dropped_the_device_class_is_written_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ApiServer() as server:
        monkeypatch.setattr(server.store, "apply", dropping_names(server.store.apply))
        monkeypatch.setattr(server.store, "replace", dropping_names(server.store.replace))
        server.put(GPU_CLASS, gpus.gpu_class("h100", requirements=H100))
        put_registrations(server)
        async with controller(server, webhook_port=free_port()):
            await server.until(lambda: ready(server, "h100").get("status") == "True")
            for count in range(1, 4):
                server.put(PHYSICAL_GPU, gpus.gpu(address=f"0000:{count:02x}:00.0"))
                await server.until(functools.partial(matching, server, "h100", count))
        assert len(own_writes(server, "deviceclasses")) == 1
        made = device_class(server, "h100")
        assert made is not None
        assert "extendedResourceName" not in made["spec"]
        # The webhook gives pods that ask for it their claims.
        found = server.objects(GPU_CLASS)["h100"]["status"]
        assert found["extendedResourceName"] == "gpu.deckhouse.io/h100"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def put_registrations(server: ApiServer) -> None:
    """What the chart makes for the webhooks."""
    meta = {"name": registration.SECRET_NAME, "namespace": "gpudeck-system"}
    server.put(SECRET, {"metadata": meta, "type": "Opaque"})
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        server.put(resource, {"metadata": {"name": registration.NAME}})


def registered(server: ApiServer) -> bool:
    """Whether pods are rewritten."""
    found = server.objects(MUTATING_WEBHOOKS).get(registration.NAME, {})
    return bool(found.get("webhooks"))


QUARTER = gpus.gpu_class("quarter", devices=["Share"], share={"memory": {"default": "8Gi"}})


async def test_a_class_whose_pods_are_rewritten_is_ready_after_the_webhook_is_registered() -> None:
    """A pod that was made in between would stay as it is and wait for ever."""
    async with ApiServer() as server:
        server.put(GPU_CLASS, QUARTER)
        server.put(GPU_CLASS, gpus.gpu_class("whole"))
        async with controller(server, webhook_port=free_port()):
            await server.until(lambda: ready(server, "whole").get("status") == "True")
            await server.until(lambda: ready(server, "quarter").get("status") == "False")
            assert ready(server, "quarter")["reason"] == "WebhookNotRegistered"
            assert "WebhookNotRegistered" not in events(server)
            put_registrations(server)
            await server.until(lambda: ready(server, "quarter").get("status") == "True")
            assert registered(server)
            found = server.objects(GPU_CLASS)["quarter"]["status"]
            assert found["extendedResourceName"] == "gpu.deckhouse.io/quarter"


async def test_a_ready_class_stays_so_while_another_leader_registers_its_webhook() -> None:
    """What it selects would be withdrawn otherwise."""
    async with ApiServer() as server:
        put_registrations(server)
        server.put(GPU_CLASS, QUARTER)
        async with controller(server, webhook_port=free_port()):
            await server.until(lambda: ready(server, "quarter").get("status") == "True")
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            server.remove(resource, registration.NAME)
        async with controller(server, webhook_port=free_port()):
            server.put(PHYSICAL_GPU, gpus.gpu())
            await server.until(functools.partial(matching, server, "quarter", 1))
            assert ready(server, "quarter")["status"] == "True"


@pytest.mark.parametrize("dropped", [True, False])
async def test_without_webhooks_no_name_is_told_that_the_scheduler_does_not_serve(
    monkeypatch: pytest.MonkeyPatch, *, dropped: bool
) -> None:
    """A pod that asked for such a name would wait for ever."""
    async with ApiServer() as server:
        if dropped:
            monkeypatch.setattr(server.store, "apply", dropping_names(server.store.apply))
        share = {"memory": {"default": "8Gi"}}
        server.put(GPU_CLASS, gpus.gpu_class("quarter", devices=["Share"], share=share))
        server.put(GPU_CLASS, gpus.gpu_class("whole"))
        async with controller(server, webhook_port=0):
            for name, is_told in (("quarter", False), ("whole", not dropped)):
                await server.until(lambda name=name: ready(server, name).get("status") == "True")
                found = server.objects(GPU_CLASS)[name]["status"]
                assert ("extendedResourceName" in found) == is_told
                assert ("pods ask for" in ready(server, name)["message"]) == is_told


async def test_a_class_of_parts_says_that_cards_are_not_offered_in_parts() -> None:
    async with ApiServer() as server:

        def said(name: str) -> str:
            found = server.objects(GPU_CLASS)[name].get("status") or {}
            return str(found.get("message"))

        server.put(GPU_CLASS, gpus.gpu_class("small", devices=["Partition"]))
        server.put(GPU_CLASS, gpus.gpu_class("whole"))
        card = gpus.gpu()
        for each in card["status"]["conditions"]:
            if each["type"] == "Published":
                each["reason"] = "PartsWithheld"
        server.put(PHYSICAL_GPU, card)
        async with controller(server):
            await server.until(lambda: "1 of the cards is not offered in parts" in said("small"))
            await server.until(lambda: "1 of 1" in said("whole"))
            assert "in parts" not in said("whole")
            server.put(PHYSICAL_GPU, gpus.gpu())
            await server.until(lambda: "not offered in parts" not in said("small"))


async def test_a_server_that_was_updated_is_given_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "AGAIN_SECONDS", 0.3)
    async with ApiServer() as server:
        server.put(GPU_CLASS, gpus.gpu_class("h100", requirements=H100))
        with monkeypatch.context() as old:
            old.setattr(server.store, "apply", dropping_names(server.store.apply))
            async with controller(server):
                await server.until(lambda: ready(server, "h100").get("status") == "True")
                old.undo()
                await server.until(
                    lambda: "extendedResourceName" in (device_class(server, "h100") or {})["spec"]
                )


def dropping_names(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A write as an API server does it that maps no extended resources."""

    def write(kind: Any, key: str, value: dict[str, Any], how: Any) -> dict[str, Any]:
        if kind[1] == "deviceclasses":
            value["spec"].pop("extendedResourceName", None)
        found: dict[str, Any] = plain(kind, key, value, how)
        return found

    return write


def matching(server: ApiServer, name: str, count: int) -> bool:
    found = server.objects(GPU_CLASS)[name].get("status", {})
    return bool(found.get("matching", {}).get("gpus") == count)


async def test_two_classes_of_one_resource_name_end_with_one_and_the_other_says_why() -> None:
    async with ApiServer() as server:
        name = "nvidia.com/gpu"
        server.put(GPU_CLASS, gpus.gpu_class("old", extendedResourceName=name))
        server.put(
            GPU_CLASS,
            gpus.gpu_class("new", created="2026-06-01T00:00:00Z", extendedResourceName=name),
        )
        async with controller(server):
            await server.until(lambda: ready(server, "new") and ready(server, "old"))
            assert ready(server, "old")["status"] == "True"
            conflict = ready(server, "new")
            assert conflict["reason"] == "ExtendedResourceConflict"
            assert "old" in conflict["message"]
            assert "new" in conflict["message"]
            assert "extendedResourceName" not in (device_class(server, "new") or {})["spec"]
            server.remove(GPU_CLASS, "old")
            await server.until(lambda: ready(server, "new")["status"] == "True")
            made = device_class(server, "new")
            assert made is not None
            assert made["spec"]["extendedResourceName"] == name
            await server.until(lambda: device_class(server, "old") is None)


@pytest.mark.parametrize(
    "edit",
    [
        {"selectors": []},
        {"extendedResourceName": "other.example.com/gpu"},
        {"config": [{"opaque": {"driver": "gpu.deckhouse.io", "parameters": {"a": 1}}}]},
    ],
)
async def test_a_foreign_edit_is_healed(edit: dict[str, Any]) -> None:
    async with ApiServer() as server:
        server.put(GPU_CLASS, gpus.gpu_class("h100", extendedResourceName=""))
        async with controller(server):
            await server.until(lambda: device_class(server, "h100"))
            made = device_class(server, "h100")
            assert made is not None
            wanted = made["spec"]
            async with server.client() as other:
                await other.merge_patch(
                    DEVICE_CLASS, "h100", {"spec": edit}, dict, manager="kubectl"
                )
            await server.until(lambda: (device_class(server, "h100") or {}).get("spec") == wanted)


async def test_a_deleted_device_class_comes_back_and_an_orphan_goes() -> None:
    async with ApiServer() as server:
        server.put(GPU_CLASS, gpus.gpu_class("h100"))
        orphan = {
            "metadata": {"name": "gone", "labels": {labels.MANAGED_BY: labels.MANAGED_BY_GPUDECK}},
            "spec": {},
        }
        server.put(DEVICE_CLASS, orphan)
        server.put(DEVICE_CLASS, {"metadata": {"name": "foreign"}, "spec": {}})
        async with controller(server):
            await server.until(lambda: device_class(server, "h100"))
            await server.until(lambda: device_class(server, "gone") is None)
            server.remove(DEVICE_CLASS, "h100")
            await server.until(lambda: device_class(server, "h100"))
            assert device_class(server, "foreign") is not None


async def test_a_class_of_another_schema_says_what_is_wrong_with_it() -> None:
    async with ApiServer() as server:
        server.put(GPU_CLASS, gpus.gpu_class("odd") | {"spec": {"devices": ["Passthrough"]}})
        async with controller(server):
            await server.until(lambda: ready(server, "odd"))
            assert ready(server, "odd")["reason"] == "UnknownDeviceKind"
            assert "spec.devices" in ready(server, "odd")["message"]
            assert device_class(server, "odd") is None


MIG = "mig-1g.6gb"
PART = "mig-0000-1b-00-0-1g6gb-14-3"


def shipped(server: ApiServer) -> set[str]:
    return {name for name in server.objects(GPU_CLASS) if name.startswith("mig-")}


ALL_SHIPPED = {"mig-1g.6gb", "mig-2g.12gb", "mig-4g.24gb"}


async def test_each_profile_of_the_cluster_gets_a_class_that_pods_can_ask_for() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu(support=gpus.FOUR_SLICES))
        async with controller(server, partition_classes="Auto"):
            await server.until(lambda: shipped(server) == ALL_SHIPPED)
            await server.until(lambda: ready(server, MIG).get("status") == "True")
            await server.until(lambda: server.objects(GPU_CLASS)[MIG]["status"].get("free") == 4)
        made = device_class(server, MIG)
        assert made is not None
        assert made["spec"]["extendedResourceName"] == "nvidia.com/mig-1g.6gb"


async def test_a_shipped_class_that_is_deleted_by_hand_comes_back() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu(support=gpus.FOUR_SLICES))
        async with controller(server, partition_classes="Auto"):
            await server.until(lambda: shipped(server) == ALL_SHIPPED)
            server.remove(GPU_CLASS, MIG)
            await server.until(lambda: shipped(server) == ALL_SHIPPED)


async def test_a_shipped_class_goes_when_no_card_has_the_profile_and_nobody_holds_it() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu(support=gpus.FOUR_SLICES))
        async with controller(server, partition_classes="Auto"):
            await server.until(lambda: shipped(server) == ALL_SHIPPED)
            server.put(RESOURCE_CLAIM, gpus.claim("c", gpus.result(device=PART), pods=("p",)))
            await server.until(phase_is(server, "InUse"))
            server.put(PHYSICAL_GPU, gpus.gpu(support={"supported": False}))
            await server.until(lambda: shipped(server) == {MIG})
            server.remove(RESOURCE_CLAIM, CLAIM)
            await server.until(lambda: not shipped(server))


async def test_without_shipped_classes_an_administrators_one_of_the_same_name_stays() -> None:
    async with ApiServer() as server:
        server.put(PHYSICAL_GPU, gpus.gpu(support=gpus.FOUR_SLICES))
        async with controller(server, partition_classes="Auto"):
            await server.until(lambda: shipped(server) == ALL_SHIPPED)
        own = server.objects(GPU_CLASS)[MIG]
        usage = {"maxDevicesPerClaim": 1}
        server.put(GPU_CLASS, {**own, "spec": {**own["spec"], "usage": usage}})
        async with controller(server, identity="second"):
            await server.until(lambda: shipped(server) == {MIG})
        assert server.objects(GPU_CLASS)[MIG]["spec"]["usage"] == usage


async def test_a_choice_that_does_not_exist_is_refused_in_words() -> None:
    with pytest.raises(errors.InvalidError, match=r"--partition-classes: 'All'.*Auto or None"):
        await main.run(Settings(partition_classes="All"))


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
        main, "Elector", functools.partial(Elector, renew_seconds=0.4, retry_seconds=0.05)
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


async def settled(server: ApiServer) -> None:
    """Let a card that concerns nobody through: what came before it has been dealt with then."""
    for number in range(2):
        sentinel = gpus.gpu(node=f"sentinel-{number}", product="sentinel")
        server.put(POD, gpus.adapter_pod(f"sentinel-{number}"))
        server.put(PHYSICAL_GPU, sentinel)
        name = sentinel["metadata"]["name"]
        await server.until(phase_is(server, "Ready", name))
        server.remove(PHYSICAL_GPU, name)


def own_writes(server: ApiServer, path: str = "") -> list[Any]:
    """The writes of the controller but for leases, events and what `settled` caused."""
    return [
        each
        for each in server.writes
        if path in each.path and not re.search("/leases|/events|/sentinel", each.path)
    ]


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
