# SPDX-License-Identifier: Apache-2.0
"""A cache and a client behind a proxy that breaks things: in the end they are right."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from tests.support import apiserver, expect, proxy

from gpudeck import errors
from gpudeck.api.core import ConfigMap, Pod
from gpudeck.api.meta import Meta
from gpudeck.api.resources import CONFIG_MAP, POD
from gpudeck.kube import caching, client, pacing, watching

QUICK = (0.01, 0.05)


@dataclass
class World:
    """The server itself, and the same behind the proxy."""

    direct: client.Client
    broken: client.Client
    proxy: proxy.Proxy
    namespace: str
    told: list[str] = field(default_factory=list)

    async def make(self, name: str) -> None:
        meta = {"name": name, "namespace": self.namespace, "labels": {"mine": "yes"}}
        await self.direct.create(CONFIG_MAP, {"metadata": meta}, Meta)

    async def remove(self, name: str) -> None:
        await self.direct.delete(CONFIG_MAP, name, namespace=self.namespace)

    def note(self, change: watching.Change[ConfigMap]) -> None:
        word = "gone" if change.new is None else "new" if change.old is None else "changed"
        self.told.append(f"{word} {change.key.partition('/')[2]}")

    @contextlib.asynccontextmanager
    async def cache(self) -> AsyncIterator[caching.Cache[ConfigMap]]:
        """A cache that runs, synced and with its watch open."""
        cache = caching.Cache(
            self.broken, CONFIG_MAP, ConfigMap,
            namespace=self.namespace, label_selector="mine=yes", pace=pacing.Backoff(*QUICK),
        )  # fmt: skip
        cache.subscribe(self.note)
        running = asyncio.create_task(cache.run())
        await cache.synced()
        await until(lambda: self.proxy.open_watches == 1)
        yield cache
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def watches(self, count: int) -> None:
        """Wait until that many watches have been asked for."""
        await until(lambda: self.count("watch=true") >= count)

    def count(self, query: str) -> int:
        return sum(query in each for each in self.proxy.requests)


async def until(true: Callable[[], bool]) -> None:
    async def read() -> bool:
        return true()

    await expect.eventually(read, True)


@pytest_asyncio.fixture
async def world(connection: client.Client, namespace: str, kubeconfig: str) -> AsyncIterator[World]:
    async with (
        proxy.Proxy(kubeconfig) as between,
        await client.Client.connect(between.kubeconfig) as broken,
    ):
        yield World(connection, broken, between, namespace)


async def assert_follows(world: World, cache: caching.Cache[ConfigMap]) -> None:
    """Check that the cache still hears of what happens."""
    await world.make("later")
    await until(lambda: f"{world.namespace}/later" in cache.objects)


async def test_a_cut_watch_goes_on_without_a_second_list(world: World) -> None:
    await world.make("one")
    async with world.cache() as cache:
        world.proxy.cut()
        await assert_follows(world, cache)
        await world.make("more")
        await until(lambda: len(cache.objects) == 3)
    assert world.count("limit=") == 1
    assert world.told == ["new one", "new later", "new more"]


async def test_what_happened_while_the_server_was_away_is_told(world: World) -> None:
    await world.make("one")
    async with world.cache() as cache:
        await world.proxy.go_away()
        await world.remove("one")
        await world.make("two")
        await world.proxy.come_back()
        await until(lambda: list(cache.objects) == [f"{world.namespace}/two"])
    assert world.told == ["new one", "gone one", "new two"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n',
        b'{"type":"MODIFIED","object":{"meta\n',
        b"\xff\xfe\n",
        b'{"type":"MODIFIED"}\n',
        b'{"type":"MODIFIED","object":{"metadata":{"name":7}}}\n',
    ],
    ids=["expired", "half a line", "not text", "no object", "no name"],
)
async def test_a_stream_that_cannot_be_trusted_is_replaced_by_a_list(
    world: World, line: bytes
) -> None:
    await world.make("one")
    async with world.cache() as cache:
        await world.proxy.say(line)
        await until(lambda: world.count("limit=") == 2)
        await assert_follows(world, cache)
    assert world.told == ["new one", "new later"]


async def test_an_object_that_does_not_fit_is_left_out_alone(world: World) -> None:
    await world.make("one")
    async with world.cache() as cache:
        meta = f'{{"name":"odd","namespace":"{world.namespace}"}}'
        text = f'{{"type":"ADDED","object":{{"metadata":{meta},"data":7}}}}\n'
        await world.proxy.say(text.encode())
        await assert_follows(world, cache)
    assert world.told == ["new one", "new later"]
    assert world.count("limit=") == 1


async def test_deletions_during_an_expired_watch_are_told(world: World) -> None:
    await world.make("one")
    await world.make("two")
    async with world.cache() as cache:
        world.proxy.fail(410, query="watch=true")
        await world.proxy.go_away()
        await world.remove("one")
        await world.proxy.come_back()
        await until(lambda: "gone one" in world.told)
        await assert_follows(world, cache)
    assert world.count("limit=") == 2


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502, 503, 504])
async def test_a_watch_that_is_refused_is_tried_again(world: World, status: int) -> None:
    async with world.cache() as cache:
        world.proxy.fail(status, query="watch=true", count=2)
        world.proxy.cut()
        await assert_follows(world, cache)


async def test_a_silent_connection_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "IDLE_SECONDS", 0.2)
    async with world.cache() as cache:
        world.proxy.stall()
        await world.make("one")
        await world.watches(2)
        world.proxy.resume()
        await until(lambda: bool(cache.objects))


async def test_bookmarks_move_the_place_to_go_on_from(world: World) -> None:
    async with world.cache() as cache:
        await world.make("one")
        await until(lambda: bool(cache.objects))
        mark = '{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}\n'
        newest = await world.direct.list(CONFIG_MAP, Meta, namespace=world.namespace)
        await world.proxy.say((mark % int(newest.resource_version)).encode())
        world.proxy.cut()
        await world.watches(2)
        await assert_follows(world, cache)
    again = [each for each in world.proxy.requests if "watch=true" in each][1]
    assert f"resourceVersion={newest.resource_version}" in again


async def test_a_bookmark_of_a_pod_with_null_lists_does_no_harm(world: World) -> None:
    cache = caching.Cache(world.broken, POD, Pod, namespace=world.namespace)
    running = asyncio.create_task(cache.run())
    await cache.synced()
    await until(lambda: world.proxy.open_watches == 1)
    line = (
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","creationTimestamp":null},'
        b'"spec":{"containers":null}}}\n'
    )
    await world.proxy.say(line)
    world.proxy.cut()
    await until(lambda: any("resourceVersion=7" in each for each in world.proxy.requests))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert world.count("limit=") == 1


async def test_a_list_whose_snapshot_expires_is_read_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await world.make(f"map-{number}")
    monkeypatch.setattr(client, "PAGE", 2)
    world.proxy.fail(410, query="continue=")
    async with world.cache() as cache:
        assert len(cache.objects) == 5
    world.proxy.fail(410, query="continue=")
    listed = await world.broken.list(
        CONFIG_MAP, Meta, namespace=world.namespace, label_selector="mine=yes"
    )
    assert len(listed.items) == 5


async def test_the_wait_that_the_server_asks_for_is_told(world: World) -> None:
    world.proxy.fail(429, retry_after="7")
    with pytest.raises(errors.UnavailableError) as caught:
        await world.broken.list(CONFIG_MAP, Meta, namespace=world.namespace)
    assert caught.value.after_seconds == 7.0


async def test_a_server_that_is_away_is_unavailable(world: World) -> None:
    await world.proxy.go_away()
    with pytest.raises(errors.UnavailableError, match="cannot be reached: connection refused"):
        await world.broken.list(CONFIG_MAP, Meta, namespace=world.namespace)


async def test_an_apply_over_a_connection_closed_while_idle_works(world: World) -> None:
    body = {"metadata": {"name": "one", "namespace": world.namespace}}
    await world.broken.apply(CONFIG_MAP, body, Meta, manager="first")
    await world.proxy.go_away()
    await world.proxy.come_back()
    await world.broken.apply(CONFIG_MAP, body, Meta, manager="first")


async def test_the_in_memory_server_fails_on_request_itself() -> None:
    async with apiserver.ApiServer() as server, server.client() as connection:
        server.fail(1, 503, retry_after=3)
        with pytest.raises(errors.UnavailableError) as caught:
            await connection.list(CONFIG_MAP, Meta)
        assert caught.value.after_seconds == 3.0
        assert (await connection.list(CONFIG_MAP, Meta)).items == []
