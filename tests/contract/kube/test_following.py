# SPDX-License-Identifier: Apache-2.0
"""Watches, caches, events and leases, on both API servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from tests.support import expect

from gpudeck.api.core import ConfigMap, Event, Lease
from gpudeck.api.meta import Meta, ObjectReference
from gpudeck.api.resources import CONFIG_MAP, EVENT, LEASE
from gpudeck.kube import caching, client, electing, recording, watching

LIMIT_SECONDS = 15.0


@contextlib.asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in coroutines]
        yield
        for task in tasks:
            task.cancel()


class Told:
    """What a cache's subscriber was told, with a way to wait for more."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = asyncio.Event()

    def note(self, change: watching.Change[ConfigMap]) -> None:
        word = "gone" if change.new is None else "new" if change.old is None else "changed"
        self.lines.append(f"{word} {change.key.partition('/')[2]}")
        self._more.set()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not true():
                self._more.clear()
                await self._more.wait()


async def make(connection: client.Client, namespace: str, name: str, **labels: str) -> Meta:
    meta = {"name": name, "namespace": namespace, "labels": {"mine": "yes", **labels}}
    return await connection.create(CONFIG_MAP, {"metadata": meta}, Meta)


async def test_a_cache_holds_what_is_there_and_follows_changes(
    connection: client.Client, namespace: str
) -> None:
    await make(connection, namespace, "old")
    cache = caching.Cache(
        connection, CONFIG_MAP, ConfigMap, namespace=namespace, label_selector="mine=yes"
    )
    told = Told()
    cache.subscribe(told.note)
    async with running(cache.run()):
        await cache.synced()
        await make(connection, namespace, "young")
        await connection.merge_patch(
            CONFIG_MAP, "old", {"data": {"a": "1"}}, Meta, namespace=namespace
        )
        await connection.delete(CONFIG_MAP, "young", namespace=namespace)
        await told.until(lambda: "gone young" in told.lines)
    assert told.lines == ["new old", "new young", "changed old", "gone young"]
    assert [held.data for held in cache.objects.values()] == [{"a": "1"}]


async def test_a_cache_of_large_objects_reads_them_in_small_pages(
    connection: client.Client, namespace: str
) -> None:
    names = {f"map-{number}" for number in range(5)}
    for name in names:
        await make(connection, namespace, name)
    cache = caching.Cache(
        connection, CONFIG_MAP, ConfigMap, namespace=namespace, label_selector="mine=yes", page=2
    )
    async with running(cache.run()):
        await cache.synced()
        assert set(cache.objects) == {f"{namespace}/{name}" for name in names}


async def test_an_object_that_a_selector_no_longer_chooses_is_gone_from_the_cache(
    connection: client.Client, namespace: str
) -> None:
    cache = caching.Cache(
        connection, CONFIG_MAP, ConfigMap, namespace=namespace, label_selector="tier=gold"
    )
    told = Told()
    cache.subscribe(told.note)
    async with running(cache.run()):
        await cache.synced()
        await make(connection, namespace, "one", tier="gold")
        await told.until(lambda: told.lines == ["new one"])
        labels = {"metadata": {"labels": {"tier": None}}}
        await connection.merge_patch(CONFIG_MAP, "one", labels, Meta, namespace=namespace)
        await told.until(lambda: told.lines == ["new one", "gone one"])
    assert cache.objects == {}


async def test_an_event_about_a_node_is_written_and_counted(
    connection: client.Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "REPEAT_SECONDS", 0.05)
    recorder = recording.Recorder(connection, "gpudeck-test", instance="node-0")
    about = ObjectReference(api_version="v1", kind="Node", name=namespace, uid=namespace)

    async def counts() -> list[int]:
        listed = await connection.list(
            EVENT, Event, namespace="default", field_selector=f"involvedObject.name={namespace}"
        )
        return [each.count or 0 for each in listed.items]

    async with running(recorder.run()):
        recorder.record(about, reason="CardLost", message="Card 0 is gone.", warning=True)
        await expect.eventually(counts, [1])
        recorder.record(about, reason="CardLost", message="Card 0 is gone.", warning=True)
        recorder.record(about, reason="CardLost", message="Card 0 is gone.", warning=True)
        await expect.eventually(counts, [3])


async def test_the_second_leads_as_soon_as_the_first_stops(
    connection: client.Client, namespace: str
) -> None:
    leading: asyncio.Queue[str] = asyncio.Queue()

    async def candidate(identity: str) -> None:
        async def lead() -> None:
            await leading.put(identity)
            await asyncio.Event().wait()

        elector = electing.Elector(
            connection, name="lease", namespace=namespace, identity=identity, retry_seconds=0.05
        )
        await elector.run(lead)

    async with asyncio.timeout(LIMIT_SECONDS):
        first = asyncio.create_task(candidate("first"))
        assert await leading.get() == "first"
        second = asyncio.create_task(candidate("second"))
        first.cancel()
        assert await leading.get() == "second"
        lease = await connection.get(LEASE, "lease", Lease, namespace=namespace)
        assert lease.spec is not None
        assert lease.spec.holder_identity == "second"
        assert lease.spec.lease_transitions == 2
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
