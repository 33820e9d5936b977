# SPDX-License-Identifier: Apache-2.0
"""A real API server that has gpudeck's definitions, one for all tests of this folder."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from tests.support import realapiserver

from gpudeck import errors
from gpudeck.api import crds, resources
from gpudeck.kube import client

DEFINITIONS = resources.CUSTOM_RESOURCE_DEFINITION


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the real programs."""
    return realapiserver.required()


@pytest.fixture(scope="session")
def kubeconfig(programs: Path) -> Iterator[str]:
    """The path of an administrator's kubeconfig."""
    with realapiserver.running(programs) as path:
        asyncio.run(_define(path))
        yield path


async def _define(kubeconfig: str) -> None:
    async with await client.Client.connect(kubeconfig) as connection:
        for definition in crds.DEFINITIONS:
            body: dict[str, Any] = yaml.safe_load(crds.render(definition))
            await connection.apply(DEFINITIONS, body, dict, manager="test")
        async with asyncio.timeout(30):
            for definition in crds.DEFINITIONS:
                await _served(connection, definition.resource.path())


async def _served(connection: client.Client, path: str) -> None:
    while True:
        try:
            await connection.raw("GET", path)
        except (errors.NotFoundError, errors.UnavailableError):
            await asyncio.sleep(0.1)
        else:
            return


@pytest_asyncio.fixture
async def connection(kubeconfig: str) -> AsyncIterator[client.Client]:
    """A client of that server."""
    async with await client.Client.connect(kubeconfig) as connection:
        yield connection


@pytest.fixture(scope="session")
def scheduler(programs: Path, kubeconfig: str) -> Iterator[None]:
    """A real scheduler at that server."""
    program = programs / "kube-scheduler"
    if not program.exists():
        pytest.skip("no kube-scheduler beside kube-apiserver")
    flags = [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]
    process = subprocess.Popen(
        [str(program), *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()
