# SPDX-License-Identifier: Apache-2.0
"""The lab's plain client beside a server that ends kept connections."""

from __future__ import annotations

import gc
import http.server
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.lab import apiclient, pki


class Fickle(http.server.BaseHTTPRequestHandler):
    """Answers once on a connection, says that it keeps it, and ends it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Of a server that runs."""
    signer = pki.authority("test")
    pki.issue(signer, "server", hosts=["127.0.0.1"]).write(tmp_path, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fickle) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"https://127.0.0.1:{server.server_port}"
        file = tmp_path / "kubeconfig"
        file.write_bytes(pki.kubeconfig(address, signer, pki.issue(signer, "me"), name="test"))
        yield file
        server.shutdown()
        thread.join()


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_a_connection_is_closed_when_it_fails_and_when_nobody_wants_it(kubeconfig: Path) -> None:
    client = apiclient.ApiClient(kubeconfig)
    assert client.get("/") == {}
    with pytest.raises(errors.UnavailableError):
        client.get("/")
    assert client.get("/") == {}
    del client
    gc.collect()
