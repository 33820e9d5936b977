# SPDX-License-Identifier: Apache-2.0
"""Nodes and their modes, against an API server in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.scenario.controller.test_controller import controller
from tests.support.apiserver import ApiServer

from gpudeck.api import labels
from gpudeck.api.resources import NODE

pytestmark = pytest.mark.asyncio

DRA, PLUGIN = labels.MODE_DRA, labels.MODE_DEVICE_PLUGIN
CARDS = {labels.VENDOR: "nvidia"}


def put_node(server: ApiServer, name: str = "node-0", **known: str) -> None:
    server.put(NODE, {"metadata": {"name": name, "labels": known}})


def active(server: ApiServer, name: str = "node-0") -> str | None:
    found: str | None = server.objects(NODE)[name]["metadata"]["labels"].get(labels.ACTIVE_MODE)
    return found


def active_is(server: ApiServer, mode: str | None, name: str = "node-0") -> Callable[[], bool]:
    return lambda: active(server, name) == mode


@pytest.mark.parametrize("default", labels.MODES)
async def test_nodes_with_cards_get_the_default_mode_or_their_own(default: str) -> None:
    async with ApiServer() as server:
        put_node(server, "plain")
        put_node(server, **CARDS)
        put_node(server, "node-1", **CARDS, **{labels.MODE: DRA})
        put_node(server, "node-2", **CARDS, **{labels.MODE: PLUGIN})
        async with controller(server, default_mode=default):
            await server.until(active_is(server, default))
            await server.until(active_is(server, DRA, "node-1"))
            await server.until(active_is(server, PLUGIN, "node-2"))
            put_node(server, "node-3", **CARDS)
            await server.until(active_is(server, default, "node-3"))
        assert active(server, "plain") is None


async def test_a_node_whose_cards_are_gone_has_no_mode() -> None:
    async with ApiServer() as server:
        put_node(server, **CARDS)
        async with controller(server):
            await server.until(active_is(server, PLUGIN))
            put_node(server, **{labels.ACTIVE_MODE: PLUGIN})
            await server.until(active_is(server, None))
