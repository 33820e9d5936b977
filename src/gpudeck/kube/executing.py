# SPDX-License-Identifier: Apache-2.0
"""Credentials from an exec plugin named in a kubeconfig: cloud logins for people at a terminal.

Protocol: client.authentication.k8s.io v1 and v1beta1 (token, or client
certificate and key). The plugin runs in a process of its own without blocking
the loop, is run once for many requests, and again when its credential expires
or the server answered 401. Only the command line meets kubeconfigs that have
one, so this is the one place outside `host` that starts a process.
"""

from __future__ import annotations

import asyncio
import datetime
import os
from typing import Annotated

import msgspec

from gpudeck import errors
from gpudeck.api.meta import Wire
from gpudeck.kube import credentials

SUPPORTED = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
DEADLINE_SECONDS = 60.0
"""A plugin may wait for a person to log in."""
_EARLY = datetime.timedelta(seconds=10)


class Variable(Wire):
    name: str = ""
    value: str = ""


class ExecConfig(Wire):
    """`users[].user.exec` of a kubeconfig."""

    api_version: str = ""
    command: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: str | None = None


class ExecStatus(Wire):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime.datetime, msgspec.Meta(tz=True)] | None = None


class ExecCredential(Wire):
    kind: str = ""
    api_version: str = ""
    status: ExecStatus | None = None


class Plugin:
    """A credential that a program prints."""

    def __init__(
        self,
        config: ExecConfig,
        tls: credentials.Tls,
        cluster: dict[str, object] | None = None,
    ) -> None:
        if config.api_version not in SUPPORTED:
            raise errors.InvalidError(
                f"exec.apiVersion: {config.api_version!r} is not supported; "
                f"allowed: {', '.join(SUPPORTED)}",
                reason="ExecPluginUnsupported",
                field="exec.apiVersion",
            )
        self._config = config
        self._tls = tls
        self._cluster = cluster if config.provide_cluster_info else None
        self._status: ExecStatus | None = None
        self._turn = asyncio.Lock()

    async def token(self) -> str:
        """Return the token, running the plugin if none is at hand; certificates go to the Tls."""
        async with self._turn:
            if self._status is None or _expired(self._status):
                self._status = await self._run()
                self._present(self._status)
        return self._status.token or ""

    def forget(self) -> bool:
        """Run the plugin again on the next request."""
        self._status = None
        return True

    def _present(self, status: ExecStatus) -> None:
        if status.client_certificate_data and status.client_key_data:
            self._tls.present(status.client_certificate_data, status.client_key_data)

    async def _run(self) -> ExecStatus:
        config = self._config
        environment = {
            **os.environ,
            **{each.name: each.value for each in config.env or ()},
        }
        environment["KUBERNETES_EXEC_INFO"] = self._question()
        try:
            process = await asyncio.create_subprocess_exec(
                config.command,
                *(config.args or ()),
                env=environment,
                stdin=None if config.interactive_mode != "Never" else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"; {config.install_hint}" if config.install_hint else ""
            raise errors.ForbiddenError(
                f"exec plugin {config.command!r} cannot be started: {error.strerror}{hint}",
                reason="ExecPluginFailed",
            ) from error
        return self._answer(await _output(process, config.command))

    def _question(self) -> str:
        spec: dict[str, object] = {"interactive": self._config.interactive_mode != "Never"}
        if self._cluster is not None:
            spec["cluster"] = self._cluster
        question = {
            "kind": "ExecCredential",
            "apiVersion": self._config.api_version,
            "spec": spec,
        }
        return msgspec.json.encode(question).decode()

    def _answer(self, output: bytes) -> ExecStatus:
        try:
            answer = msgspec.json.decode(output, type=ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise errors.ForbiddenError(
                f"exec plugin {self._config.command!r} printed no ExecCredential: {error}",
                reason="ExecPluginFailed",
            ) from error
        status = answer.status
        if answer.api_version != self._config.api_version or status is None:
            raise errors.ForbiddenError(
                f"exec plugin {self._config.command!r} printed {answer.api_version!r} without "
                f"a credential; {self._config.api_version!r} with a status was asked",
                reason="ExecPluginFailed",
            )
        return status


async def _output(process: asyncio.subprocess.Process, command: str) -> bytes:
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError as error:
        raise errors.UnavailableError(
            f"exec plugin {command!r} gave no answer within {DEADLINE_SECONDS:.0f} s",
            reason="ExecPluginFailed",
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise errors.ForbiddenError(
            f"exec plugin {command!r} ended with status {process.returncode}",
            reason="ExecPluginFailed",
        )
    return output


def _expired(status: ExecStatus) -> bool:
    if status.expiration_timestamp is None:
        return False
    return datetime.datetime.now(datetime.UTC) >= status.expiration_timestamp - _EARLY
