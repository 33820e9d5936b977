# SPDX-License-Identifier: Apache-2.0
"""What sends is loaded once, when it is first needed."""

from __future__ import annotations

import asyncio

from tests.support import apiserver


async def test_requests_that_begin_together_share_one_connection_pool() -> None:
    async with apiserver.ApiServer() as server, server.client() as api:
        first, second = await asyncio.gather(api.transport(), api.transport())
        assert first is second is await api.transport()


async def test_a_client_that_sent_nothing_can_be_closed() -> None:
    async with apiserver.ApiServer() as server, server.client():
        assert server.writes == []
