# SPDX-License-Identifier: Apache-2.0
"""An API server that answers TokenReview and SubjectAccessReview, and nothing else.

Its users are a `reader`, who may get /metrics, and a `worker`, who may not; the token of
each is its name. `down` lets every review fail.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Self

from aiohttp import web

USERS = {"reader": True, "worker": False}


class Reviewer:
    """The server, while its block runs."""

    def __init__(self) -> None:
        self.reviewed: list[str] = []
        """The tokens that were reviewed, in order."""
        self.down = False
        self.kubeconfig = ""
        self._folder = tempfile.TemporaryDirectory(prefix="gpudeck-test-")
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", self._token)
        app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", self._access)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        content = {
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": f"http://127.0.0.1:{self._runner.addresses[0][1]}"},
                }
            ],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path = Path(self._folder.name) / "kubeconfig"
        path.write_text(json.dumps(content))
        self.kubeconfig = str(path)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()
        self._folder.cleanup()

    async def _token(self, request: web.Request) -> web.Response:
        token = (await request.json())["spec"]["token"]
        self.reviewed.append(token)
        if self.down:
            return web.json_response({"kind": "Status", "message": "down"}, status=503)
        status: dict[str, Any] = {"authenticated": token in USERS}
        if token in USERS:
            name = f"system:serviceaccount:default:{token}"
            status["user"] = {"username": name, "groups": ["system:authenticated"]}
        return web.json_response({"status": status}, status=201)

    async def _access(self, request: web.Request) -> web.Response:
        spec = (await request.json())["spec"]
        asked = spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        allowed = asked and USERS[spec["user"].rpartition(":")[2]]
        return web.json_response({"status": {"allowed": allowed}}, status=201)
