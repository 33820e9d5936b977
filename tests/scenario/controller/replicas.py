# SPDX-License-Identifier: Apache-2.0
"""A controller to run beside an API server in memory, and what stands there."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.support import gpus
from tests.support.apiserver import ApiServer

from gpudeck.api.resources import (
    DEVICE_CLASS,
    EVENT,
    GPU_CLASS,
    PHYSICAL_GPU,
    POD,
)
from gpudeck.controller import main
from gpudeck.controller.settings import Settings

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


def matching(server: ApiServer, name: str, count: int) -> bool:
    found = server.objects(GPU_CLASS)[name].get("status", {})
    return bool(found.get("matching", {}).get("gpus") == count)


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
