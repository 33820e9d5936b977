# SPDX-License-Identifier: Apache-2.0
"""Events are written once, counted, and never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support import apiserver

from gpudeck.api.meta import ObjectReference
from gpudeck.api.resources import EVENT
from gpudeck.kube import recording

CARD = ObjectReference(
    api_version="gpu.deckhouse.io/v1alpha1", kind="PhysicalGPU", name="node-0-card", uid="1-2"
)
POD = ObjectReference(api_version="v1", kind="Pod", name="pod", namespace="user", uid="3-4")


@pytest.fixture
async def server() -> AsyncIterator[apiserver.ApiServer]:
    async with apiserver.ApiServer() as server:
        yield server


@pytest.fixture
async def recorder(server: apiserver.ApiServer) -> AsyncIterator[recording.Recorder]:
    async with server.client() as connection:
        recorder = recording.Recorder(connection, "gpudeck-test", instance="node-0")
        task = asyncio.create_task(recorder.run())
        yield recorder
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def events(server: apiserver.ApiServer) -> list[dict[str, Any]]:
    return list(server.objects(EVENT).values())


async def test_an_event_says_what_kubectl_describe_shows(
    server: apiserver.ApiServer, recorder: recording.Recorder
) -> None:
    recorder.record(CARD, reason="CardLost", message="The card is gone.", warning=True)
    await server.until(lambda: events(server))
    [event] = events(server)
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"]["uid"] == "1-2"
    assert event["type"] == "Warning"
    assert event["reason"] == "CardLost"
    assert event["message"] == "The card is gone."
    assert event["count"] == 1
    assert event["source"] == {"component": "gpudeck-test", "host": "node-0"}


async def test_an_event_about_a_pod_stands_in_its_namespace(
    server: apiserver.ApiServer, recorder: recording.Recorder
) -> None:
    recorder.record(POD, reason="Prepared", message="Card 0.")
    await server.until(lambda: events(server))
    assert events(server)[0]["metadata"]["namespace"] == "user"
    assert events(server)[0]["type"] == "Normal"


async def test_equal_events_are_one_with_a_count_written_seldom(
    server: apiserver.ApiServer, recorder: recording.Recorder
) -> None:
    for _ in range(100):
        recorder.record(CARD, reason="CardLost", message="The card is gone.")
    await server.until(lambda: events(server))
    assert [event["count"] for event in events(server)] == [100]
    for _ in range(50):
        recorder.record(CARD, reason="CardLost", message="The card is gone.")
    recorder.record(CARD, reason="Other", message="Something else.")
    await server.until(lambda: len(events(server)) == 2)
    assert len(server.writes) == 2


async def test_the_count_goes_on_once_it_may_be_written_again(
    server: apiserver.ApiServer, recorder: recording.Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "REPEAT_SECONDS", 0.02)
    recorder.record(CARD, reason="CardLost", message="The card is gone.")
    await server.until(lambda: events(server))
    recorder.record(CARD, reason="CardLost", message="The card is gone.")
    await server.until(lambda: events(server)[0]["count"] == 2)
    assert len(events(server)) == 1


async def test_an_expired_event_is_begun_anew(
    server: apiserver.ApiServer, recorder: recording.Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "REPEAT_SECONDS", 0.0)
    recorder.record(CARD, reason="CardLost", message="The card is gone.")
    await server.until(lambda: events(server))
    server.remove(EVENT, next(iter(server.objects(EVENT))))
    recorder.record(CARD, reason="CardLost", message="The card is gone.")
    await server.until(lambda: [event["count"] for event in events(server)] == [2])


async def test_events_recorded_while_the_server_is_away_are_written_later(
    server: apiserver.ApiServer, recorder: recording.Recorder
) -> None:
    server.fail(2, 503)
    recorder.record(CARD, reason="CardLost", message="The card is gone.")
    recorder.record(POD, reason="Prepared", message="Card 0.")
    await server.until(lambda: len(events(server)) == 2)


async def test_an_event_that_is_refused_does_not_hold_up_the_others(
    server: apiserver.ApiServer, recorder: recording.Recorder
) -> None:
    server.fail(1, 403, reason="Forbidden")
    recorder.record(CARD, reason="CardLost", message="The card is gone.")
    recorder.record(POD, reason="Prepared", message="Card 0.")
    await server.until(lambda: events(server))
    assert [event["reason"] for event in events(server)] == ["Prepared"]


async def test_a_message_is_cut_to_what_the_server_takes(
    server: apiserver.ApiServer, recorder: recording.Recorder
) -> None:
    recorder.record(CARD, reason="Long", message="й" * 2000)
    await server.until(lambda: events(server))
    message = events(server)[0]["message"]
    assert len(message.encode()) <= recording.MESSAGE_LIMIT
    assert message.endswith("й …")


async def test_what_is_remembered_is_bounded(
    server: apiserver.ApiServer, recorder: recording.Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "PENDING", 3)
    monkeypatch.setattr(recording, "REMEMBERED", 5)
    for number in range(20):
        recorder.record(CARD, reason="Many", message=f"Number {number}.")
    await server.until(lambda: len(events(server)) == 3)
    assert sorted(event["message"] for event in events(server)) == [
        "Number 17.",
        "Number 18.",
        "Number 19.",
    ]


async def test_a_message_with_a_file_name_that_is_no_text_is_written_too(
    server: apiserver.ApiServer, recorder: recording.Recorder
) -> None:
    name = b"gpu\xff".decode(errors="surrogateescape")
    recorder.record(CARD, reason="FileInvalid", message=f"{name}: it is no text.")
    await server.until(lambda: events(server))
    assert events(server)[0]["message"] == "gpu?: it is no text."
