# SPDX-License-Identifier: Apache-2.0
"""Evictions: budgets are respected, and a pod made anew under the same name is left alone."""

from __future__ import annotations

from typing import Any

from tests.support.apiserver import BUDGETS

from gpudeck import errors
from gpudeck.api.core import Pod
from gpudeck.api.meta import Meta
from gpudeck.api.resources import NAMESPACE, POD, VALIDATING_WEBHOOKS, Resource
from gpudeck.kube import client, evicting

BUDGET = Resource(BUDGETS[0], "v1", "PodDisruptionBudget", BUDGETS[1], namespaced=True)


async def make(connection: client.Client, namespace: str, name: str) -> evicting.Pod:
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    made = await connection.create(POD, body, Pod)
    running = {"status": {"phase": "Running"}}
    await connection.merge_patch(
        POD, name, running, Meta, namespace=namespace, subresource="status"
    )
    return evicting.Pod(namespace, name, made.metadata.uid or "")


async def protect(connection: client.Client, namespace: str, name: str, app: str) -> None:
    body = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
    }
    await connection.create(BUDGET, body, Meta)


async def is_there(connection: client.Client, pod: evicting.Pod) -> bool:
    try:
        await connection.get(POD, pod.name, Pod, namespace=pod.namespace)
    except errors.NotFoundError:
        return False
    return True


async def test_a_pod_that_nothing_keeps_goes(connection: client.Client, namespace: str) -> None:
    pod = await make(connection, namespace, "free")
    assert await evicting.evict(connection, pod) == ""
    assert not await is_there(connection, pod)
    assert await evicting.evict(connection, pod) == ""


async def test_another_pod_of_the_name_stays(connection: client.Client, namespace: str) -> None:
    pod = await make(connection, namespace, "anew")
    assert await evicting.evict(connection, evicting.Pod(namespace, pod.name, "another")) == ""
    assert await is_there(connection, pod)


async def test_a_budget_keeps_its_pod_and_says_so(
    connection: client.Client, namespace: str
) -> None:
    pod = await make(connection, namespace, "web")
    await protect(connection, namespace, "web-budget", "web")
    why = await evicting.evict(connection, pod)
    assert why.startswith("Cannot evict pod as it would violate the pod's disruption budget.")
    assert "The disruption budget web-budget" in why
    assert await is_there(connection, pod)


AWAY = {
    "metadata": {"name": "away"},
    "webhooks": [
        {
            "name": "keeps.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods/eviction"],
                    "operations": ["CREATE"],
                }
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kept"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}


async def test_a_webhook_that_is_away_keeps_its_pod_and_is_said(real_kubeconfig: str) -> None:
    """The API server alone knows what it says then; the webhook is in force after a while."""
    async with await client.Client.connect(real_kubeconfig) as connection:
        await connection.create(NAMESPACE, {"metadata": {"name": "kept"}}, Meta)
        await connection.create(VALIDATING_WEBHOOKS, AWAY, Meta)
        try:
            why, number = "", 0
            while not why and number < 1000:
                number += 1
                pod = await make(connection, "kept", f"pod-{number}")
                why = await evicting.evict(connection, pod)
            assert 'failed calling webhook "keeps.example.com"' in why
            assert await is_there(connection, pod)
        finally:
            await connection.delete(VALIDATING_WEBHOOKS, "away")
