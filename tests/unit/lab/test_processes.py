# SPDX-License-Identifier: Apache-2.0
"""Processes by number and start, seen on real ones; cgroup mounts from a table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.lab import cgroups, processes
from gpudeck.lab.state import Process

STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
"""

HEADLESS = """
import ctypes, threading
def rest():
    print("ready", flush=True)
    threading.Event().wait()
threading.Thread(target=rest).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_that_ignores_sigterm_is_ended_all_the_same() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        start = processes.start_time(child.pid)
        assert start is not None
        running = Process(pid=child.pid, start=start)
        processes.stop(running, seconds=0.1)
        assert not processes.alive(running)


def test_a_process_lives_until_its_last_thread_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        status = Path(f"/proc/{child.pid}/status")
        while "State:\tZ" not in status.read_text():
            pass
        start = processes.start_time(child.pid)
        assert start is not None
        processes.stop(Process(pid=child.pid, start=start))
        assert not Path(f"/proc/{child.pid}/task").exists() or len(threads(child.pid)) == 1


def threads(pid: int) -> list[Path]:
    """The threads of a process."""
    return list(Path(f"/proc/{pid}/task").iterdir())


def test_stopping_what_is_gone_is_fine() -> None:
    processes.stop(None)
    processes.stop(Process(pid=2**22 - 1, start=1))


def test_a_failed_command_carries_what_it_said() -> None:
    with pytest.raises(errors.UnavailableError, match="exit code 3: because"):
        processes.run(["sh", "-c", "echo because >&2; exit 3"])
    assert processes.run(["cat"], text="in") == "in"


def test_the_end_of_a_log_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert processes.last_lines(log) == "no output"
    log.write_text("a\nb\nc\n")
    assert processes.last_lines(log, 2) == "b | c"


def test_daemons_inherit_nothing_of_the_callers_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somewhere")
    assert set(processes.environment({"A": "b"})) == {"PATH", "HOME", "LANG", "A"}


def test_all_cgroup_hierarchies_are_found_and_nothing_else(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "33 31 0:30 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
    )
    assert cgroups.hierarchies(table) == [
        Path("/sys/fs/cgroup/cpu"),
        Path("/sys/fs/cgroup/unified"),
    ]
