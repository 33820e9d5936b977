# SPDX-License-Identifier: Apache-2.0
"""The controller at a real API server: what it keeps there, and that it then rests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import yaml
from tests.support import expect, gpus, realapiserver

from gpudeck import errors
from gpudeck.api import crds, resources
from gpudeck.controller import main, metrics
from gpudeck.controller.settings import Settings
from gpudeck.kube.client import Client

pytestmark = pytest.mark.asyncio

NAME = "gpu.deckhouse.io/h100"
SYSTEM = "gpudeck-system"


@pytest.fixture(scope="module")
def programs() -> Any:
    return realapiserver.required()


@pytest.fixture(scope="module")
def kubeconfig(programs: Any) -> Iterator[str]:
    with realapiserver.running(programs) as path:
        asyncio.run(_define(path))
        yield path


async def _define(kubeconfig: str) -> None:
    async with await Client.connect(kubeconfig) as admin:
        await admin.create(resources.NAMESPACE, {"metadata": {"name": SYSTEM}}, dict)
        for definition in crds.DEFINITIONS:
            body: dict[str, Any] = yaml.safe_load(crds.render(definition))
            await admin.apply(resources.CUSTOM_RESOURCE_DEFINITION, body, dict, manager="test")
        for definition in crds.DEFINITIONS:
            await expect.eventually(lambda each=definition: _is_served(admin, each), True)


async def _is_served(admin: Client, definition: Any) -> bool:
    try:
        await admin.raw("GET", definition.resource.path())
    except (errors.NotFoundError, errors.UnavailableError):
        return False
    return True


@contextlib.asynccontextmanager
async def controller(kubeconfig: str) -> AsyncIterator[None]:
    async with await Client.connect(kubeconfig) as client:
        settings = Settings(namespace=SYSTEM, count_seconds=0.0, webhook_port=0)
        task = asyncio.create_task(main.Controller(client, settings).run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def add_card(admin: Client, number: int) -> None:
    body = gpus.gpu(address=f"0000:{number:02x}:00.0")
    del body["metadata"]["uid"]
    status = body.pop("status")
    await admin.create(resources.PHYSICAL_GPU, body, dict)
    name = body["metadata"]["name"]
    await admin.merge_patch(
        resources.PHYSICAL_GPU, name, {"status": status}, dict, subresource="status"
    )


def writes() -> float:
    """DeviceClasses that controllers of this process have written."""
    value: float = metrics.writes.labels("DeviceClass")._value.get()
    return value


async def test_a_class_is_made_ready_by_one_write_whatever_the_server_keeps(
    programs: Any, kubeconfig: str
) -> None:
    is_mapped = realapiserver.minor_version(programs) >= 36
    before = writes()
    async with await Client.connect(kubeconfig) as admin, controller(kubeconfig):
        spec = {"requirements": {"products": ["*H100*"]}}
        await admin.create(resources.GPU_CLASS, {"metadata": {"name": "h100"}, "spec": spec}, dict)

        async def counted() -> tuple[Any, ...]:
            found = await admin.get(resources.GPU_CLASS, "h100", dict)
            said = found.get("status") or {}
            ready = {each["type"]: each["status"] for each in said.get("conditions", ())}
            return (
                ready.get("Ready"), said.get("extendedResourceName"),
                said.get("matching", {}).get("gpus"),
            )  # fmt: skip

        name = NAME if is_mapped else None
        await expect.eventually(counted, ("True", name, 0))
        for number in range(1, 4):
            await add_card(admin, number)
            await expect.eventually(counted, ("True", name, number))
        made = await admin.get(resources.DEVICE_CLASS, "h100", dict)
        assert made["spec"].get("extendedResourceName") == name
        assert writes() - before == 1
        await admin.delete(resources.GPU_CLASS, "h100")

        async def is_gone() -> bool:
            try:
                await admin.get(resources.DEVICE_CLASS, "h100", dict)
            except errors.NotFoundError:
                return True
            return False

        await expect.eventually(is_gone, True)


async def test_an_edit_by_somebody_else_is_healed(kubeconfig: str) -> None:
    async with await Client.connect(kubeconfig) as admin, controller(kubeconfig):
        await admin.create(resources.GPU_CLASS, {"metadata": {"name": "any"}, "spec": {}}, dict)

        async def selectors() -> int:
            try:
                found = await admin.get(resources.DEVICE_CLASS, "any", dict)
            except errors.NotFoundError:
                return 0
            return len(found["spec"].get("selectors") or ())

        await expect.eventually(selectors, 1)
        await admin.merge_patch(
            resources.DEVICE_CLASS, "any", {"spec": {"selectors": None}}, dict, manager="other"
        )
        await expect.eventually(selectors, 1)


ROUGH: dict[str, Any] = {
    "products": ["*H100*", "A*"],
    "memory": {"min": "9G", "max": "90Gi"},
    "driverVersion": {"min": "550", "max": "600.1"},
    "computeCapability": {"min": "8.0"},
    "architectures": ["Hopper", "Ampere"],
}


@pytest.mark.parametrize(
    "spec",
    [
        {"devices": ["Whole", "Partition", "Share"], "requirements": ROUGH},
        {"devices": ["Partition"], "partition": {"profiles": ["1g.10gb"]}},
        {"devices": ["Partition", "Share"], "partition": {"memory": {"min": "9G"}}},
        {
            "devices": ["Share"],
            "share": {"memory": {"default": "8Gi", "max": "16Gi"}, "cores": {"default": 25}},
        },
    ],
)
async def test_every_kind_of_class_becomes_a_device_class(
    kubeconfig: str, spec: dict[str, Any]
) -> None:
    async with await Client.connect(kubeconfig) as admin, controller(kubeconfig):
        await admin.create(resources.GPU_CLASS, {"metadata": {"name": "kind"}, "spec": spec}, dict)

        async def reason() -> str:
            found = await admin.get(resources.GPU_CLASS, "kind", dict)
            for each in (found.get("status") or {}).get("conditions", ()):
                return f"{each['reason']}: {each['message']}".partition(";")[0]
            return ""

        try:
            await expect.eventually(reason, "DeviceClassReady: claims name DeviceClass kind")
        finally:
            await admin.delete(resources.GPU_CLASS, "kind")
