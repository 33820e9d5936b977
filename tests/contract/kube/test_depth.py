# SPDX-License-Identifier: Apache-2.0
"""What anybody may write as parameters of a claim stops nobody who reads claims."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support import realapiserver

from gpudeck.api.meta import Meta
from gpudeck.api.resource import ResourceClaim
from gpudeck.api.resources import RESOURCE_CLAIM
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client

pytestmark = pytest.mark.asyncio

DEEP = {
    "lists": b'{"x":' + b"[" * 4000 + b"]" * 4000 + b"}",
    "mappings": b'{"x":' * 1500 + b"1" + b"}" * 1500,
}
"""As deep as the 10 KiB of opaque parameters let it be, nearly (1.37)."""


def claim(name: str, parameters: bytes) -> dict[str, Any]:
    opaque = {"driver": "example.com", "parameters": msgspec.Raw(parameters)}
    request = {"name": "card", "exactly": {"deviceClassName": "gpu"}}
    devices = {"requests": [request], "config": [{"opaque": opaque}]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}


@pytest.mark.parametrize("parameters", DEEP.values(), ids=DEEP)
async def test_a_deep_object_is_read_like_any_other(parameters: bytes) -> None:
    with realapiserver.running(realapiserver.required()) as kubeconfig:
        async with await Client.connect(kubeconfig) as api:
            await api.create(RESOURCE_CLAIM, claim("listed", parameters), Meta)
            cache = Cache(api, RESOURCE_CLAIM, ResourceClaim)
            task = asyncio.create_task(cache.run())
            try:
                async with asyncio.timeout(30):
                    await cache.synced()
                    await api.create(RESOURCE_CLAIM, claim("watched", parameters), Meta)
                    while len(cache.objects) < 2:
                        assert not task.done(), task
                        await asyncio.sleep(0.02)
            finally:
                task.cancel()
            assert set(cache.objects) == {"default/listed", "default/watched"}
