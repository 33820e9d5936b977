# SPDX-License-Identifier: Apache-2.0
"""Connections: rotated tokens and authorities, and servers that are not who they say."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from pathlib import Path

import pytest
from tests.support import apiserver, certificates

from gpudeck import errors
from gpudeck.api.core import ConfigMap
from gpudeck.api.resources import CONFIG_MAP
from gpudeck.kube import client, configuration, credentials


def server_context(ca: certificates.Pair, folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate, key = certificates.issue(ca, "server").write(folder, "server")
    context.load_cert_chain(certificate, key)
    return context


def end_of_a_request(
    listening: socket.socket, context: ssl.SSLContext, heard: threading.Event
) -> None:
    """Take one request, answer neither it nor the TLS close, and wait for the connection's end."""
    listening.settimeout(20)
    plain, _ = listening.accept()
    with context.wrap_socket(plain, server_side=True) as secure:
        assert secure.recv(65536).startswith(b"GET ")
        bare = socket.socket(fileno=secure.detach())
    heard.set()
    with bare, contextlib.suppress(ConnectionResetError):
        bare.settimeout(20)  # Less than the 30 s that asyncio waits for a TLS close.
        while bare.recv(65536):
            pass


def access(server: str, credential: credentials.Credential) -> configuration.Access:
    return configuration.Access(server=server, tls=credentials.Tls(), credential=credential)


async def test_a_token_rotated_by_the_kubelet_is_used_after_one_refusal(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    async with apiserver.ApiServer() as server:
        server.tokens = {"old"}
        token = credentials.TokenFile(path)
        async with client.Client(access(server.url, token)) as connection:
            await connection.list(CONFIG_MAP, ConfigMap)
            server.tokens = {"new"}
            path.write_text("new")
            await connection.list(CONFIG_MAP, ConfigMap)


async def test_a_caller_whom_the_server_does_not_know_is_told_so() -> None:
    async with apiserver.ApiServer() as server, server.client() as connection:
        server.tokens = {"another"}
        with pytest.raises(errors.ForbiddenError) as caught:
            await connection.list(CONFIG_MAP, ConfigMap)
    assert caught.value.reason == "Unauthorized"


async def test_a_rotated_authority_is_used_by_the_next_connection(tmp_path: Path) -> None:
    old, new = certificates.authority("old"), certificates.authority("new")
    path, _ = old.write(tmp_path, "ca")
    context = server_context(old, tmp_path)
    async with apiserver.ApiServer(tls=context) as server:
        kubeconfig = server.kubeconfig(authority=str(path))
        async with await client.Client.connect(kubeconfig) as connection:
            await connection.list(CONFIG_MAP, ConfigMap)
            new.write(tmp_path, "ca")
            context.load_cert_chain(*certificates.issue(new, "server").write(tmp_path, "server"))
            await server.stop()
            await server.start()
            await connection.list(CONFIG_MAP, ConfigMap)


async def test_a_server_of_another_authority_is_not_trusted(tmp_path: Path) -> None:
    path, _ = certificates.authority("mine").write(tmp_path, "ca")
    context = server_context(certificates.authority("another"), tmp_path)
    async with apiserver.ApiServer(tls=context) as server:
        kubeconfig = server.kubeconfig(authority=str(path))
        async with await client.Client.connect(kubeconfig) as connection:
            with pytest.raises(errors.ForbiddenError) as caught:
                await connection.list(CONFIG_MAP, ConfigMap)
    assert caught.value.reason == "CertificateNotTrusted"


async def test_a_connection_whose_answer_is_left_early_ends_without_waiting_for_the_server(
    tmp_path: Path,
) -> None:
    ca = certificates.authority()
    authority, _ = ca.write(tmp_path, "ca")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        of = configuration.Access(
            server=f"https://127.0.0.1:{listening.getsockname()[1]}",
            tls=credentials.Tls(authority=credentials.Pem(path=authority)),
            credential=credentials.FixedToken(),
        )
        heard = threading.Event()
        context = server_context(ca, tmp_path)
        ended = asyncio.create_task(asyncio.to_thread(end_of_a_request, listening, context, heard))
        async with client.Client(of) as connection:
            listing = asyncio.create_task(connection.list(CONFIG_MAP, ConfigMap))
            assert await asyncio.to_thread(heard.wait, 20)
            listing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await listing
        await ended


async def test_names_cannot_leave_their_place_in_the_path() -> None:
    async with apiserver.ApiServer() as server, server.client() as connection:
        with pytest.raises(errors.NotFoundError):
            await connection.get(CONFIG_MAP, "../../x?y=z", ConfigMap, namespace="a/b")
        assert server.seen[-1].path == "/api/v1/namespaces/a%2Fb/configmaps/..%2F..%2Fx%3Fy%3Dz"
        assert server.seen[-1].query == {}


async def test_an_answer_of_another_form_is_reported() -> None:
    async with apiserver.ApiServer() as server, server.client() as connection:
        server.put(CONFIG_MAP, {"metadata": {"name": "one"}, "data": 7})
        with pytest.raises(errors.UnsupportedError, match="expected form"):
            await connection.get(CONFIG_MAP, "one", ConfigMap, namespace="default")
