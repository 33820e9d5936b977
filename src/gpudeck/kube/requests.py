# SPDX-License-Identifier: Apache-2.0
"""A request to the API server, before there is a connection."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

JSON = "application/json"
REQUEST_SECONDS = 30.0
"""Deadline of a request with a whole answer; the server's own is 60 s."""


class Request(msgspec.Struct, frozen=True):
    """One request before it has an address."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = JSON

    @property
    def what(self) -> str:
        """The method and path, as errors name it."""
        return f"{self.method} {self.path}"
