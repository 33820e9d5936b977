# SPDX-License-Identifier: Apache-2.0
"""Exec plugins: run once, run again when needed, and blamed by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support import certificates

from gpudeck import errors
from gpudeck.kube import credentials, executing

V1 = "client.authentication.k8s.io/v1"


class Script:
    """A plugin that counts its runs and prints what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tls = credentials.Tls()

    def prints(self, status: Any, *, version: str = V1) -> executing.Plugin:
        answer = {"kind": "ExecCredential", "apiVersion": version, "status": status}
        (self.folder / "answer").write_text(json.dumps(answer))
        script = 'printf x >> runs; printf %s "$KUBERNETES_EXEC_INFO$EXTRA" > asked; cat answer'
        return self.runs(f"cd {self.folder} && {{ {script}; }}", version=version)

    def runs(self, script: str, *, version: str = V1) -> executing.Plugin:
        config = executing.ExecConfig(
            api_version=version,
            command="/bin/sh",
            args=["-c", script],
            env=[executing.Variable(name="EXTRA", value="more")],
            interactive_mode="Never",
            provide_cluster_info=True,
        )
        return executing.Plugin(config, self.tls, {"server": "https://x"})

    @property
    def count(self) -> int:
        return len((self.folder / "runs").read_text())


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.mark.parametrize("version", executing.SUPPORTED)
async def test_a_token_is_asked_for_once(script: Script, version: str) -> None:
    plugin = script.prints({"token": "secret"}, version=version)
    assert [await plugin.token(), await plugin.token()] == ["secret", "secret"]
    assert script.count == 1
    asked = json.loads((script.folder / "asked").read_text().removesuffix("more"))
    assert asked == {
        "kind": "ExecCredential",
        "apiVersion": version,
        "spec": {"interactive": False, "cluster": {"server": "https://x"}},
    }


async def test_an_expired_token_is_asked_for_again(script: Script) -> None:
    plugin = script.prints({"token": "a", "expirationTimestamp": "2020-01-01T00:00:00Z"})
    await plugin.token()
    await plugin.token()
    assert script.count == 2


async def test_a_refused_token_is_asked_for_again(script: Script) -> None:
    plugin = script.prints({"token": "a", "expirationTimestamp": "2999-01-01T00:00:00Z"})
    await plugin.token()
    assert plugin.forget()
    await plugin.token()
    assert script.count == 2


async def test_a_certificate_goes_to_the_connection(script: Script) -> None:
    pair = certificates.issue(certificates.authority(), "me")
    before = script.tls.context()
    plugin = script.prints(
        {"clientCertificateData": pair.certificate_pem, "clientKeyData": pair.key_pem}
    )
    assert await plugin.token() == ""
    assert script.tls.context() is not before


@pytest.mark.parametrize(
    ("script_text", "said"),
    [
        ("exit 3", "ended with status 3"),
        ("echo hello", "printed no ExecCredential"),
        ('echo \'{"apiVersion": "v2"}\'', "printed 'v2' without a credential"),
    ],
)
async def test_a_plugin_that_fails_is_blamed(script: Script, script_text: str, said: str) -> None:
    with pytest.raises(errors.ForbiddenError, match=said) as caught:
        await script.runs(script_text).token()
    assert caught.value.reason == "ExecPluginFailed"


@pytest.mark.parametrize("moment", ["soon", "2026-01-01T00:00:00", 5])
async def test_a_moment_that_is_none_is_blamed_on_the_plugin(script: Script, moment: Any) -> None:
    plugin = script.prints({"token": "secret", "expirationTimestamp": moment})
    with pytest.raises(errors.ForbiddenError, match="printed no ExecCredential"):
        await plugin.token()


async def test_a_missing_plugin_is_named_with_its_hint() -> None:
    config = executing.ExecConfig(
        api_version=V1, command="/nonexistent/login", install_hint="install it"
    )
    with pytest.raises(errors.ForbiddenError, match=r"nonexistent/login.*install it"):
        await executing.Plugin(config, credentials.Tls()).token()


def test_another_version_of_the_protocol_is_refused() -> None:
    config = executing.ExecConfig(api_version="client.authentication.k8s.io/v1alpha1")
    with pytest.raises(errors.InvalidError, match="v1alpha1"):
        executing.Plugin(config, credentials.Tls())


async def test_a_plugin_that_hangs_is_ended(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executing, "DEADLINE_SECONDS", 0.1)
    with pytest.raises(errors.UnavailableError, match="no answer"):
        await script.runs("exec sleep 60").token()
