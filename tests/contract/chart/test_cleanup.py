# SPDX-License-Identifier: Apache-2.0
"""The chart's account that cleans Nodes after an uninstallation, on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from tests.contract.chart import test_policies as policies
from tests.support import realapiserver
from tests.unit.cli import test_cleanup as cleaning

from gpudeck import errors
from gpudeck.api import core, labels
from gpudeck.api.meta import Meta
from gpudeck.api.resources import LEASE, NODE, POD, RESOURCE_CLAIM
from gpudeck.cli import cleanup
from gpudeck.kube.client import Client

pytestmark = pytest.mark.asyncio

ACCOUNT = "gpudeck-cleanup"


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[str]:
    with realapiserver.running(realapiserver.required()) as found:
        asyncio.run(policies.install(found))
        yield found


@pytest_asyncio.fixture
async def admin(kubeconfig: str) -> AsyncIterator[Client]:
    async with await Client.connect(kubeconfig) as client:
        yield client


async def state(admin: Client) -> tuple[Any, ...]:
    found = await admin.get(NODE, "node-0", core.Node)
    meta, status = found.metadata, found.status or core.NodeStatus()
    taints = (found.spec.taints if found.spec else None) or ()
    conditions = status.conditions or ()
    return meta.labels, meta.annotations, [each.key for each in taints], [
        each.type for each in conditions
    ]  # fmt: skip


async def test_it_gives_a_node_back_and_leaves_what_is_of_others(
    kubeconfig: str, admin: Client
) -> None:
    body = cleaning.node()
    status = {"metadata": {"name": "node-0"}, "status": body.pop("status")}
    given = {"nvidia.com/gpu.count": "4"}
    body["metadata"]["labels"] |= given
    body["metadata"]["annotations"] |= {labels.FEATURES_LABELS: "nvidia.com/gpu.count"}
    await admin.apply(NODE, body, Meta, manager="admin")
    await admin.apply(NODE, status, Meta, manager="kubelet", subresource="status")
    await cleaning.written(admin)
    assert sorted((await state(admin))[2]) == [labels.MODE_CHANGE, labels.MIG_TAINT, "mine"]
    async with policies.connected(kubeconfig, ACCOUNT, "") as job:
        outcome = await cleanup.clean(job, features=True)
        assert outcome == cleanup.Outcome(2, 1, {labels.MODE: 1})
        assert (await cleanup.clean(job, features=True)).cleaned == 0
    assert await state(admin) == (cleaning.THEIRS, {"mine": "x"}, ["mine"], ["Ready"])


async def test_it_removes_leases_of_gpudeck_alone(kubeconfig: str, admin: Client) -> None:
    names = (labels.CONTROLLER, labels.FEATURES_MASTER, "mine")
    for name in names:
        body = {"metadata": {"name": name, "namespace": policies.SYSTEM}}
        await admin.create(LEASE, body, Meta)
    async with policies.connected(kubeconfig, ACCOUNT, "") as job:
        for _ in range(2):
            await cleanup.release(job, policies.SYSTEM, features=True)
        with pytest.raises(errors.ForbiddenError):
            await job.delete(LEASE, "mine", namespace=policies.SYSTEM)
    found = await admin.list(LEASE, Meta, namespace=policies.SYSTEM)
    assert [each.metadata.name for each in found.items] == ["mine"]


async def test_its_token_does_nothing_else(kubeconfig: str, admin: Client) -> None:
    async with policies.connected(kubeconfig, ACCOUNT, "") as job:
        assert await policies.deletion(job, NODE, "node-1") != ""
        assert await policies.refusal(job, POD, policies.pod("default", "node-0")) != ""
        for resource in (POD, RESOURCE_CLAIM):
            with pytest.raises(errors.ForbiddenError):
                await job.list(resource, Meta)
