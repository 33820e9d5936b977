# SPDX-License-Identifier: Apache-2.0
"""There is one leader, and one that cannot renew steps down in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support import apiserver

from gpudeck import errors
from gpudeck.api.resources import LEASE
from gpudeck.kube import client, electing

KEY = "gpudeck-system/controller"


@pytest.fixture
async def server() -> AsyncIterator[apiserver.ApiServer]:
    async with apiserver.ApiServer() as server:
        yield server


@pytest.fixture
async def connection(server: apiserver.ApiServer) -> AsyncIterator[client.Client]:
    async with server.client() as connection:
        yield connection


def elector(connection: client.Client, identity: str = "me", **seconds: float) -> electing.Elector:
    return electing.Elector(
        connection,
        name="controller",
        namespace="gpudeck-system",
        identity=identity,
        **{"lease_seconds": 1.5, "renew_seconds": 0.4, "retry_seconds": 0.05, **seconds},
    )


def holder(server: apiserver.ApiServer) -> str | None:
    lease = server.objects(LEASE).get(KEY)
    return lease["spec"]["holderIdentity"] if lease else None


def hold(server: apiserver.ApiServer, identity: str, *, seconds: int = 3600) -> None:
    spec = {
        "holderIdentity": identity,
        "leaseDurationSeconds": seconds,
        "renewTime": "2020-01-01T00:00:00.000000Z",
        "leaseTransitions": 4,
    }
    meta = {"name": "controller", "namespace": "gpudeck-system"}
    server.put(LEASE, {"metadata": meta, "spec": spec})


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_the_result_of_leading_is_the_result_and_the_lease_is_released(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    seen: list[str | None] = []

    async def lead() -> None:
        seen.append(holder(server))

    await elector(connection).run(lead)
    assert seen == ["me"]
    assert holder(server) == ""


async def test_an_error_of_leading_is_raised_after_the_release(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    async def lead() -> None:
        raise errors.InvalidError("broken")

    with pytest.raises(errors.InvalidError, match="broken"):
        await elector(connection).run(lead)
    assert holder(server) == ""


async def test_another_ones_lease_is_not_taken_by_its_old_clock(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    hold(server, "other")
    mine = elector(connection)
    task = asyncio.create_task(mine.run(for_ever))
    await server.until(lambda: len(server.seen) > 3)
    assert holder(server) == "other"
    assert not mine.is_leader
    assert mine.holder == "other"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_lease_that_does_not_change_for_its_duration_is_taken(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    hold(server, "other", seconds=1)
    mine = elector(connection)
    task = asyncio.create_task(mine.run(for_ever))
    await server.until(lambda: mine.is_leader)
    assert server.objects(LEASE)[KEY]["spec"]["leaseTransitions"] == 5
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert holder(server) == ""


async def test_a_lease_that_bears_our_own_name_is_taken_over_at_once(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    """A container that was killed and starts again in its pod, as client-go 1.37 does it too."""
    hold(server, "me")
    mine = elector(connection)
    task = asyncio.create_task(mine.run(for_ever))
    await server.until(lambda: mine.is_leader)
    assert [each.method for each in server.seen] == ["GET", "PATCH"]
    assert server.objects(LEASE)[KEY]["spec"]["leaseTransitions"] == 4
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_who_lost_the_lease_in_an_outage_leads_again_with_the_first_try_after_it(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    mine = elector(connection, lease_seconds=3600.0)
    task = asyncio.create_task(mine.run(for_ever))
    await server.until(lambda: mine.is_leader)
    await server.stop()
    with pytest.raises(errors.LeadershipLostError):
        await task
    await server.start()
    before = len(server.seen)
    again = asyncio.create_task(mine.run(for_ever))
    await server.until(lambda: mine.is_leader)
    assert [each.method for each in server.seen[before:]] == ["GET", "PATCH"]
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


async def test_a_leader_whose_lease_was_taken_stops_at_once(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    mine = elector(connection)
    task = asyncio.create_task(mine.run(for_ever))
    await server.until(lambda: mine.is_leader)
    hold(server, "other")
    with pytest.raises(errors.LeadershipLostError, match="held by other"):
        await task
    assert holder(server) == "other"
    assert not mine.is_leader


@pytest.mark.parametrize("fault", ["stall", "fail", "stop"])
async def test_a_leader_that_cannot_renew_steps_down_before_another_may_lead(
    server: apiserver.ApiServer, connection: client.Client, fault: str
) -> None:
    lease_seconds = 5.0
    mine = elector(connection, lease_seconds=lease_seconds)
    stopped = asyncio.Event()

    async def lead() -> None:
        try:
            await for_ever()
        finally:
            stopped.set()

    task = asyncio.create_task(mine.run(lead))
    await server.until(lambda: mine.is_leader)
    loop = asyncio.get_running_loop()
    started = loop.time()
    if fault == "stall":
        server.stall()
    elif fault == "fail":
        server.fail(1000, 500)
    else:
        await server.stop()
    with pytest.raises(errors.LeadershipLostError, match="could not be renewed"):
        await task
    assert stopped.is_set()
    assert loop.time() - started < lease_seconds
    server.resume()


async def test_a_short_outage_does_not_end_the_leadership(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    mine = elector(connection, renew_seconds=5.0, lease_seconds=10.0)
    task = asyncio.create_task(mine.run(for_ever))
    await server.until(lambda: mine.is_leader)
    server.fail(3, 503)
    before = len(server.writes)
    await server.until(lambda: len(server.writes) > before + 1)
    assert mine.is_leader
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_of_many_candidates_exactly_one_leads(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    electors = [elector(connection, f"candidate-{number}") for number in range(5)]
    tasks = [asyncio.create_task(each.run(for_ever)) for each in electors]
    await server.until(lambda: any(each.is_leader for each in electors))
    before = len(server.seen)
    await server.until(lambda: len(server.seen) > before + 20)
    assert sum(each.is_leader for each in electors) == 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_is_cancelled_again_while_it_ends_releases_the_lease_once_it_has_ended(
    server: apiserver.ApiServer, connection: client.Client
) -> None:
    mine = elector(connection, renew_seconds=4.0)
    ending, allowed = asyncio.Event(), asyncio.Event()
    held: list[str | None] = []

    async def lead() -> None:
        try:
            await for_ever()
        finally:
            ending.set()
            await allowed.wait()
            held.append(holder(server))

    task = asyncio.create_task(mine.run(lead))
    await server.until(lambda: mine.is_leader)
    task.cancel()
    await ending.wait()
    task.cancel()
    await asyncio.sleep(0)
    allowed.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert held == ["me"]
    assert holder(server) == ""
    assert not mine.is_leader
