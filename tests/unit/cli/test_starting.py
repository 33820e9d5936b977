# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends the command line in silence from its first import on."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_INTERRUPTED = """
import os, signal, sys

class Finder:
    left = int(sys.argv.pop(1))

    def find_spec(self, name, path=None, target=None):
        self.left -= 1
        if self.left == 0 and 'gpudeck.cli.starting' in sys.modules:
            os.kill(os.getpid(), signal.SIGINT)

from gpudeck.cli.starting import main
sys.meta_path.insert(0, Finder())
main()
"""
"""A command that gets Ctrl-C at one of its imports."""


def interrupted(position: int, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", _INTERRUPTED, str(position), *words]
    return subprocess.run(command, capture_output=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        ("get", "--kubeconfig", "/dev/null"),
        ("mig", "generate-config", "--all-models"),
        ("controller", "--help"),
        ("lab", "gpu", "--help"),
    ],
)
def test_ctrl_c_at_any_import_ends_it_in_silence(words: tuple[str, ...]) -> None:
    position, step = 1, 1
    while (done := interrupted(position, *words)).returncode == -signal.SIGINT:
        assert done.stderr == b"", position
        position, step = position + step, step + 3
    assert position > 100, "The last one, at no import any more, comes to its own end."
    assert b"Traceback" not in done.stderr
