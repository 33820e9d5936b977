# SPDX-License-Identifier: Apache-2.0
"""`usage` of a class is enforced by the real API server alone: no process of gpudeck runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from tests.chart import rendering
from tests.support import expect, realapiserver

from gpudeck.api.meta import Meta
from gpudeck.api.resources import (
    CUSTOM_RESOURCE_DEFINITION,
    GPU_CLASS,
    NAMESPACE,
    POD,
    RESOURCE_CLAIM,
    Resource,
)
from gpudeck.errors import ForbiddenError, NotFoundError, UnavailableError
from gpudeck.kube.client import Client

pytestmark = pytest.mark.asyncio

CRDS = Path(__file__).parents[3] / "charts/gpudeck/crds"
GROUP = "admissionregistration.k8s.io"
KINDS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
NAME = "gpu.deckhouse.io/rationed"
USAGE = {
    "namespaceSelector": {
        "matchExpressions": [{"key": "team", "operator": "In", "values": ["ml", "vision"]}]
    },
    "maxDevicesPerClaim": 2,
}


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[str]:
    """An administrator's, of an API server with the chart's policies about usage and a class."""
    with realapiserver.running(realapiserver.required()) as found:
        asyncio.run(_install(found))
        yield found


async def _install(kubeconfig: str) -> None:
    async with await Client.connect(kubeconfig) as admin:
        for path in sorted(CRDS.glob("*.yaml")):
            body = yaml.safe_load(path.read_text())
            await admin.apply(CUSTOM_RESOURCE_DEFINITION, body, dict, manager="test")
        await expect.eventually(lambda: _is_served(admin), True)
        for team in ("ml", "sales"):
            meta = {"name": team, "labels": {"team": team}}
            await admin.create(NAMESPACE, {"metadata": meta}, Meta)
        body = {"metadata": {"name": "rationed"}, "spec": {"usage": USAGE}}
        await admin.create(GPU_CLASS, body, Meta)
        status = {"status": {"extendedResourceName": NAME}}
        await admin.merge_patch(GPU_CLASS, "rationed", status, Meta, subresource="status")
        for each in rendering.golden("dra"):
            if each["kind"] in KINDS and each["metadata"]["name"].startswith("gpudeck-usage-"):
                kind = Resource(GROUP, "v1", each["kind"], KINDS[each["kind"]], namespaced=False)
                await admin.apply(kind, each, dict, manager="test")

        # The API server takes policies up a moment after they were made.
        async def bites() -> bool:
            return all(
                [
                    await refusal(admin, kind, body) != ""
                    for kind, body in (MANY_CLAIMED, MANY_ASKED)
                ]
            )

        await expect.eventually(bites, True, seconds=60)


async def _is_served(admin: Client) -> bool:
    try:
        await admin.raw("GET", GPU_CLASS.path())
    except (NotFoundError, UnavailableError):
        return False
    return True


def claim(count: int, namespace: str = "ml") -> dict[str, Any]:
    exactly = {"deviceClassName": "rationed", "count": count}
    return {
        "metadata": {"name": "c", "namespace": namespace},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }


def pod(count: int, namespace: str = "ml") -> dict[str, Any]:
    limits = {NAME: str(count)} if count else {}
    return {
        "metadata": {"name": "p", "namespace": namespace},
        "spec": {
            "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}]
        },
    }


MANY_CLAIMED, MANY_ASKED = (RESOURCE_CLAIM, claim(3)), (POD, pod(3))


async def refusal(admin: Client, resource: Resource, body: dict[str, Any]) -> str:
    """What the API server says against making an object; "" if nothing. Nothing is kept."""
    meta = body["metadata"]
    try:
        await admin.create(resource, body, Meta, namespace=meta["namespace"], dry_run=True)
    except ForbiddenError as error:
        return str(error)
    return ""


@pytest_asyncio.fixture
async def admin(kubeconfig: str) -> AsyncIterator[Client]:
    async with await Client.connect(kubeconfig) as client:
        yield client


async def test_what_a_class_allows_is_taken(admin: Client) -> None:
    assert await refusal(admin, RESOURCE_CLAIM, claim(2)) == ""
    assert await refusal(admin, POD, pod(2)) == ""


async def test_more_devices_than_a_claim_may_have_are_refused(admin: Client) -> None:
    said = await refusal(admin, *MANY_CLAIMED)
    assert "ask for 3 devices of GPUClass rationed; at most 2 are allowed in one claim" in said
    said = await refusal(admin, *MANY_ASKED)
    assert f"the containers ask for 3 of {NAME}; at most 2 are allowed in one pod" in said


async def test_a_namespace_without_the_labels_is_refused(admin: Client) -> None:
    said = await refusal(admin, RESOURCE_CLAIM, claim(1, "sales"))
    assert "GPUClass rationed may not be used in namespace sales" in said
    said = await refusal(admin, POD, pod(1, "sales"))
    assert f"{NAME} may not be used in namespace sales" in said


@pytest.mark.parametrize("policy", ["Always", None])
async def test_init_containers_and_sidecars_ask_like_any_other(
    admin: Client, policy: str | None
) -> None:
    def asking(namespace: str, first: int, main: int) -> dict[str, Any]:
        body = pod(main, namespace)
        limits = {"limits": {NAME: str(first)}}
        container = {"name": "first", "image": "none", "resources": limits}
        body["spec"]["initContainers"] = [
            container if policy is None else {**container, "restartPolicy": policy}
        ]
        return body

    said = await refusal(admin, POD, asking("sales", 1, 0))
    assert f"{NAME} may not be used in namespace sales" in said
    assert f"ask for 3 of {NAME}" in await refusal(admin, POD, asking("ml", 3, 0))
    both = await refusal(admin, POD, asking("ml", 1, 2))
    assert (f"ask for 3 of {NAME}" in both) is (policy == "Always")


async def test_a_pod_that_asks_for_no_card_is_nobodys_business(admin: Client) -> None:
    assert await refusal(admin, POD, pod(0, "sales")) == ""
