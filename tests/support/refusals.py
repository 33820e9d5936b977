# SPDX-License-Identifier: Apache-2.0
"""What the API server in memory says to a request that it refuses, in Kubernetes' form."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from tests.support import apistore


def too_old(version: int) -> apistore.RefusedError:
    """What was asked for is no longer known."""
    return apistore.RefusedError(410, "Expired", f"too old resource version: {version}")


def status(refusal: apistore.RefusedError) -> dict[str, Any]:
    """The object of kind Status."""
    found: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "reason": refusal.reason,
        "code": refusal.code,
    }
    if refusal.name:
        found["details"] = {"name": refusal.name}
    return found


def answer(refusal: apistore.RefusedError) -> web.Response:
    """The whole answer; one without a reason is plain text, as of a proxy."""
    code, headers = refusal.code, refusal.headers
    if not refusal.reason:
        return web.Response(status=code, text=refusal.message, headers=headers)
    return web.json_response(status(refusal), status=code, headers=headers)
