# SPDX-License-Identifier: Apache-2.0
"""The adapter's answer as a CDI spec."""

from __future__ import annotations

import json

import pytest

from gpudeck import errors
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.dra import edits
from gpudeck.dra.allocations import Reference

CLAIM = Reference("u1", "t", "c")


def prepared(*names: str) -> adapter_pb2.PreparedClaim:
    made = adapter_pb2.ContainerEdits(env=["A=b"])
    devices = [adapter_pb2.PreparedDevice(name=name, edits=made) for name in names]
    return adapter_pb2.PreparedClaim(uid="u1", devices=devices)


def test_a_device_that_serves_two_requests_is_described_once() -> None:
    spec = json.loads(edits.spec_of(CLAIM, ["a", "a"], prepared("a")))
    assert [each["name"] for each in spec["devices"]] == ["u1-a"]
    assert "containerEdits" not in spec


def test_a_refusal_keeps_its_reason_and_whether_to_retry() -> None:
    for retryable, kind in ((True, errors.RetryableError), (False, errors.TerminalError)):
        error = adapter_pb2.Error(reason="CardNotReady", message="m", retryable=retryable)
        with pytest.raises(kind, match="m") as caught:
            edits.spec_of(CLAIM, ["a"], adapter_pb2.PreparedClaim(uid="u1", error=error))
        assert caught.value.reason == "CardNotReady"


@pytest.mark.parametrize("answer", [None, prepared(), prepared("b")])
def test_an_incomplete_answer_is_no_answer(answer: adapter_pb2.PreparedClaim | None) -> None:
    with pytest.raises(errors.UnavailableError, match="lacks"):
        edits.spec_of(CLAIM, ["a"], answer)


def test_a_device_without_edits_is_refused_since_runtimes_refuse_the_whole_spec() -> None:
    answer = adapter_pb2.PreparedClaim(devices=[adapter_pb2.PreparedDevice(name="a")])
    with pytest.raises(errors.UnavailableError, match="lacks a"):
        edits.spec_of(CLAIM, ["a"], answer)
