# SPDX-License-Identifier: Apache-2.0
"""NodeGroups of a cluster whose kind comes and goes."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.apiserver import ApiServer

from gpudeck.api.resources import CUSTOM_RESOURCE_DEFINITION, NODE_GROUP
from gpudeck.controller.nodegroups import served

pytestmark = pytest.mark.asyncio

DEFINITION = "nodegroups.deckhouse.io"


def followers() -> list[asyncio.Task[object]]:
    """The tasks that follow objects."""
    return [task for task in asyncio.all_tasks() if task.get_name() == "NodeGroups"]


async def test_who_is_cancelled_while_the_kind_goes_ends() -> None:
    async with ApiServer() as server, server.client() as client:
        server.put(CUSTOM_RESOURCE_DEFINITION, {"metadata": {"name": DEFINITION}})
        server.put(NODE_GROUP, {"metadata": {"name": "gpus"}})
        found = served.NodeGroups(client, lambda: None)
        task = asyncio.create_task(found.run())
        await server.until(lambda: list(found.objects))
        (follower,) = followers()
        server.remove(CUSTOM_RESOURCE_DEFINITION, DEFINITION)
        async with asyncio.timeout(10):
            while not follower.cancelling():  # noqa: ASYNC110 - it tells nobody.
                await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=10)
        assert done
        assert not followers()
