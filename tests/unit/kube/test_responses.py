# SPDX-License-Identifier: Apache-2.0
"""Each answer of the API server becomes the error that says what to do about it."""

from __future__ import annotations

import email.utils
import json
import time

import pytest

from gpudeck import errors
from gpudeck.kube import responses


def error_of(code: int, body: object = None, **headers: str) -> errors.GpudeckError:
    content = b"" if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return responses.error_of("GET /x", code, responses.parse(content), headers=named)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.InvalidError),
        (401, "Unauthorized", errors.ForbiddenError),
        (403, "Forbidden", errors.ForbiddenError),
        (404, "NotFound", errors.NotFoundError),
        (405, "MethodNotAllowed", errors.UnsupportedError),
        (409, "Conflict", errors.ConflictError),
        (409, "AlreadyExists", errors.AlreadyExistsError),
        (410, "Expired", errors.ExpiredError),
        (415, "UnsupportedMediaType", errors.UnsupportedError),
        (418, "Teapot", errors.TerminalError),
        (422, "Invalid", errors.InvalidError),
        (429, "TooManyRequests", errors.UnavailableError),
        (500, "InternalError", errors.UnavailableError),
        (503, "ServiceUnavailable", errors.UnavailableError),
        (504, "Timeout", errors.UnavailableError),
    ],
)
def test_a_status_becomes_its_error(code: int, reason: str, kind: type) -> None:
    error = error_of(code, {"kind": "Status", "reason": reason, "message": "so it is"})
    assert type(error) is kind
    assert str(error) == "GET /x: so it is"


def test_a_missing_object_and_a_missing_kind_differ_in_their_reason() -> None:
    missing = {"reason": "NotFound", "details": {"name": "one", "kind": "pods"}}
    assert error_of(404, missing).reason == "NotFound"
    kind = responses.error_of("GET /x", 404, responses.parse(b"404 page not found\n"))
    assert kind.reason == responses.NOT_SERVED
    assert str(kind) == "GET /x: 404 page not found"


def test_an_empty_answer_still_says_the_status() -> None:
    assert str(error_of(502)) == "GET /x: HTTP status 502"


def test_a_page_of_a_proxy_is_cut_to_its_first_line() -> None:
    status = responses.parse(b"<html>Bad Gateway</html>\nmore\n")
    assert status.message == "<html>Bad Gateway</html>"


def test_the_invalid_field_is_named() -> None:
    error = error_of(422, {"details": {"causes": [{"field": "spec.size", "message": "no"}]}})
    assert isinstance(error, errors.InvalidError)
    assert error.field == "spec.size"


def test_the_wait_comes_from_the_header_or_the_status() -> None:
    def after(error: errors.GpudeckError) -> float | None:
        assert isinstance(error, errors.UnavailableError)
        return error.after_seconds

    assert after(error_of(429, None, Retry_After="3")) == 3.0
    assert after(error_of(503, {"details": {"retryAfterSeconds": 5}})) == 5.0
    assert after(error_of(503)) is None
    date = email.utils.formatdate(time.time() + 100, usegmt=True)
    assert 90.0 < (after(error_of(503, None, Retry_After=date)) or 0.0) <= 100.0
    assert after(error_of(503, None, Retry_After="soon")) is None
