# SPDX-License-Identifier: Apache-2.0
"""Classes, from a GPUClass to its DeviceClass and status, as the controller keeps them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from tests.scenario.controller.replicas import (
    CLAIM,
    H100,
    controller,
    device_class,
    events,
    matching,
    own_writes,
    phase_is,
    ready,
)
from tests.support import gpus, ports
from tests.support.apiserver import ApiServer

from gpudeck import errors
from gpudeck.api import labels
from gpudeck.api.resources import (
    DEVICE_CLASS,
    GPU_CLASS,
    MUTATING_WEBHOOKS,
    PHYSICAL_GPU,
    RESOURCE_CLAIM,
    SECRET,
    VALIDATING_WEBHOOKS,
)
from gpudeck.controller import main
from gpudeck.controller.admission import registration
from gpudeck.controller.gpuclass import reconciler
from gpudeck.controller.settings import Settings

pytestmark = pytest.mark.asyncio


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
        async with controller(server, webhook_port=ports.free()):
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
        async with controller(server, webhook_port=ports.free()):
            await server.until(lambda: ready(server, "whole").get("status") == "True")
            await server.until(lambda: ready(server, "quarter").get("status") == "False")
            assert ready(server, "quarter")["reason"] == "WebhookNotRegistered"
            assert "WebhookNotRegistered" not in events(server)
            put_registrations(server)
            await server.until(lambda: ready(server, "quarter").get("status") == "True")
            assert registered(server)
            found = server.objects(GPU_CLASS)["quarter"]["status"]
            assert found["extendedResourceName"] == "gpu.deckhouse.io/quarter"


async def test_registrations_that_come_anew_are_filled_at_once() -> None:
    """As `helm upgrade` leaves them: empty."""
    async with ApiServer() as server:
        put_registrations(server)
        server.put(GPU_CLASS, QUARTER)
        async with controller(server, webhook_port=ports.free()):
            await server.until(lambda: registered(server))
            server.put(MUTATING_WEBHOOKS, {"metadata": {"name": registration.NAME}})
            await server.until(lambda: registered(server))
            server.remove(MUTATING_WEBHOOKS, registration.NAME)
            server.put(MUTATING_WEBHOOKS, {"metadata": {"name": registration.NAME}})
            await server.until(lambda: registered(server))


async def test_a_ready_class_stays_so_while_another_leader_registers_its_webhook() -> None:
    """What it selects would be withdrawn otherwise."""
    async with ApiServer() as server:
        put_registrations(server)
        server.put(GPU_CLASS, QUARTER)
        async with controller(server, webhook_port=ports.free()):
            await server.until(lambda: ready(server, "quarter").get("status") == "True")
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            server.remove(resource, registration.NAME)
        async with controller(server, webhook_port=ports.free()):
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
