# SPDX-License-Identifier: Apache-2.0
"""A real etcd and kube-apiserver on loopback, to check the in-memory one against.

Found in GPUDECK_TOOLCHAIN_BIN or in the lab's cache; `find` returns None without them.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.support import certificates, ports

START_SECONDS = 60.0
PROGRAMS = ("etcd", "kube-apiserver")


def find() -> Path | None:
    """Return the folder that holds the programs, None if there is none."""
    given = os.environ.get("GPUDECK_TOOLCHAIN_BIN")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    root = Path(os.environ.get("GPUDECK_CACHE_DIR") or f"{cache}/gpudeck")
    folders = [Path(given)] if given else sorted(root.glob("toolchain/*/bin"))
    for folder in folders:
        if all((folder / program).exists() for program in PROGRAMS):
            return folder
    return None


def minor_version(programs: Path) -> int:
    """The 37 of Kubernetes 1.37."""
    command = [str(programs / "kube-apiserver"), "--version"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(said.split(".")[1])


def required() -> Path:
    """Return the folder that holds the programs; without them the test is skipped."""
    found = find()
    if found is None:
        pytest.skip("no etcd and kube-apiserver: set GPUDECK_TOOLCHAIN_BIN or run `gpudeck lab up`")
    return found


@contextlib.contextmanager
def running(programs: Path, gates: Mapping[str, bool] | None = None) -> Iterator[str]:
    """Run both until the end of the block; gives the path of an administrator's kubeconfig.

    `gates` are feature gates of the API server; others are as it is shipped.
    """
    with (
        tempfile.TemporaryDirectory(prefix="gpudeck-apiserver-") as name,
        _Cluster(programs, Path(name), gates or {}) as cluster,
    ):
        yield cluster.kubeconfig


class _Cluster:
    def __init__(self, programs: Path, folder: Path, gates: Mapping[str, bool]) -> None:
        self._programs, self._folder, self._gates = programs, folder, gates
        self._processes: list[subprocess.Popen[bytes]] = []
        self._etcd, self._peer, self._port = ports.free(), ports.free(), ports.free()
        self._authority = certificates.authority()
        self._authority.write(folder, "ca")
        names = ("localhost", "kubernetes")
        certificates.issue(self._authority, "kube-apiserver", names=names).write(folder, "server")
        admin = certificates.issue(self._authority, "admin", groups=("system:masters",))
        admin.write(folder, "admin")
        certificates.issue(self._authority, "accounts").write(folder, "accounts")
        self.kubeconfig = self._kubeconfig()

    def __enter__(self) -> _Cluster:
        try:
            self._start("etcd", self._etcd_flags())
            self._start("kube-apiserver", self._server_flags())
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def _start(self, program: str, flags: list[str]) -> None:
        command = [str(self._programs / program), *flags]
        with (self._folder / f"{program}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self._processes.append(process)

    def _etcd_flags(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        return [
            f"--data-dir={self._folder}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=error",
        ]

    def _server_flags(self) -> list[str]:
        folder = self._folder
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--client-ca-file={folder}/ca.crt",
            f"--tls-cert-file={folder}/server.crt",
            f"--tls-private-key-file={folder}/server.key",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--service-account-key-file={folder}/accounts.crt",
            f"--service-account-signing-key-file={folder}/accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            # No controller makes the default service accounts that it would ask for.
            "--disable-admission-plugins=ServiceAccount",
            *(f"--feature-gates={name}={str(on).lower()}" for name, on in self._gates.items()),
        ]

    def _kubeconfig(self) -> str:
        cluster = {
            "server": f"https://127.0.0.1:{self._port}",
            "certificate-authority": "ca.crt",
        }
        user = {"client-certificate": "admin.crt", "client-key": "admin.key"}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }
        path = self._folder / "kubeconfig"
        path.write_text(json.dumps(content))
        return str(path)

    def _wait(self) -> None:
        context = ssl.create_default_context(cafile=str(self._folder / "ca.crt"))
        context.load_cert_chain(self._folder / "admin.crt", self._folder / "admin.key")
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready(context):
            for process in self._processes:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"the API server did not start: {self._last_words()}")
            time.sleep(0.1)

    def _is_ready(self, context: ssl.SSLContext) -> bool:
        try:
            url = f"https://127.0.0.1:{self._port}/readyz"
            with urllib.request.urlopen(url, context=context, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _last_words(self) -> str:
        logs = (self._folder / f"{program}.log" for program in PROGRAMS)
        return "\n".join(log.read_text()[-2000:] for log in logs if log.exists())
