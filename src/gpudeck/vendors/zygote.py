# SPDX-License-Identifier: Apache-2.0
"""The small process that library processes are forked from.

gRPC starts threads, and a process with threads cannot fork safely; so the serving
process forks the zygote first of all, before it imports gRPC. The zygote imports the
maker's bindings, freezes its heap (the pages stay shared) and then only forks. Each
library process dies with the zygote, and the zygote with the process that started it,
even when that is killed: PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import functools
import gc
import os
import signal
import socket
from typing import NoReturn

from gpudeck import errors
from gpudeck.vendors import contract, registry, worker

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_SPAWN_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Spawned:
    """A library process that was just forked; the receiver owns the descriptors."""

    pid: int
    pidfd: int
    connection: socket.socket
    progress: int
    """Descriptor of the memory where the process notes what it is doing."""


class Zygote:
    """The serving process's hold of the zygote. `start` once, before any thread exists."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self._control = control
        self._lock = asyncio.Lock()
        self.pid = pid

    @classmethod
    def start(cls, vendor: str, settings: contract.VendorSettings) -> Zygote:
        """Fork the zygote of a maker. Raises InvalidError for a maker that does not exist."""
        maker = registry.load(vendor)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _leave(functools.partial(_serve, theirs, parent, maker, settings))
        theirs.close()
        ours.settimeout(_SPAWN_SECONDS)
        return cls(ours, pid)

    async def spawn(self) -> Spawned:
        """Fork a library process. Raises UnavailableError when the zygote is gone."""
        async with self._lock:  # One request and one answer on the wire at a time.
            return await asyncio.to_thread(self._spawn)

    def close(self) -> None:
        """End the zygote; library processes that are left end with it."""
        self._control.close()
        os.waitpid(self.pid, 0)

    def _spawn(self) -> Spawned:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        progress = os.memfd_create("progress", os.MFD_CLOEXEC)
        os.ftruncate(progress, worker.PROGRESS_BYTES)
        try:
            socket.send_fds(self._control, [b"fork"], [theirs.fileno(), progress])
            answer, descriptors, _, _ = socket.recv_fds(self._control, 64, 1)
        except OSError as error:
            ours.close()
            os.close(progress)
            raise self._gone() from error
        finally:
            theirs.close()
        if not answer:
            ours.close()
            os.close(progress)
            raise self._gone()
        ours.setblocking(False)
        return Spawned(int(answer), descriptors[0], ours, progress)

    def _gone(self) -> errors.UnavailableError:
        return errors.UnavailableError(
            f"the process {self.pid} that library processes are forked from does not answer",
            reason="ZygoteGone",
        )


def _serve(
    control: socket.socket,
    parent: int,
    maker: contract.Maker,
    settings: contract.VendorSettings,
) -> None:
    _become("gpudeck-zygote", parent)
    _close_all_but(control.fileno())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel reaps the children.
    maker.preload()
    gc.collect()
    gc.freeze()
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 64, 2)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            _leave(functools.partial(_work, descriptors, maker, settings))
        pidfd = os.pidfd_open(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        socket.send_fds(control, [str(pid).encode()], [pidfd])
        os.close(pidfd)


def _work(descriptors: list[int], maker: contract.Maker, settings: contract.VendorSettings) -> None:
    _become("gpudeck-library", os.getppid())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection = socket.socket(fileno=descriptors[0])
    progress = worker.open_progress(descriptors[1])
    worker.run(connection, maker.library(settings, progress))


def _become(name: str, parent: int) -> None:
    """Take a name that `ps` shows, and die with the parent."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NAME, name[:15].encode(), 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # It died before the line above.
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


def _close_all_but(kept: int) -> None:
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _leave(work: worker.Work) -> NoReturn:
    """Run `work` and end this process without returning into the code that forked it."""
    try:
        work()
    except BaseException:  # noqa: BLE001 - nobody above may see it: that code is the parent's.
        worker.report_and_exit(os.EX_SOFTWARE)
    finally:
        worker.report_and_exit(os.EX_OK)
    raise AssertionError  # Not reached; says so to the type checker.
