# SPDX-License-Identifier: Apache-2.0
"""What sends is loaded once, when it is first needed."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.support import apiserver

from gpudeck.api.resource import ResourceClaim


async def test_requests_that_begin_together_share_one_connection_pool() -> None:
    async with apiserver.ApiServer() as server, server.client() as api:
        first, second = await asyncio.gather(api.transport(), api.transport())
        assert first is second is await api.transport()


async def test_a_client_that_sent_nothing_can_be_closed() -> None:
    async with apiserver.ApiServer() as server, server.client():
        assert server.writes == []


@pytest.mark.parametrize(("begin", "end"), [('{"a":', "}"), ("[", "]")])
async def test_what_a_user_nests_as_deeply_as_the_api_server_takes_can_be_read(
    begin: str, end: str
) -> None:
    depth = 9900
    deep = begin * depth + "1" + end * depth
    text = f'{{"metadata":{{"name":"c"}},"spec":{{"unknown":{deep}}}}}'.encode()
    async with apiserver.ApiServer() as server, server.client():
        assert msgspec.json.decode(text, type=ResourceClaim).metadata.name == "c"
        assert await asyncio.to_thread(msgspec.json.decode, text)
