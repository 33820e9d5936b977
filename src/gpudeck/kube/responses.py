# SPDX-License-Identifier: Apache-2.0
"""Turn what the API server answers other than success into errors of gpudeck.

Pure. The Status object says more than the HTTP code: 409 is a conflict or an
object that exists already, 404 a missing object or a kind that is not served.
Codes and reasons as of k8s.io/apimachinery 0.37, api/errors.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping

import msgspec

from gpudeck import errors
from gpudeck.api.meta import Wire

NOT_SERVED = "ResourceNotServed"
"""Reason of a NotFoundError for a kind that the server does not know (no CRD, older server)."""
DISRUPTION_BUDGET = "DisruptionBudget"
"""Reason of an UnavailableError for an eviction that a PodDisruptionBudget does not allow now."""
UNAUTHORIZED = "Unauthorized"
"""Reason of a ForbiddenError for a caller whom the server does not know."""


class Cause(Wire):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(Wire):
    name: str | None = None
    kind: str | None = None
    retry_after_seconds: int | None = None
    causes: list[Cause] | None = None


class Status(Wire):
    """A `metav1.Status`, also the object of an ERROR event in a watch."""

    kind: str = ""
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None


_decoder = msgspec.json.Decoder(Status)
_KINDS: dict[int, type[errors.RetryableError] | type[errors.TerminalError]] = {
    401: errors.ForbiddenError,
    403: errors.ForbiddenError,
    404: errors.NotFoundError,
    405: errors.UnsupportedError,
    406: errors.UnsupportedError,
    409: errors.ConflictError,
    410: errors.ExpiredError,
    415: errors.UnsupportedError,
}


def parse(body: bytes) -> Status:
    """Read a Status; what is none (a proxy's page, plain text) becomes its message."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body[:200].decode("utf-8", "replace").strip()
        return Status(message=text.splitlines()[0] if text else None)


def error_of(
    what: str, code: int, status: Status, *, headers: Mapping[str, str] | None = None
) -> errors.GpudeckError:
    """Return the error for an answer `code`; `what` is the method and the path."""
    message = f"{what}: {status.message or f'HTTP status {code}'}"
    if code == 429 or code >= 500:
        after = _after(status, headers or {})
        budget = _budget(status)
        if budget is None:
            return errors.UnavailableError(message, after_seconds=after)
        message = f"{message} {budget}".rstrip()
        return errors.UnavailableError(message, reason=DISRUPTION_BUDGET, after_seconds=after)
    if code in (400, 413, 422):
        return errors.InvalidError(message, field=_field_of(status), reason=status.reason)
    if code == 409 and status.reason == "AlreadyExists":
        return errors.AlreadyExistsError(message)
    kind = _KINDS.get(code, errors.TerminalError)
    return kind(message, reason=_reason(code, status))


def _reason(code: int, status: Status) -> str | None:
    if code == 404:
        known = status.details is not None and bool(status.details.name)
        return None if known else NOT_SERVED
    if code == 401:
        return UNAUTHORIZED
    return None if code in _KINDS else status.reason


def _budget(status: Status) -> str | None:
    """What an eviction's budget says of itself, None if it is not that (policy/v1, 1.37)."""
    causes = (status.details.causes if status.details else None) or []
    found = (each.message or "" for each in causes if each.reason == DISRUPTION_BUDGET)
    return next(found, None)


def _field_of(status: Status) -> str:
    causes = (status.details.causes if status.details else None) or []
    return next((cause.field for cause in causes if cause.field), "")


def _after(status: Status, headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait: the header, else the Status."""
    text = headers.get("Retry-After", "")
    if text.isdigit():
        return float(text)
    if text:
        moment = email.utils.parsedate_tz(text)
        if moment is not None:
            return max(0.0, email.utils.mktime_tz(moment) - time.time())
    asked = status.details.retry_after_seconds if status.details else None
    return float(asked) if asked else None
