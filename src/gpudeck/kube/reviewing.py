# SPDX-License-Identifier: Apache-2.0
"""Who may read a page of this process: the API server is asked, and its verdict kept a while.

`Guard` is called by `serving` for each request with a bearer token: TokenReview says
whose token it is, SubjectAccessReview whether that user may `get` the path. A token
itself is never kept, logged or compared; verdicts are kept by its digest.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from gpudeck import errors
from gpudeck.api.meta import Wire
from gpudeck.api.resources import Resource
from gpudeck.kube import client

ALLOWED_SECONDS = 60.0
REFUSED_SECONDS = 10.0
"""How long a verdict is kept; a right that was given counts soon."""
STALE_SECONDS = 600.0
"""While the API server is away, a reader that was allowed so recently still is: an outage is
when metrics are wanted most."""
REMEMBERED = 256
AT_ONCE = 4
"""Reviews in flight: a flood of made-up tokens must not become one of requests."""
TOKEN_REVIEW = Resource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews")
SUBJECT_ACCESS_REVIEW = Resource(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews"
)


class _User(Wire):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(Wire):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _TokenReview(Wire):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(Wire):
    allowed: bool = False


class _AccessReview(Wire):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class Verdict(msgspec.Struct, frozen=True):
    """An HTTP status and, if it is not 200, a sentence."""

    status: int
    message: str = ""


class Guard:
    """Decides for one path. Safe to share by all requests of a loop."""

    def __init__(
        self, connection: client.Client, path: str, *, now: Callable[[], float] | None = None
    ) -> None:
        self._client = connection
        self._path = path
        self._now = now
        self._known: dict[bytes, tuple[float, Verdict]] = {}
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def judge(self, authorization: str) -> Verdict:
        """Judge the value of a request's header Authorization: 200, 401, 403 or 503."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return Verdict(401, "a bearer token of this cluster is needed")
        key = hashlib.sha256(token.encode()).digest()
        known = self._recent(key)
        if known is not None:
            return known
        async with self._turn:
            # Several requests with one token may have waited here for the first of them.
            return self._recent(key) or await self._asked(key, token)

    def _recent(self, key: bytes) -> Verdict | None:
        found = self._known.get(key)
        if found is None:
            return None
        at, verdict = found
        limit = ALLOWED_SECONDS if verdict.status == 200 else REFUSED_SECONDS
        return verdict if self._time() - at < limit else None

    async def _asked(self, key: bytes, token: str) -> Verdict:
        try:
            verdict = await self._review(token)
        except errors.GpudeckError as error:
            at, last = self._known.get(key, (0.0, Verdict(503)))
            if last.status == 200 and self._time() - at < STALE_SECONDS:
                return last
            return Verdict(503, f"the token cannot be reviewed now: {error}")
        self._known.pop(key, None)
        self._known[key] = (self._time(), verdict)
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return verdict

    async def _review(self, token: str) -> Verdict:
        body: dict[str, Any] = {"spec": {"token": token}}
        reviewed = await self._client.create(TOKEN_REVIEW, body, _TokenReview)
        if not reviewed.status.authenticated:
            return Verdict(401, "the token is not one of this cluster, or no longer valid")
        user = reviewed.status.user
        body = {
            "spec": {
                "user": user.username,
                "uid": user.uid,
                "groups": user.groups,
                "extra": user.extra,
                "nonResourceAttributes": {"path": self._path, "verb": "get"},
            }
        }
        answer = await self._client.create(SUBJECT_ACCESS_REVIEW, body, _AccessReview)
        if answer.status.allowed:
            return Verdict(200)
        return Verdict(
            403,
            f"{user.username} may not get {self._path}; "
            "bind the ClusterRole gpudeck-metrics-reader to it",
        )

    def _time(self) -> float:
        return self._now() if self._now else asyncio.get_running_loop().time()
