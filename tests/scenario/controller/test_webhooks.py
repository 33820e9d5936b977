# SPDX-License-Identifier: Apache-2.0
"""The leader's work for the webhooks: the Secret and what is registered, as they end up."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support import gpus
from tests.support.apiserver import ApiServer

from gpudeck.api.resources import MUTATING_WEBHOOKS, SECRET, VALIDATING_WEBHOOKS
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.admission import naming, registration
from gpudeck.kube.queueing import Queue

pytestmark = pytest.mark.asyncio

NAME = "gpu.deckhouse.io/h100"
H100 = msgspec.convert(gpus.gpu_class("h100"), GPUClass)
REWRITTEN = naming.Names({"h100": H100}, {NAME: H100}, {NAME: H100})


def made_by_chart(server: ApiServer) -> None:
    meta = {"name": registration.SECRET_NAME, "namespace": "t"}
    server.put(SECRET, {"metadata": meta, "type": "Opaque"})
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        server.put(resource, {"metadata": {"name": registration.NAME}})


def entries(server: ApiServer) -> list[dict[str, Any]]:
    return [
        each
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        for each in server.objects(resource)[registration.NAME].get("webhooks") or ()
    ]


async def test_what_is_registered_is_left_alone_while_it_is_as_it_must_be() -> None:
    async with ApiServer() as server, server.client() as client:
        made_by_chart(server)
        leader = registration.Registration(client, "t", lambda: REWRITTEN)
        await leader.reconcile("")
        wrote = len(server.writes)
        assert len(entries(server)) == 4
        await leader.reconcile("")
        assert len(server.writes) == wrote


async def test_a_right_that_is_not_there_yet_is_waited_for() -> None:
    async with ApiServer() as server, server.client() as client:
        made_by_chart(server)
        leader = registration.Registration(client, "t", lambda: REWRITTEN)
        server.fail(1, 403, path="mutatingwebhook", reason="Forbidden")
        queue = Queue(first_seconds=0.01)
        queue.add("")
        task = asyncio.create_task(queue.work(leader.reconcile))
        await server.until(lambda: len(entries(server)) == 4)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_classes_that_find_no_room_are_told_of_once_and_the_others_are_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ApiServer() as server, server.client() as client:
        made_by_chart(server)
        names, told = REWRITTEN, list[tuple[int, int]]()
        leader = registration.Registration(
            client, "t", lambda: names, left_out=lambda *found: told.append(found)
        )
        monkeypatch.setattr(registration, "MOST", 60)
        await leader.reconcile("")
        assert told == []
        later = msgspec.convert(gpus.gpu_class("later", created="2030-01-01T00:00:00Z"), GPUClass)
        both = {NAME: H100, "gpu.deckhouse.io/later": later}
        names = naming.Names({"h100": H100, "later": later}, both, both)
        await leader.reconcile("")
        await leader.reconcile("")
        assert told == [(1, 2)]
        assert leader.rewritten == {NAME}
        names = REWRITTEN
        await leader.reconcile("")
        assert told == [(1, 2), (0, 1)]
