# SPDX-License-Identifier: Apache-2.0
"""`gpudeck mps-control` as a process of its own, over a host tree with the stand-in daemon.

It runs in a mount namespace of its own, as it does in its container, so what it mounts goes
with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support import expect

from gpudeck.host import root as host
from gpudeck.lab import places as caches
from gpudeck.lab import simulation
from gpudeck.vendors.nvidia.mps import places


class Keeper:
    """The process over a tree; it can be killed and started again."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.root = host.Root(tree)
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def of_empty_tree(cls, tree: Path) -> Keeper:
        """Over a tree that has just what the daemon needs."""
        for folder in ("dev/shm", "run", "usr/bin"):
            (tree / folder).mkdir(parents=True)
        program = "nvidia-cuda-mps-control"
        built = simulation.build_native(caches.cache()) / program
        (tree / "usr/bin" / program).write_bytes(built.read_bytes())
        (tree / "usr/bin" / program).chmod(0o755)
        return cls(tree)

    def start(self) -> None:
        command = [sys.executable, "-c", "from gpudeck.cli.main import main; main()"]
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", *command, "mps-control"],
            env={**os.environ, "GPUDECK_HOST_ROOT": str(self.tree)},
        )

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the process, and wait for the end."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(20)
            self._process = None

    def card(self, address: str) -> places.Card:
        return places.Card(self.root, address)

    def daemon(self, address: str) -> int | None:
        """The pid of the card's daemon; None where none runs."""
        try:
            path = self.root.real(self.card(address).pipe) / "nvidia-cuda-mps-control.pid"
            pid = int(path.read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ValueError):
            return None
        return pid if b"nvidia-cuda-mps-control" in words else None

    async def ready(self, address: str) -> int:
        """The pid of the card's daemon, once it serves."""

        async def state() -> places.State | None:
            return self.card(address).state()

        await expect.eventually(state, places.State(ready=True))
        pid = self.daemon(address)
        assert pid is not None
        return pid

    async def gone(self, address: str) -> None:
        """Wait until the card has no daemon and no state."""

        async def left() -> tuple[int | None, places.State | None]:
            return self.daemon(address), self.card(address).state()

        await expect.eventually(left, (None, None))
