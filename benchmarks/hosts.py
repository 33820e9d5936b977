# SPDX-License-Identifier: Apache-2.0
"""One simulated host with eight cards and no cluster: what the node's programs speak to.

The host tree and the mock of the maker's library are the lab's; API server and kubelet are the
tests' stand-ins, in this process. The programs are the real ones, each a process of its own
that is started as a container would start it, with the program's wheels, and byte code of this
source, in place of an image.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
import pytest
from tests.contract.vendors import benches
from tests.scenario.deviceplugin import standins
from tests.support import apiserver

import gpudeck
from benchmarks import processes
from gpudeck.api import resources
from gpudeck.errors import UnavailableError
from gpudeck.lab import places
from gpudeck.pluginconfig import selecting

T = TypeVar("T")
MACHINE, CARDS = "h100-x8", 8
NODE, NAMESPACE, CONFIGS = "node-0", "gpu", "configs"
PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.001
# The image trusts its cluster alone: of public authorities it has no files, which a process of
# a machine that has them reads at its start (1.6 MB each).
_AUTHORITIES = {"SSL_CERT_FILE": "/nonexistent", "SSL_CERT_DIR": "/nonexistent"}
_PROGRAM = "from gpudeck.cli.main import main; main()"
_SHARED = """
sharing:
  timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 10}]}
"""
SHARED = "slice-10"


class Host:
    """The host; `programs` are those that run."""

    def __init__(self, folder: Path, bench: benches.NvidiaBench, api: apiserver.ApiServer) -> None:
        self.bench = bench
        self.api = api
        self.folder = folder
        self.plugins = folder / "plugins"
        self.plugins.mkdir()
        self.kubelet = standins.Kubelet(self.plugins, folder / "pods.sock")
        self.kubeconfig = api.kubeconfig()
        meta = {"name": CONFIGS, "namespace": NAMESPACE}
        api.put(resources.CONFIG_MAP, {"metadata": meta, "data": {SHARED: _SHARED}})
        self.choose("")

    def choose(self, config: str) -> None:
        """Label the Node with the name of a config."""
        labels = {selecting.LABEL: config} if config else {}
        self.api.put(resources.NODE, {"metadata": {"name": NODE, "uid": "u", "labels": labels}})

    async def offers(self, resource: str, count: int) -> float:
        """When the kubelet was first seen to have so many healthy devices."""
        return await moment(lambda: self.kubelet.allocatable(resource) == count)

    def plugin(self) -> dict[str, Any]:
        """Options of the device plugin."""
        return {
            "config-map": CONFIGS,
            "plugins-dir": self.plugins,
            "pod-resources": self.kubelet.pod_resources,
            "data-dir": self.folder / "data",
            "cdi-root": self.folder / "cdi",
        }

    @contextlib.asynccontextmanager
    async def running(self, *words: str, **options: Any) -> AsyncIterator[Program]:
        """A program of the node, ended by SIGKILL after the block."""
        found = await self.start(*words, **options)
        try:
            yield found
        finally:
            await found.kill()

    async def start(self, *words: str, **options: Any) -> Program:
        """Start a program of the node, which the caller ends."""
        defaults = {"node-name": NODE, "kubeconfig": self.kubeconfig, "namespace": NAMESPACE}
        found = Program()
        await found.start(*words, **{"host-root": self.bench.tree, **defaults, **options})
        return found


class Program:
    """A process of gpudeck."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self.started = 0.0

    async def start(self, *words: str, **options: Any) -> None:
        """Start it; `started` is when, on the clock of `time.perf_counter`."""
        flags = [f"--{name}={value}" for name, value in options.items() if value is not None]
        self.started = time.perf_counter()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _PROGRAM,
            *words,
            *flags,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **_environment()},
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        if self._process is None:
            raise UnavailableError("the program was not started")
        return self._process.pid

    @property
    def children(self) -> list[int]:
        """Processes that it has started: those of the maker's library."""
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(each) for each in path.read_text().split()]

    async def ended(self) -> float:
        """Wait for its end; the seconds since its start. UnavailableError where it failed."""
        if self._process is None or await self._process.wait() != 0:
            raise UnavailableError("the program has failed")
        return time.perf_counter() - self.started

    async def stop(self) -> None:
        """End it as the kubelet does, and wait until it has ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()

    async def kill(self) -> None:
        """End it as the kernel does when memory runs out."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def _environment() -> dict[str, str]:
    """What a program finds in its pod: no public authorities, and byte code without docstrings."""
    byte_code = {"PYTHONOPTIMIZE": "2", "PYTHONPYCACHEPREFIX": str(places.cache() / "bytecode")}
    return {**_AUTHORITIES, **byte_code}


def _compile() -> None:
    """Make the byte code that is in the image."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    command = [sys.executable, "-m", "compileall", "-q", "-q", "-o", "2", "-x", "/test/|lib2to3"]
    done = subprocess.run(
        [*command, *sorted(folders), Path(gpudeck.__file__).parent],
        env={**os.environ, **_environment()}, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):  # 1: a file somewhere that is written to be wrong.
        raise UnavailableError("the byte code could not be made")


@contextlib.asynccontextmanager
async def host() -> AsyncIterator[Host]:
    """A host, its API server and its kubelet, inside the block."""
    _compile()
    with _patched() as patch, tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        (folder / "host").mkdir()
        bench = benches.NvidiaBench(folder / "host", patch, MACHINE)
        async with apiserver.ApiServer() as api:
            found = Host(folder, bench, api)
            await found.kubelet.start()
            try:
                yield found
            finally:
                await found.kubelet.stop()


def run(part: Callable[[Host], Awaitable[T]]) -> T:
    """What a part makes of a host of its own. As root: its device nodes are made."""
    if os.geteuid() != 0:
        raise click.ClickException("device nodes of the simulated host can be made by root only")

    async def on_host() -> T:
        async with host() as found:
            return await part(found)

    return asyncio.run(on_host())


@contextlib.contextmanager
def _patched() -> Iterator[pytest.MonkeyPatch]:
    patch = pytest.MonkeyPatch()
    try:
        yield patch
    finally:
        patch.undo()


async def moment(true: Callable[[], Any]) -> float:
    """When something was first seen to be true, to a millisecond; UnavailableError if never."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not true():  # noqa: ASYNC110 - what is looked at tells nobody.
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError as error:
        raise UnavailableError(f"nothing seen within {PATIENCE_SECONDS:g} s") from error
    return time.perf_counter()


def sizes(program: Program) -> list[processes.Size]:
    """What a program takes, and then each of its children: that of the maker's library."""
    return [processes.size(each) for each in (program.pid, *program.children)]
