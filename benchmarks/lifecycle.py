# SPDX-License-Identifier: Apache-2.0
"""How long `gpudeck lab up` and `gpudeck lab install` take with everything built before."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.figures import Figure

ROUNDS = 3
NAME = "bench-up"
GROUP = "The lab"


def lab(*words: str, name: str) -> float:
    """Run `gpudeck lab …`, its progress on stderr; return the seconds it took."""
    program = Path(sys.executable).parent / "gpudeck"
    start = time.monotonic()
    subprocess.run([str(program), "lab", *words, "--name", name], check=True, stdout=sys.stderr)
    return time.monotonic() - start


def measure() -> list[Figure]:
    """A lab of its own, brought up, installed into and ended, again and again."""
    ups, installs, downs = [], [], []
    lab("up", name=NAME)  # Builds what is not in the cache.
    lab("down", name=NAME)
    for _ in range(ROUNDS):
        try:
            ups.append(lab("up", name=NAME))
            installs.append(lab("install", name=NAME))
        finally:
            downs.append(lab("down", name=NAME))
    return [
        Figure(key=key, group=GROUP, what=what, unit="s", values=values)
        for key, what, values in (
            ("lab_up", "`lab up`, two nodes, to all Ready and images on every node", ups),
            ("lab_install", "`lab install`, to all pods of gpudeck Ready", installs),
            ("lab_down", "`lab down`", downs),
        )
    ]
