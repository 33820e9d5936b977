# SPDX-License-Identifier: Apache-2.0
"""What `host.systemctl` asks of a host, of the tests' stand-in and of a real systemd alike.

The real one is the init process of namespaces of its own, with units of its own; it is asked
from another mount of its root, as a container does that has the host's root and its PIDs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.systemctl import Systemctl

PROGRAM = Path("/lib/systemd/systemd")
TOOLS = ("unshare", "nsenter", "chroot", "systemctl")
INIT = """
set -e
mount -t tmpfs tmpfs /sys/fs/cgroup
if [ "$1" = cgroup2 ]; then mount -t cgroup2 none /sys/fs/cgroup; else
  mkdir /sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
fi
mount -t tmpfs tmpfs /run
mkdir -p /run/units /run/host
printf '[Unit]\\nDescription=Nothing\\n' > /run/units/default.target
for name in a b; do
  printf '[Unit]\\nDefaultDependencies=no\\n[Service]\\nExecStart=/bin/sleep 1000\\n' \\
    > /run/units/$name.service
done
exec env -i container=test PATH=/usr/bin:/bin SYSTEMD_UNIT_PATH=/run/units \\
  /lib/systemd/systemd --system --log-target=console --log-level=err --show-status=no
"""
ASK = """
import asyncio, json, sys
from gpudeck import errors
from gpudeck.host import root, systemctl
place, verb, *units = sys.argv[1:]
try:
    found = asyncio.run(getattr(systemctl, verb)(root.Root(place), units))
    print(json.dumps({"units": found}))
except errors.GpudeckError as error:
    print(json.dumps({"reason": error.reason, "message": error.message}))
"""


class Host:
    """A host whose systemctl is asked, by words that come before the program that asks."""

    def __init__(self, place: str, *before: str) -> None:
        self._place = place
        self._before = before

    def ask(self, verb: str, *units: str) -> dict[str, Any]:
        """Call a function of `host.systemctl`; what it returned, or what it raised."""
        words = [*self._before, sys.executable, "-c", ASK, self._place, verb, *units]
        done = subprocess.run(words, check=True, capture_output=True, timeout=60)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(params=["stand-in", "systemd"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    if request.param == "stand-in":
        Systemctl(tmp_path, a="inactive", b="inactive")
        yield Host(str(tmp_path))
        return
    missing = [each for each in TOOLS if shutil.which(each) is None]
    if os.geteuid() != 0 or missing or not PROGRAM.exists():
        pytest.skip("needs root, systemd and util-linux")
    with real() as found:
        yield found


@contextlib.contextmanager
def real() -> Iterator[Host]:
    """A systemd of its own, which sees no process and no control group but its own."""
    hierarchy = Path("/sys/fs/cgroup")
    is_second = (hierarchy / "cgroup.controllers").exists()
    group = (hierarchy if is_second else hierarchy / "systemd") / f"gpudeck-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    join = f'echo $BASHPID > {group}/cgroup.procs && exec unshare "$@"'
    apart = ("-C", "-p", "-m", "-u", "-i", "-f", "--kill-child", "--mount-proc")
    kind = "cgroup2" if is_second else "cgroup"
    child = subprocess.Popen(
        ["bash", "-c", join, "join", *apart, "bash", "-c", INIT, "init", kind],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        init = _init(child)
        mount = 'mount --rbind / /run/host && exec "$@"'
        before = (
            "nsenter",
            "-t",
            str(init),
            "-m",
            "-p",
            "unshare",
            "-m",
            "bash",
            "-c",
            mount,
            "ask",
        )
        yield Host("/run/host", *before)
    finally:
        child.kill()
        child.wait()
        _remove(group)


def _init(child: subprocess.Popen[bytes]) -> int:
    """The init process, once it serves; skips where this machine does not let it."""
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    until = time.monotonic() + 30
    while child.poll() is None and time.monotonic() < until:
        pids = children.read_text().split()
        if pids and Path(f"/proc/{pids[0]}/root/run/systemd/private").exists():
            return int(pids[0])
        time.sleep(0.05)
    pytest.skip("systemd does not start in namespaces of this machine")


def _remove(group: Path) -> None:
    """Remove the group once its processes have ended."""
    until = time.monotonic() + 10
    while group.exists() and time.monotonic() < until:
        with contextlib.suppress(OSError):
            for folder in sorted(group.rglob("*"), reverse=True):
                if folder.is_dir():
                    folder.rmdir()
            group.rmdir()
        time.sleep(0.05)


def test_units_are_told_started_and_stopped(host: Host) -> None:
    units = ("a.service", "b.service", "gone.service")
    assert host.ask("running", *units) == {"units": []}
    assert host.ask("start", "b.service") == {"units": None}
    assert host.ask("running", *units) == {"units": ["b.service"]}
    assert host.ask("stop", "b.service") == {"units": None}
    assert host.ask("running", *units) == {"units": []}


@pytest.mark.parametrize(
    ("verb", "reason"), [("start", "UnitNotStarted"), ("stop", "UnitNotStopped")]
)
def test_a_unit_that_is_not_there_is_named(host: Host, verb: str, reason: str) -> None:
    found = host.ask(verb, "gone.service")
    assert found["reason"] == reason
    assert f"Failed to {verb} gone.service: Unit gone.service not" in found["message"]
