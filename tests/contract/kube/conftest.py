# SPDX-License-Identifier: Apache-2.0
"""Every test of this folder runs on the in-memory API server and on a real one."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from tests.support import apiserver, realapiserver

from gpudeck.api.meta import Meta
from gpudeck.api.resources import NAMESPACE
from gpudeck.kube import client

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def real_kubeconfig() -> Iterator[str]:
    with realapiserver.running(realapiserver.required()) as kubeconfig:
        yield kubeconfig


@pytest_asyncio.fixture(params=["in-memory", "real"])
async def kubeconfig(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The path of an administrator's kubeconfig of one of the two servers."""
    if request.param == "real":
        yield request.getfixturevalue("real_kubeconfig")
        return
    async with apiserver.ApiServer() as server:
        yield server.kubeconfig()


@pytest_asyncio.fixture
async def connection(kubeconfig: str) -> AsyncIterator[client.Client]:
    """A client of one of the two servers."""
    async with await client.Client.connect(kubeconfig) as connection:
        yield connection


@pytest_asyncio.fixture
async def namespace(connection: client.Client) -> str:
    """A namespace of the test's own."""
    name = f"test-{next(_numbers)}"
    await connection.create(NAMESPACE, {"metadata": {"name": name}}, Meta)
    return name


@pytest.fixture
def unique(namespace: str) -> str:
    """A name for an object of the cluster."""
    return f"{namespace}-object"
