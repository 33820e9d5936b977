# SPDX-License-Identifier: Apache-2.0
"""The control plane's command lines: nothing anonymous, nothing unverified."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509

from gpudeck.lab import controlplane, network, pki

PLAN = network.Plan(51)


def test_every_daemon_has_a_command_of_its_own_name() -> None:
    commands = controlplane.commands(PLAN)
    assert tuple(commands) == controlplane.DAEMONS
    assert all(words[0] == name for name, words in commands.items())


def test_nothing_is_served_or_asked_without_verification() -> None:
    words = [word for command in controlplane.commands(PLAN).values() for word in command]
    assert not [word for word in words if "insecure" in word or "token-auth-file" in word]
    assert "--authorization-mode=Node,RBAC" in words
    assert "--enable-admission-plugins=NodeRestriction" in words
    assert "--client-cert-auth=true" in words


def test_every_file_that_a_daemon_names_is_issued(tmp_path: Path) -> None:
    controlplane.authorities(tmp_path / "pki")
    controlplane.credentials(tmp_path / "pki", tmp_path / "node", PLAN)
    words = [word for command in controlplane.commands(PLAN).values() for word in command]
    named = {
        word.partition("=")[2].removeprefix("/etc/kubernetes/")
        for word in words
        if "=/etc/kubernetes/" in word
    }
    assert named
    assert named <= {path.name for path in (tmp_path / "node").iterdir()}


def test_the_api_server_is_known_by_every_name_that_pods_use(tmp_path: Path) -> None:
    controlplane.authorities(tmp_path)
    controlplane.credentials(tmp_path, tmp_path / "node", PLAN)
    certificate = pki.read_certificate(tmp_path / "node" / "apiserver.crt")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)
    addresses = [str(each) for each in names.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "10.96.0.1", "10.89.51.1"]
