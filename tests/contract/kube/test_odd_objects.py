# SPDX-License-Identifier: Apache-2.0
"""What the API server takes from any user, and what msgspec by itself cannot read."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from gpudeck.api.resource import ResourceClaim
from gpudeck.api.resources import RESOURCE_CLAIM
from gpudeck.kube import caching, client

PARAMETERS = {
    "half a surrogate pair": r'{"a":"\ud800 \\ud800 \ud83d\ude00"}',
    "the other half": r'{"a":"x\udc00y"}',
    "half a pair as a key": r'{"\uD800":1}',
}


def claim(namespace: str, parameters: str) -> bytes:
    request = '{"name":"r","exactly":{"deviceClassName":"gpu"}}'
    opaque = f'{{"driver":"gpu.deckhouse.io","parameters":{parameters}}}'
    devices = f'{{"requests":[{request}],"config":[{{"requests":["r"],"opaque":{opaque}}}]}}'
    meta = f'{{"name":"odd","namespace":"{namespace}"}}'
    head = '"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim"'
    return f'{{{head},"metadata":{meta},"spec":{{"devices":{devices}}}}}'.encode()


@pytest.mark.parametrize("parameters", PARAMETERS.values(), ids=PARAMETERS)
async def test_one_odd_claim_of_a_user_is_read_listed_and_watched(
    connection: client.Client, namespace: str, parameters: str
) -> None:
    cache = caching.Cache(connection, RESOURCE_CLAIM, ResourceClaim, namespace=namespace)
    told = asyncio.Event()
    running = asyncio.create_task(cache.run())
    try:
        await cache.synced()
        cache.subscribe(lambda change: told.set())
        body = claim(namespace, parameters)
        await connection.raw("POST", RESOURCE_CLAIM.path(namespace), body=body)
        async with asyncio.timeout(15):
            await told.wait()
        assert list(cache.objects) == [f"{namespace}/odd"]
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    listed = await connection.list(RESOURCE_CLAIM, ResourceClaim, namespace=namespace)
    assert [each.metadata.name for each in listed.items] == ["odd"]
    found = await connection.get(RESOURCE_CLAIM, "odd", ResourceClaim, namespace=namespace)
    (config,) = found.spec.devices.config or ()
    assert config.opaque is not None
    assert config.opaque.driver == "gpu.deckhouse.io"
