# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts for the tests of the C library: made, turned and looked at.

A host has its own simulation folder and its own folder of device nodes, so that no test
needs anything in /dev. Plain files stand in for the nodes: the library only opens them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DESCRIPTIONS = Path(__file__).parent
REAL = os.environ.get("GPUDECK_REAL_NVML") == "1"
"""The contract tests run on the machine's own driver, and nothing is simulated."""


@dataclass
class Host:
    """One simulated host; `artifacts` is where the built library and tools lie."""

    artifacts: Path
    folder: Path
    devices: Path

    @classmethod
    def create(cls, artifacts: Path, root: Path, description: str) -> Host:
        host = cls(artifacts, root / "simulation", root / "dev")
        (host.devices / "nvidia-caps").mkdir(parents=True)
        (host.devices / "nvidiactl").touch()
        made = host.simctl("create", input=description)
        if made.returncode:
            raise ValueError(made.stderr)
        for card in host.show()["cards"]:
            (host.devices / f"nvidia{card['facts']['minor']}").touch()
        return host

    def simctl(self, verb: str, *words: str, input: str | None = None) -> Any:
        return subprocess.run(
            [self.artifacts / "simctl", verb, self.folder, *words],
            input=input, capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip

    def set(self, card: int | str, *assignments: str) -> None:
        done = self.simctl("set", str(card), *assignments)
        assert done.returncode == 0, done.stderr

    def show(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.simctl("show", "--json").stdout)
        return shown

    def state(self, card: int = 0) -> dict[str, Any]:
        state: dict[str, Any] = self.show()["cards"][card]["state"]
        return state

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "GPUDECK_SIMULATION": str(self.folder),
            "GPUDECK_SIMULATION_DEV": str(self.devices),
            "LD_LIBRARY_PATH": str(self.artifacts),
            **more,
        }

    def python(self, code: str, *words: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start another process on this host that runs `code` with NVML initialised."""
        preamble = "import sys, time, pynvml as n\nn.nvmlInit()\n"
        return self.process(*before, sys.executable, "-c", preamble + textwrap.dedent(code), *words)

    def process(self, *words: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words, env=self.environment(**more), text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def burn(self, *words: str, before: tuple[str, ...] = (), **more: str) -> Any:
        """A gpu-burn of this host; wait for its "holding" lines before looking at the cards."""
        return self.process(*before, str(self.artifacts / "gpu-burn"), *words, **more)


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """The output up to the line that holds `text`; fails when the process ends before."""
    seen = ""
    assert process.stdout is not None
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"ended before {text!r}: {seen}{process.stderr.read()}")  # type: ignore[union-attr]


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The process, killed at the end whatever happened."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def description(name: str, *replacements: tuple[str, str]) -> str:
    """One of the descriptions beside this file, with pieces of it replaced."""
    text = (DESCRIPTIONS / f"{name}.description").read_text()
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    return text
