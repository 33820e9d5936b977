# SPDX-License-Identifier: Apache-2.0
"""A handful of plain requests to the lab's API server, with the user's own certificate.

The lab must know when the API server answers and when nodes are Ready long before (and
more often than) a client with caches is worth its start. Everything else in the lab goes
through kubectl and Helm, as people do it. Blocking; called by `cluster`, `report` and the
tests that look at a lab.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import tempfile
import urllib.parse
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gpudeck import errors

_SECONDS = 10.0


class ApiClient:
    """One kept connection to the server that a kubeconfig names."""

    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster = content["clusters"][0]["cluster"]
        user = content["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        tls = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            tls.load_cert_chain(pair.name)
        address = urllib.parse.urlsplit(cluster["server"])
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port or 443, timeout=_SECONDS, context=tls
        )
        weakref.finalize(self, self._connection.close)

    def get(self, path: str) -> Any:
        """Return the object or list at a path."""
        return self.request("GET", path)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Merge `body` into the object at a path."""
        return self.request("PATCH", path, body, content_type="application/merge-patch+json")

    def apply(self, path: str, body: Mapping[str, Any]) -> Any:
        """Server-side apply `body`, with the lab as its field manager."""
        query = "?fieldManager=gpudeck-lab&force=true"
        return self.request(
            "PATCH", path + query, body, content_type="application/apply-patch+yaml"
        )

    def delete(self, path: str) -> None:
        """Delete the object at a path; fine when it is gone."""
        with contextlib.suppress(errors.NotFoundError):
            self.request("DELETE", path)

    def ready(self) -> bool:
        """Whether the API server says that it can serve."""
        try:
            self.request("GET", "/readyz")
        except errors.RetryableError:
            return False
        return True

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
    ) -> Any:
        """Send one request; UnavailableError, NotFoundError or InvalidError otherwise."""
        payload = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, payload, {"Content-Type": content_type})
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()  # The next request opens it again.
            raise errors.UnavailableError(f"{method} {path}: {error}") from error
        return _decode(f"{method} {path}", answer.status, text)


def _decode(what: str, status: int, text: bytes) -> Any:
    if status < 300:
        return json.loads(text) if text.startswith(b"{") else text.decode()
    said = f"{what}: HTTP {status}: {text.decode(errors='replace')[:300]}"
    if status == 404:
        raise errors.NotFoundError(said)
    # While the server starts, RBAC's own roles are not there yet and it answers 403.
    if status in (401, 403, 409, 429) or status >= 500:
        raise errors.UnavailableError(said)
    raise errors.InvalidError(said)
