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

DEPTH = 4000
"""As deep as the 10 KiB of opaque parameters let it be, nearly (1.37)."""


def claim(name: str) -> dict[str, Any]:
    deep = msgspec.Raw(b'{"x":' + b"[" * DEPTH + b"]" * DEPTH + b"}")
    opaque = {"driver": "example.com", "parameters": deep}
    request = {"name": "card", "exactly": {"deviceClassName": "gpu"}}
    devices = {"requests": [request], "config": [{"opaque": opaque}]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}


async def test_a_deep_object_is_read_like_any_other() -> None:
    with realapiserver.running(realapiserver.required()) as kubeconfig:
        async with await Client.connect(kubeconfig) as api:
            await api.create(RESOURCE_CLAIM, claim("listed"), Meta)
            cache = Cache(api, RESOURCE_CLAIM, ResourceClaim)
            task = asyncio.create_task(cache.run())
            try:
                async with asyncio.timeout(30):
                    await cache.synced()
                    await api.create(RESOURCE_CLAIM, claim("watched"), Meta)
                    while len(cache.objects) < 2:
                        assert not task.done(), task
                        await asyncio.sleep(0.02)
            finally:
                task.cancel()
            assert set(cache.objects) == {"default/listed", "default/watched"}
