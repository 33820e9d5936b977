# SPDX-License-Identifier: Apache-2.0
"""Kubeconfig files and service accounts, read as kubectl and client-go do."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import certificates

from gpudeck import errors
from gpudeck.kube import configuration, executing


def write(path: Path, *, name: str = "one", cluster: Any = None, user: Any = None) -> str:
    cluster = {"server": f"https://{name}.example:6443/"} if cluster is None else cluster
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}
        ],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


async def test_the_current_context_gives_server_namespace_and_token(tmp_path: Path) -> None:
    access = configuration.load(write(tmp_path / "config", user={"token": "secret"}))
    assert access.server == "https://one.example:6443"
    assert access.namespace == "ns-one"
    assert await access.credential.token() == "secret"


def test_a_named_context_wins_over_the_current_one(tmp_path: Path) -> None:
    paths = os.pathsep.join([write(tmp_path / "a", name="one"), write(tmp_path / "b", name="two")])
    assert configuration.load(paths).server == "https://one.example:6443"
    assert configuration.load(paths, "two").server == "https://two.example:6443"


def test_an_absent_file_among_several_is_passed_over(tmp_path: Path) -> None:
    paths = os.pathsep.join([str(tmp_path / "absent"), write(tmp_path / "b")])
    assert configuration.load(paths).server == "https://one.example:6443"


def test_an_unknown_context_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidError, match="'three' is not there; allowed: one"):
        configuration.load(write(tmp_path / "config"), "three")


def test_a_missing_file_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidError, match="absent") as caught:
        configuration.load(str(tmp_path / "absent"))
    assert caught.value.reason == "KubeconfigNotFound"


@pytest.mark.parametrize("text", ["clusters: 7", "{", "- a", "clusters: [{name: 7}]"])
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(errors.InvalidError, match=f"kubeconfig: {path}") as caught:
        configuration.load(str(path))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({}, "server: :// is not valid; allowed: https://host:port or http://host:port"),
        ({"server": "api.example:6443"}, "server: api.example:// is not valid"),
        ({"server": "https://api.example:x"}, "server: what it says is not valid"),
        (
            {"server": "https://a", "proxy-url": "socks5://me:secret@b:1080"},
            "proxy-url: socks5://b:1080 is not valid; allowed: http://host:port or https://host:port",
        ),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_password(
    tmp_path: Path, cluster: dict[str, str], words: str
) -> None:
    with pytest.raises(errors.InvalidError, match=re.escape(words)):
        configuration.load(write(tmp_path / "config", cluster=cluster))


def test_a_proxy_is_taken_as_it_is(tmp_path: Path) -> None:
    cluster = {"server": "https://a", "proxy-url": "http://me:secret@b:3128/"}
    found = configuration.load(write(tmp_path / "config", cluster=cluster))
    assert found.proxy == "http://me:secret@b:3128"


def test_paths_are_relative_to_the_file_that_holds_them(tmp_path: Path) -> None:
    ca = certificates.authority()
    ca.write(tmp_path, "ca")
    certificates.issue(ca, "me").write(tmp_path, "me")
    path = write(
        tmp_path / "config",
        cluster={"server": "https://x", "certificate-authority": "ca.crt"},
        user={"client-certificate": "me.crt", "client-key": "me.key"},
    )
    assert len(configuration.load(path).tls.context().get_ca_certs()) == 1


def test_data_wins_over_a_path_and_must_be_base64(tmp_path: Path) -> None:
    text = base64.b64encode(certificates.authority().certificate_pem.encode()).decode()
    cluster = {
        "server": "https://x",
        "certificate-authority": "absent.crt",
        "certificate-authority-data": text,
    }
    access = configuration.load(write(tmp_path / "config", cluster=cluster))
    assert len(access.tls.context().get_ca_certs()) == 1
    cluster["certificate-authority-data"] = "AAA"
    with pytest.raises(errors.InvalidError, match="base64"):
        configuration.load(write(tmp_path / "config", cluster=cluster))


def test_an_exec_plugin_is_taken(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "login"}
    access = configuration.load(write(tmp_path / "config", user={"exec": plugin}))
    assert isinstance(access.credential, executing.Plugin)


def service_account(folder: Path) -> Path:
    (folder / "token").write_text("token-1\n")
    (folder / "ca.crt").write_text(certificates.authority().certificate_pem)
    (folder / "namespace").write_text("gpudeck-system")
    return folder


@pytest.mark.parametrize(
    ("host", "server"),
    [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")],
)
async def test_a_pod_uses_its_service_account(tmp_path: Path, host: str, server: str) -> None:
    env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    access = configuration.in_cluster(env, service_account(tmp_path))
    assert access.server == server
    assert access.namespace == "gpudeck-system"
    assert await access.credential.token() == "token-1"
    assert len(access.tls.context().get_ca_certs()) == 1


def test_outside_a_pod_a_kubeconfig_is_asked_for() -> None:
    with pytest.raises(errors.InvalidError, match="kubeconfig: empty"):
        configuration.in_cluster({})
