# SPDX-License-Identifier: Apache-2.0
"""What the measured machine is, in words that name no machine."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

_FSYNCS = 50


def describe(folder: Path, kubernetes: str) -> dict[str, str]:
    """CPU, memory, kernel, disk, versions; `folder` is on the disk that the lab uses."""
    return {
        "CPU": f"{_first('/proc/cpuinfo', 'model name')}, {os.cpu_count()} logical",
        "memory": f"{int(_first('/proc/meminfo', 'MemTotal').split()[0]) / 1e6:.1f} GB",
        "kernel": platform.release(),
        "disk": f"4 KiB write and fsync in {_fsync_ms(folder):.2f} ms (median of {_FSYNCS})",
        "Kubernetes": kubernetes,
        "Python of this program": platform.python_version(),
        "gpudeck": _commit(),
    }


def _first(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def _fsync_ms(folder: Path) -> float:
    times = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(_FSYNCS):
            start = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def _commit() -> str:
    """The commit of this clone, with a plus if it has changes."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=8"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "not a git clone"
