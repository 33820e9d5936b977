# SPDX-License-Identifier: Apache-2.0
"""A read-only image registry for the lab's nodes, started as `python -m gpudeck.lab.registry`.

It serves one OCI layout. Only the last word of a repository's name counts, and an
unknown tag gives the image of that name, so manifests that people have written for
`docker.io/somebody/gpu-burn` find the lab's workload image. Source: OCI
distribution specification 1.1, the pull part.
"""

from __future__ import annotations

import argparse
import http.server
import json
import re
import shutil
from http import HTTPStatus
from pathlib import Path

_MANIFEST = re.compile(r"^/v2/(?:.+/)?([^/]+)/manifests/([^/?]+)")
_BLOB = re.compile(r"^/v2/.+/blobs/sha256:([0-9a-f]{64})")


class Layout:
    """An OCI layout on disk, read anew at each request because `lab install` may replace it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def blob(self, digest: str) -> Path | None:
        """The file of a blob, or None."""
        path = self._folder / "blobs" / "sha256" / digest
        return path if path.is_file() else None

    def manifest(self, name: str, reference: str) -> tuple[str, str] | None:
        """Digest (hex) and media type of an image by tag or digest, or None."""
        try:
            index = json.loads((self._folder / "index.json").read_bytes())
        except FileNotFoundError:
            return None
        candidates = [
            entry
            for entry in index["manifests"]
            if _repository(entry["annotations"]["io.containerd.image.name"]) == name
        ]
        for entry in candidates:
            if reference in (entry["digest"], _tag(entry)):
                break
        else:
            if reference.startswith("sha256:") or not candidates:
                return None
            entry = candidates[0]
        return entry["digest"].removeprefix("sha256:"), entry["mediaType"]


def _repository(reference: str) -> str:
    return reference.rpartition(":")[0].rpartition("/")[2]


def _tag(entry: dict[str, dict[str, str]]) -> str:
    return entry["annotations"]["org.opencontainers.image.ref.name"]


class Requests(http.server.BaseHTTPRequestHandler):
    """The pull half of the distribution protocol."""

    protocol_version = "HTTP/1.1"
    layout: Layout

    def do_GET(self) -> None:
        self._answer(send=True)

    def do_HEAD(self) -> None:
        self._answer(send=False)

    def _answer(self, *, send: bool) -> None:
        if self.path in ("/v2", "/v2/"):
            self._headers(HTTPStatus.OK, "application/json", 2, "")
            if send:
                self.wfile.write(b"{}")
            return
        found = self._find()
        if found is None:
            body = b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"the lab has no such image"}]}'
            self._headers(HTTPStatus.NOT_FOUND, "application/json", len(body), "")
            if send:
                self.wfile.write(body)
            return
        path, media_type, digest = found
        self._headers(HTTPStatus.OK, media_type, path.stat().st_size, digest)
        if send:
            with path.open("rb") as handle:
                shutil.copyfileobj(handle, self.wfile, 1 << 20)

    def _find(self) -> tuple[Path, str, str] | None:
        if match := _MANIFEST.match(self.path):
            manifest = self.layout.manifest(match[1], match[2])
            digest, media_type = manifest or ("", "")
        elif match := _BLOB.match(self.path):
            digest, media_type = match[1], "application/octet-stream"
        else:
            return None
        path = self.layout.blob(digest) if digest else None
        return (path, media_type, digest) if path else None

    def _headers(self, status: HTTPStatus, media_type: str, length: int, digest: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(length))
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        if digest:
            self.send_header("Docker-Content-Digest", f"sha256:{digest}")
        self.end_headers()


def main() -> None:
    """Serve `--layout` on `--address`:`--port` until killed."""
    parser = argparse.ArgumentParser(description="Serve one OCI layout, read-only.")
    parser.add_argument("--layout", type=Path, required=True)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    options = parser.parse_args()
    Requests.layout = Layout(options.layout)
    http.server.ThreadingHTTPServer((options.address, options.port), Requests).serve_forever()


if __name__ == "__main__":
    main()
