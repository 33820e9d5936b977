# SPDX-License-Identifier: Apache-2.0
"""Certificates as the API server and kubelets must find them, checked by TLS itself."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from pathlib import Path

import yaml
from cryptography.x509.oid import NameOID

from gpudeck.lab import controlplane, network, node, pki
from gpudeck.lab.state import Node


def shake_hands(folder: Path, *, server_host: str, client: str) -> dict[str, object]:
    """Let a client connect to a server with certificates of `folder`; return the server's."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "server.crt", folder / "server.key")
    serving.load_verify_locations(folder / "ca.crt")
    serving.verify_mode = ssl.CERT_REQUIRED
    calling = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    calling.load_cert_chain(folder / f"{client}.crt", folder / f"{client}.key")
    one, two = socket.socketpair()

    def serve() -> None:
        with serving.wrap_socket(one, server_side=True) as stream:
            stream.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with calling.wrap_socket(two, server_hostname=server_host) as stream:
        stream.send(b"x")
        seen = stream.getpeercert()
    thread.join()
    assert seen
    return dict(seen)


def test_client_and_server_of_one_authority_trust_each_other(tmp_path: Path) -> None:
    signer = pki.authority("kubernetes")
    signer.write(tmp_path, "ca")
    pki.issue(signer, "server", hosts=["10.89.0.1", "kubernetes"]).write(tmp_path, "server")
    pki.issue(signer, "someone", organizations=["a", "b"]).write(tmp_path, "client")
    for host in ("10.89.0.1", "kubernetes"):
        assert shake_hands(tmp_path, server_host=host, client="client")["subjectAltName"]


def test_a_key_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    pki.authority("kubernetes").write(tmp_path, "ca")
    assert (tmp_path / "ca.key").stat().st_mode & 0o777 == 0o600
    again = pki.read(tmp_path, "ca")
    assert again.certificate_pem == (tmp_path / "ca.crt").read_bytes()


def test_a_kubelet_is_the_user_of_its_own_node(tmp_path: Path) -> None:
    controlplane.authorities(tmp_path)
    target = tmp_path / "node"
    node.credentials(tmp_path, target, Node(name="node-3", index=5), network.Plan(51))
    content = yaml.safe_load((target / "kubelet.conf").read_text())
    assert content["clusters"][0]["cluster"]["server"] == "https://10.89.51.1:6443"
    serving = pki.read(target, "kubelet").certificate.subject
    assert [each.value for each in serving.get_attributes_for_oid(NameOID.COMMON_NAME)] == [
        "system:node:node-3"
    ]
    assert [each.value for each in serving.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == [
        "system:nodes"
    ]
    assert not (target / "ca.key").exists()


def test_only_the_users_own_kubeconfig_is_a_master(tmp_path: Path) -> None:
    controlplane.authorities(tmp_path)
    target = tmp_path / "control-plane"
    controlplane.credentials(tmp_path, target, network.Plan(51))
    masters = [
        path.name
        for path in target.glob("*.crt")
        if b"system:masters" in pki.read_certificate(path).subject.rfc4514_string().encode()
    ]
    assert masters == []
    assert b"https://10.89.51.1:6443" in controlplane.administrator(
        tmp_path, network.Plan(51), name="lab"
    )


def test_a_file_that_a_daemon_reads_is_replaced_and_never_emptied(tmp_path: Path) -> None:
    controlplane.authorities(tmp_path)
    target, plan = tmp_path / "node", network.Plan(7)
    controlplane.credentials(tmp_path, target, plan)
    streams = {path: path.open("rb") for path in target.iterdir()}
    controlplane.credentials(tmp_path, target, plan)
    node.credentials(tmp_path, target, Node(name="control-plane", index=1), plan)
    for path, stream in streams.items():
        with stream:
            assert os.fstat(stream.fileno()).st_ino != path.stat().st_ino, path.name
            assert stream.read()
