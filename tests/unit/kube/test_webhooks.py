# SPDX-License-Identifier: Apache-2.0
"""The port of the webhooks, asked as an API server asks."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.support import ports

from gpudeck import errors
from gpudeck.api.admission import AdmissionRequest
from gpudeck.controller import selfsigned
from gpudeck.kube import serving, webhooks

pytestmark = pytest.mark.asyncio


@contextlib.asynccontextmanager
async def asked(decide: webhooks.Decide, body: bytes) -> AsyncIterator[tuple[int, str]]:
    """Status and text of the answer to one question."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load(tls, selfsigned.make("gpudeck.test", 1))
    port = ports.free()
    task = asyncio.create_task(webhooks.serve(port, {"/page": decide}, tls))
    url = f"https://127.0.0.1:{port}/page"
    try:
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    answer = await session.post(url, data=body, ssl=False)
                    break
                except aiohttp.ClientConnectorError:
                    assert not task.done()
                    await asyncio.sleep(0)
            yield answer.status, await answer.text()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def review(**fields: Any) -> bytes:
    request = {"uid": "u-1", "resource": {"resource": "pods"}, "object": {"a": 1}, **fields}
    head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**head, "request": request}).encode()


async def test_a_patch_and_warnings_come_with_the_uid_of_the_question() -> None:
    async def decide(request: AdmissionRequest) -> webhooks.Answer:
        assert json.loads(bytes(request.object)) == {"a": 1}
        return webhooks.Answer(
            patch=({"op": "remove", "path": "/a"},), warnings=("w" * 300, "short")
        )

    async with asked(decide, review()) as (status, text):
        assert status == 200
        answer = json.loads(text)
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    given = answer["response"]
    assert (given["uid"], given["allowed"], given["patchType"]) == ("u-1", True, "JSONPatch")
    assert json.loads(base64.b64decode(given["patch"])) == [{"op": "remove", "path": "/a"}]
    assert [len(each) for each in given["warnings"]] == [240, 5]


async def test_all_problems_are_one_sentence_each_in_one_refusal() -> None:
    async def decide(_: AdmissionRequest) -> webhooks.Answer:
        wrong = (errors.InvalidError("a is wrong", reason="Odd"), errors.InvalidError("b too"))
        return webhooks.Answer(problems=wrong, patch=({"op": "remove", "path": "/a"},))

    async with asked(decide, review()) as (_, text):
        given = json.loads(text)["response"]
    assert given["allowed"] is False
    assert given["status"] == {"message": "a is wrong; b too", "reason": "Odd", "code": 403}
    assert "patch" not in given


async def test_a_failure_of_our_own_is_left_to_the_failure_policy() -> None:
    async def decide(_: AdmissionRequest) -> webhooks.Answer:
        raise errors.UnavailableError("the API server does not answer")

    async with asked(decide, review()) as found:
        assert found == (503, "the API server does not answer")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"kind": "AdmissionReview"}', b"\xff"])
async def test_what_is_no_question_is_a_bad_request(body: bytes) -> None:
    async def decide(_: AdmissionRequest) -> webhooks.Answer:
        raise AssertionError("nothing to decide")

    async with asked(decide, body) as (status, text):
        assert status == 400
        assert "AdmissionReview" in text


async def test_a_port_that_is_taken_is_said_by_its_number() -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(errors.UnavailableError, match=f"webhook port {port} cannot be opened"):
            await webhooks.serve(port, {}, tls)
