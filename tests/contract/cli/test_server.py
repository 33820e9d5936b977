# SPDX-License-Identifier: Apache-2.0
"""The commands for people at a real API server, which may lack a kind or two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import realapiserver

from gpudeck.cli import cordon, reading
from gpudeck.errors import UnsupportedError
from gpudeck.kube.client import Client

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def programs() -> Path:
    return realapiserver.required()


@pytest.fixture(scope="module")
def kubeconfig(programs: Path) -> Iterator[str]:
    with realapiserver.running(programs) as found:
        yield found


async def test_the_world_is_read_although_kinds_are_missing(kubeconfig: str) -> None:
    async with await Client.connect(kubeconfig) as client:
        world = await reading.world(client)
    assert (world.gpus, world.taint_rules, world.unreadable) == ({}, {}, [])


async def test_a_card_is_cordoned_where_the_server_has_rules_and_else_it_says_so(
    programs: Path, kubeconfig: str
) -> None:
    async with await Client.connect(kubeconfig) as client:
        if realapiserver.minor_version(programs) >= 37:
            assert (await cordon.rules(client)).found == {}
            return
        with pytest.raises(UnsupportedError, match="no card can be cordoned"):
            await cordon.rules(client)
