# SPDX-License-Identifier: Apache-2.0
"""What a cache keeps, what it tells, and that it lets others work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.support import apiserver

from gpudeck.api.core import Node, NodeSpec
from gpudeck.api.meta import ObjectMeta
from gpudeck.api.resources import NODE
from gpudeck.kube import caching, client, pacing, watching


@contextlib.asynccontextmanager
async def running(cache: caching.Cache[Node]) -> AsyncIterator[None]:
    task = asyncio.create_task(cache.run())
    await asyncio.wait(
        {task, sync := asyncio.create_task(cache.synced())}, return_when="FIRST_COMPLETED"
    )
    sync.cancel()
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def node(name: str, **labels: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": labels}}


def trimmed(found: Node) -> Node | None:
    """Keep names and labels of the nodes that have labels."""
    if not found.metadata.labels:
        return None
    return Node(metadata=ObjectMeta(name=found.metadata.name, labels=found.metadata.labels))


@pytest.fixture
async def server() -> AsyncIterator[apiserver.ApiServer]:
    async with apiserver.ApiServer() as server:
        yield server


@pytest.fixture
async def connection(server: apiserver.ApiServer) -> AsyncIterator[client.Client]:
    async with server.client() as connection:
        yield connection


async def test_only_what_keep_leaves_is_kept(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    server.put(NODE, node("plain"))
    server.put(NODE, node("labelled", a="1"))
    cache = caching.Cache(connection, NODE, Node, keep=trimmed)
    async with running(cache):
        assert cache.objects == {
            "labelled": Node(metadata=ObjectMeta(name="labelled", labels={"a": "1"}))
        }


async def test_a_change_that_the_trimmed_object_does_not_show_is_none(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    server.put(NODE, node("one", a="1"))
    changes: list[watching.Change[Node]] = []
    cache = caching.Cache(connection, NODE, Node, keep=trimmed)
    cache.subscribe(changes.append)
    async with running(cache):
        server.put(NODE, {**node("one", a="1"), "spec": {"unschedulable": True}})
        server.put(NODE, node("one", a="2"))
        await server.until(lambda: len(changes) > 1)
    assert [change.new and change.new.metadata.labels for change in changes] == [
        {"a": "1"},
        {"a": "2"},
    ]


async def test_an_object_that_keep_refuses_later_is_gone(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    server.put(NODE, node("one", a="1"))
    cache = caching.Cache(connection, NODE, Node, keep=trimmed)
    async with running(cache):
        server.put(NODE, node("one"))
        await server.until(lambda: not cache.objects)


async def test_who_subscribes_late_is_told_of_what_is_there(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    server.put(NODE, node("one"))
    cache = caching.Cache(connection, NODE, Node)
    told: list[str] = []
    async with running(cache):
        cache.subscribe(lambda change: told.append(change.key))
        assert told == ["one"]


async def test_a_failing_callback_ends_the_cache(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    server.put(NODE, node("one"))
    cache = caching.Cache(connection, NODE, Node)

    def fail(_: object) -> None:
        raise ZeroDivisionError

    cache.subscribe(fail)
    with pytest.raises(ZeroDivisionError):
        await cache.run()


async def test_it_is_not_synced_before_the_list_is_read(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    server.fail(3, 503)
    server.put(NODE, node("one"))
    cache = caching.Cache(connection, NODE, Node, pace=pacing.Backoff(0.01, 0.02))
    assert not cache.is_synced
    async with running(cache):
        assert cache.is_synced
        assert list(cache.objects) == ["one"]


async def test_a_kind_that_appears_later_is_found(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    server.served.discard(("", "nodes"))
    cache = caching.Cache(connection, NODE, Node, pace=pacing.Backoff(0.01, 0.02))
    task = asyncio.create_task(cache.run())
    await server.until(lambda: server.seen)
    server.put(NODE, node("one"))
    await server.until(lambda: cache.objects)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_other_tasks_have_turns_while_a_large_list_is_read(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    for number in range(400):
        server.put(NODE, node(f"node-{number}", text="x" * 4096))
    turns = 0
    sizes: list[int] = []
    cache = caching.Cache(connection, NODE, Node)
    cache.subscribe(lambda _: sizes.append(turns))

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    async with running(cache):
        other.cancel()
    assert max(sizes.count(turn) for turn in set(sizes)) <= caching.YIELD_BYTES // 4096


async def test_an_unreadable_object_is_left_out_and_the_rest_is_kept(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    server.put(NODE, {**node("odd"), "spec": 7})
    server.put(NODE, node("one"))
    cache = caching.Cache(connection, NODE, Node)
    async with running(cache):
        assert list(cache.objects) == ["one"]
        server.put(NODE, {**node("odd"), "spec": {"unschedulable": True}})
        await server.until(lambda: "odd" in cache.objects)
        assert cache.objects["odd"].spec == NodeSpec(unschedulable=True)
        assert msgspec.structs.asdict(cache.objects["one"])["spec"] is None


async def test_what_goes_while_a_list_is_read_is_gone_although_its_snapshot_expires(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    """The rest then comes as a whole list, and no watch from there tells of the deletion."""
    for name in "abcd":
        server.put(NODE, node(name))

    def keep(found: Node) -> Node:
        if found.metadata.name == "b" and "a" in server.objects(NODE):
            server.remove(NODE, "a")
            server.expire()
        return found

    cache = caching.Cache(connection, NODE, Node, keep=keep, page=2)
    async with running(cache):
        assert sorted(cache.objects) == ["b", "c", "d"]
