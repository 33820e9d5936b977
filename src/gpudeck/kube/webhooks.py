# SPDX-License-Identifier: Apache-2.0
"""Answer the API server's admission questions (admission.k8s.io/v1) over TLS.

Called by the controller's main module; each page is a path and a function that decides.
What a function refuses becomes the sentence that the user reads. A failure of our own is
HTTP 503, so that the failure policy of the webhook decides and not a made-up refusal.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from gpudeck import errors, logs
from gpudeck.api.admission import (
    AdmissionRequest,
    AdmissionResponse,
    AdmissionReview,
    Refusal,
)
from gpudeck.kube import decoding

LARGEST = 4 * 1024 * 1024
"""Bytes of a question: the API server's own limit for a request is 3 MiB."""
_LONGEST_WARNING = 240
"""Characters of a warning: the API server cuts what is longer than 256."""
_reviews = msgspec.json.Decoder(AdmissionReview)
_log = logs.get(__name__)


class Answer(msgspec.Struct, frozen=True):
    """What is wrong (nothing: the object is let in), what to change, what to say besides."""

    problems: tuple[errors.GpudeckError, ...] = ()
    patch: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()


Decide = Callable[[AdmissionRequest], Awaitable[Answer]]


async def serve(port: int, pages: Mapping[str, Decide], tls: ssl.SSLContext) -> None:
    """Serve the pages for ever; 0 serves nothing. UnavailableError if the port is taken."""
    if port == 0:
        await asyncio.Event().wait()
    app = web.Application(client_max_size=LARGEST)
    for path, decide in pages.items():
        app.router.add_post(path, _page(decide))
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port, ssl_context=tls).start()
        _log.debug("Serving", page="webhooks", port=port)
        await asyncio.Event().wait()
    except OSError as error:
        raise errors.UnavailableError(
            f"webhook port {port} cannot be opened: {error.strerror}", reason="PortTaken"
        ) from error
    finally:
        await runner.cleanup()


def _page(decide: Decide) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        try:
            asked = decoding.decode(_reviews, await request.read()).request
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return web.Response(status=400, text=f"not an AdmissionReview: {error}")
        if asked is None:
            return web.Response(status=400, text="an AdmissionReview without a request")
        try:
            decided = await decide(asked)
        except errors.GpudeckError as error:
            _log.warning("Cannot decide", resource=asked.resource.resource, error=error)
            return web.Response(status=503, text=error.message)
        review = AdmissionReview(response=response(asked.uid, decided))
        return web.Response(body=msgspec.json.encode(review), content_type="application/json")

    return answer


def response(uid: str, decided: Answer) -> AdmissionResponse:
    """Return the answer as the API server reads it; one Status tells all problems."""
    warnings = [each[:_LONGEST_WARNING] for each in decided.warnings] or None
    if decided.problems:
        sentence = "; ".join(problem.message for problem in decided.problems)
        refusal = Refusal(message=sentence, reason=decided.problems[0].reason)
        return AdmissionResponse(uid=uid, allowed=False, status=refusal, warnings=warnings)
    answer = AdmissionResponse(uid=uid, allowed=True, warnings=warnings)
    if decided.patch:
        answer.patch, answer.patch_type = msgspec.json.encode(list(decided.patch)), "JSONPatch"
    return answer
