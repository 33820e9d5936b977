# SPDX-License-Identifier: Apache-2.0
"""Starting, finding and stopping the lab's processes.

A node is a set of namespaces that its first process holds: mount, UTS, network, IPC and
PID. When that process ends, the kernel ends all others and drops every mount and
interface, so a node cannot outlive it and a reboot is a real one. Daemons enter by
nsenter and are children of the node's first process, which reaps them. (`ip netns exec`
would not do: it mounts a new /sys, where the kubelet finds no cgroups.)
Called by `cluster`, `teardown` and what builds; it never decides what runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from gpudeck import errors
from gpudeck.lab import cgroups
from gpudeck.lab.state import Process

NAMESPACES = ("--mount", "--uts", "--net", "--ipc", "--pid")
NODE_PATH = "/opt/lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BUILD_LINES = 20
# The launching shell joins the cgroups itself, so that a process of the lab is in them
# before it is one; then it becomes the program.
_JOIN = 'while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs"; shift; done; shift; exec "$@"'
# Runs inside the node: the daemon becomes a child of the node's first process.
_DETACH = 'setsid -- "$@" </dev/null & echo $! >&0'


def start_time(pid: int) -> int | None:
    """Start of a living process in clock ticks since boot; None when it is gone or a zombie.

    While a process of many threads ends, its first thread is a zombie before the others are:
    until the last one has ended, its ports are open and its locks held (Linux 6).
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    ended = fields[0] == "X" or (fields[0] == "Z" and int(fields[17]) <= 1)
    return None if ended else int(fields[19])


def alive(process: Process | None) -> bool:
    """Whether that very process still runs."""
    return process is not None and start_time(process.pid) == process.start


def boot(script: Path, *, cgroup: str, log: Path, seconds: float = 20.0) -> Process:
    """Start a node's first process: `script` in new namespaces; return once it wrote `booted`.

    Raises UnavailableError with the end of its log when it fails.
    """
    command = ["unshare", *NAMESPACES, "--fork", "--propagation", "private", "--"]
    _, told = _launch([*command, "/bin/sh", str(script)], cgroup=cgroup, log=log, seconds=seconds)
    if told != "booted":
        raise errors.UnavailableError(
            f"node did not boot: {last_lines(log)}", reason="NodeBootFailed"
        )
    return _find(cgroup, 1, log)


def start(
    init: Process,
    command: Sequence[str],
    *,
    cgroup: str,
    log: Path,
    env: Mapping[str, str],
    namespaces: Sequence[str] = NAMESPACES,
) -> Process:
    """Start a daemon inside the node of `init`; its output is appended to `log`.

    With fewer `namespaces` it sees the machine's files, but its node's network and end.
    """
    inside = [*enter(init, namespaces), "/bin/sh", "-c", _DETACH, "sh", *command]
    launcher, told = _launch(inside, cgroup=cgroup, log=log, seconds=20.0, env=env)
    launcher.wait()
    if not told.isdigit():
        raise errors.UnavailableError(
            f"{command[0]} did not start: {last_lines(log)}", reason="DaemonNotStarted"
        )
    return _find(cgroup, int(told), log)


def enter(init: Process, namespaces: Sequence[str] = NAMESPACES) -> list[str]:
    """The command prefix that runs a program inside a node."""
    return ["nsenter", f"--target={init.pid}", *namespaces, "--"]


def run(
    command: Sequence[str],
    *,
    text: str | None = None,
    env: Mapping[str, str] | None = None,
    seconds: float = 120.0,
) -> str:
    """Run a short program and return its output; UnavailableError carries what it said."""
    try:
        done = subprocess.run(
            list(command), input=text, text=True, capture_output=True, timeout=seconds,
            env=None if env is None else dict(env), check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise errors.UnavailableError(
            f"{' '.join(command[:6])}: no end within {seconds:.0f} s", reason="CommandTimeout"
        ) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise errors.UnavailableError(
            f"{' '.join(command[:6])}: exit code {done.returncode}: {said}", reason="CommandFailed"
        )
    return done.stdout


def build(
    command: Sequence[str], *, folder: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Run a program that makes something, however long it takes, and return its output.

    `env` is put over the caller's own environment. TerminalError carries the end of what the
    program said.
    """
    done = subprocess.run(
        list(command), cwd=folder, env={**os.environ, **(env or {})}, check=False,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-_BUILD_LINES:])
        raise errors.TerminalError(
            f"{' '.join(command[:3])} …: exit code {done.returncode}:\n{tail}",
            reason="BuildFailed",
        )
    return done.stdout


def inside(init: Process, command: Sequence[str], *, seconds: float = 120.0) -> str:
    """Run a short program in a node and return its output."""
    return run([*enter(init), *command], env=environment(), seconds=seconds)


def feed(command: Sequence[str], content: BinaryIO, *, seconds: float = 300.0) -> None:
    """Run a program of a node with a file of the machine as its input."""
    done = subprocess.run(
        list(command), stdin=content, capture_output=True, timeout=seconds, check=False,
        env=environment(),
    )  # fmt: skip
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise errors.UnavailableError(
            f"{' '.join(command[-4:])}: exit code {done.returncode}: {said}", reason="CommandFailed"
        )


def environment(init_env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a daemon: nothing of the caller's own."""
    return {"PATH": NODE_PATH, "HOME": "/root", "LANG": "C.UTF-8", **(init_env or {})}


def stop(process: Process | None, *, seconds: float = 10.0) -> None:
    """End a process: SIGTERM, then SIGKILL after `seconds`; fine when it is gone already."""
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        if process is None or not alive(process):
            return
        os.kill(process.pid, number)
        deadline = time.monotonic() + patience
        while alive(process) and time.monotonic() < deadline:
            time.sleep(0.02)
    if alive(process):
        raise errors.UnavailableError(
            f"process {process.pid if process else 0} does not end", reason="ProcessStuck"
        )


def stop_all(cgroup: str, *, seconds: float = 15.0) -> None:
    """SIGKILL to every process in a cgroup and below it, until all have ended.

    Raises UnavailableError with the numbers of those that stay.
    """
    deadline = time.monotonic() + seconds
    # A process leaves its cgroup before it has given back its namespaces and mounts.
    seen: set[int] = set()
    while left := cgroups.members(cgroup) | {pid for pid in seen if start_time(pid) is not None}:
        seen |= left
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise errors.UnavailableError(
                f"processes {sorted(left)} of cgroup {cgroup} did not end within {seconds:.0f} s",
                reason="ProcessStuck",
            )
        time.sleep(0.02)


def last_lines(log: Path, count: int = 5) -> str:
    """The end of a log file, on one line, for an error message."""
    if not log.exists():
        return "no output"
    lines = log.read_text(errors="replace").splitlines()[-count:]
    return " | ".join(lines) or "no output"


def _launch(
    command: Sequence[str],
    *,
    cgroup: str,
    log: Path,
    seconds: float,
    env: Mapping[str, str] | None = None,
) -> tuple[subprocess.Popen[bytes], str]:
    """Start `command` in `cgroup`; return it and the line it wrote to its standard input.

    Standard input is the way back because it is the one descriptor beside the two of the
    log that unshare, nsenter and every shell pass on.
    """
    folders = [str(folder) for folder in cgroups.create(cgroup)]
    receiving, sending = os.pipe()
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(
                ["/bin/sh", "-ec", _JOIN, "sh", *folders, "--", *command],
                stdin=sending, stdout=output, stderr=output,
                start_new_session=True, env=dict(env or environment()),
            )  # fmt: skip
    finally:
        os.close(sending)
    try:
        return child, _line(receiving, seconds)
    finally:
        os.close(receiving)


def _line(descriptor: int, seconds: float) -> str:
    """Read one line from a pipe; what came until its end or the time is over otherwise."""
    text = b""
    deadline = time.monotonic() + seconds
    while not text.endswith(b"\n"):
        readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(descriptor, 64) if readable else b""
        if not chunk:
            break
        text += chunk
    return text.decode().strip()


def _find(cgroup: str, inner: int, log: Path) -> Process:
    """Find a process of a cgroup by the number it has inside its node."""
    for pid in cgroups.members(cgroup):
        started = start_time(pid)
        if started is not None and _inner(pid) == inner:
            return Process(pid=pid, start=started)
    raise errors.UnavailableError(
        f"a process ended as soon as it was started: {last_lines(log)}", reason="ProcessEnded"
    )


def _inner(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return None
