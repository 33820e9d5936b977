# SPDX-License-Identifier: Apache-2.0
"""The webhooks at a real API server: what it asks about, and that it keeps them as they are.

Nothing answers here and every entry fails closed, so what is asked about is refused.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml
from tests.support import expect, gpus, realapiserver

from gpudeck import errors
from gpudeck.api import crds, labels, resources
from gpudeck.api.admission import WebhookConfiguration
from gpudeck.api.meta import Meta
from gpudeck.api.resources import (
    DEVICE_CLASS,
    GPU_CLASS,
    MUTATING_WEBHOOKS,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    VALIDATING_WEBHOOKS,
    Resource,
)
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.admission import certificates, naming, registration
from gpudeck.kube.client import Client

pytestmark = pytest.mark.asyncio

NAME = "gpu.deckhouse.io/quarter"
SHARE = {"devices": ["Share"], "share": {"memory": {"default": "8Gi"}}}
QUARTER = msgspec.convert(gpus.gpu_class("quarter", **SHARE), GPUClass)
NAMES = naming.Names({"quarter": QUARTER}, {NAME: QUARTER}, {NAME: QUARTER})
CONFIG = {"opaque": {"driver": labels.DRIVER, "parameters": {"kind": "Nonsense"}}}
FOREIGN = {"opaque": {"driver": "gpu.example.com", "parameters": {"kind": "Nonsense"}}}


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[str]:
    """An administrator's, of a server that has the registrations and what stood there before."""
    with realapiserver.running(realapiserver.required()) as path:
        asyncio.run(_install(path))
        yield path


async def _install(kubeconfig: str) -> None:
    async with await Client.connect(kubeconfig) as admin:
        for definition in crds.DEFINITIONS:
            body: dict[str, Any] = yaml.safe_load(crds.render(definition))
            await admin.apply(resources.CUSTOM_RESOURCE_DEFINITION, body, dict, manager="test")
        await expect.eventually(lambda: _is_served(admin), True)
        await admin.create(GPU_CLASS, {"metadata": {"name": "old"}, "spec": {}}, Meta)
        before = {"metadata": {"name": "old"}, "spec": {"config": [CONFIG]}}
        await admin.create(DEVICE_CLASS, before, Meta)
        now = datetime.datetime.now(datetime.UTC)
        held = certificates.renewed({}, registration.service_names("default"), now) or {}
        where = registration.Where("default", held[certificates.AUTHORITY])
        for resource, entries in (
            (MUTATING_WEBHOOKS, registration.mutating(where, NAMES)),
            (VALIDATING_WEBHOOKS, registration.validating(where, NAMES)),
        ):
            for each in entries:
                each.failure_policy = "Fail"
            made = {"metadata": {"name": registration.NAME}, "webhooks": entries}
            kept = await admin.apply(resource, made, WebhookConfiguration, manager="test")
            assert kept.webhooks == entries, "the leader would write them for ever"
        await expect.eventually(lambda: _bites(admin), True, seconds=30)


async def _is_served(admin: Client) -> bool:
    try:
        await admin.raw("GET", GPU_CLASS.path())
    except (errors.NotFoundError, errors.UnavailableError):
        return False
    return True


async def _bites(admin: Client) -> bool:
    new = {"metadata": {"name": "new"}, "spec": {}}
    return await asked(admin, GPU_CLASS, new) and await asked(admin, *pod(NAME))


@pytest_asyncio.fixture
async def admin(kubeconfig: str) -> AsyncIterator[Client]:
    async with await Client.connect(kubeconfig) as found:
        yield found


async def asked(admin: Client, resource: Resource, body: dict[str, Any]) -> bool:
    """Whether the API server asks a webhook, which cannot be reached, about a new object."""
    namespace = "default" if resource.namespaced else None
    try:
        await admin.create(resource, body, Meta, namespace=namespace, dry_run=True)
    except errors.UnavailableError:
        return True
    return False


def pod(name: str) -> tuple[Resource, dict[str, Any]]:
    part = {"name": "main", "image": "none", "resources": {"limits": {name: "1"}}}
    return POD, {"metadata": {"name": "p"}, "spec": {"containers": [part]}}


def claim(name: str, **devices: Any) -> dict[str, Any]:
    asks = [{"name": "r", "exactly": {"deviceClassName": name}}]
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": asks, **devices}}}


async def test_pods_and_claims_of_others_are_not_asked_about(admin: Client) -> None:
    assert await asked(admin, *pod(NAME))
    assert not await asked(admin, *pod("cpu"))
    assert not await asked(admin, *pod("example.com/gpu"))
    for resource in (RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE):

        def wrapped(name: str, resource: Resource = resource, **devices: Any) -> dict[str, Any]:
            made = claim(name, **devices)
            is_claim = resource is RESOURCE_CLAIM
            return made if is_claim else {**made, "spec": {"spec": made["spec"]}}

        assert await asked(admin, resource, wrapped("quarter"))
        assert await asked(admin, resource, wrapped("other", config=[CONFIG]))
        assert not await asked(admin, resource, wrapped("other"))
        assert not await asked(admin, resource, wrapped("other", config=[FOREIGN]))


async def test_of_pods_with_claims_only_those_that_name_their_node_are_asked_about(
    admin: Client,
) -> None:
    def made(**spec: Any) -> tuple[Resource, dict[str, Any]]:
        containers = [{"name": "main", "image": "none"}]
        return POD, {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}

    claims = [{"name": "c", "resourceClaimName": "c"}]
    assert await asked(admin, *made(nodeName="node-0", resourceClaims=claims))
    assert not await asked(admin, *made(resourceClaims=claims))
    assert not await asked(admin, *made(nodeName="node-0"))


async def test_device_classes_of_other_drivers_are_not_asked_about(admin: Client) -> None:
    def made(*config: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": {"name": "d"}, "spec": {"config": list(config)}}

    assert await asked(admin, DEVICE_CLASS, made(FOREIGN, CONFIG))
    assert not await asked(admin, DEVICE_CLASS, made(FOREIGN))
    assert not await asked(admin, DEVICE_CLASS, {"metadata": {"name": "d"}, "spec": {}})


@pytest.mark.parametrize("resource", [GPU_CLASS, DEVICE_CLASS], ids=lambda each: each.kind)
async def test_a_class_whose_spec_stays_is_not_asked_about(
    admin: Client, resource: Resource
) -> None:
    """Deletion in the foreground ends with an update, which must not be refused."""
    labelled = {"metadata": {"labels": {"a": "b"}}}
    await admin.merge_patch(resource, "old", labelled, Meta)
    changed = {"vendor": "nvidia"} if resource is GPU_CLASS else {"config": [CONFIG, CONFIG]}
    with pytest.raises(errors.GpudeckError, match="failed calling webhook"):
        await admin.merge_patch(resource, "old", {"spec": changed}, Meta)


async def test_without_any_class_claims_are_asked_about_for_their_parameters_alone(
    admin: Client,
) -> None:
    where = registration.Where("default", b"")
    entries = registration.validating(where, naming.Names({}, {}, {}))
    body = {"metadata": {"name": registration.NAME}, "webhooks": entries}
    kept = await admin.rehearse(VALIDATING_WEBHOOKS, body, WebhookConfiguration, manager="other")
    found = {each.name: each.match_conditions for each in kept.webhooks or ()}
    assert all(found[each.name] == each.match_conditions for each in entries)


async def test_thousands_of_classes_are_registered_and_asked_about(admin: Client) -> None:
    """The API server (1.37) compiles no condition of more than 100,000 characters."""
    count, last = 4000, "of-a-team-with-a-long-name-3999"
    found = {
        name: msgspec.convert(gpus.gpu_class(name, **SHARE), GPUClass)
        for name in (f"of-a-team-with-a-long-name-{number}" for number in range(count))
    }
    by_resource = {f"gpu.deckhouse.io/{name}": each for name, each in found.items()}
    names = naming.Names(found, by_resource, by_resource)
    where = registration.Where("default", b"")
    for resource, entries in (
        (MUTATING_WEBHOOKS, registration.mutating(where, names)),
        (VALIDATING_WEBHOOKS, registration.validating(where, names)),
    ):
        for each in entries:
            each.failure_policy = "Fail"
        made = {"metadata": {"name": f"many-{resource.plural}"}, "webhooks": entries}
        kept = await admin.apply(resource, made, WebhookConfiguration, manager="test")
        try:
            conditions = [each.match_conditions for each in kept.webhooks or ()]
            assert conditions == [each.match_conditions for each in entries]
            if resource is VALIDATING_WEBHOOKS:
                await expect.eventually(lambda: asked(admin, RESOURCE_CLAIM, claim(last)), True)
                assert not await asked(admin, RESOURCE_CLAIM, claim("other"))
            await expect.eventually(lambda: asked(admin, *pod(f"gpu.deckhouse.io/{last}")), True)
            assert not await asked(admin, *pod("example.com/gpu"))
        finally:
            await admin.delete(resource, f"many-{resource.plural}")
