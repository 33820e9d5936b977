# SPDX-License-Identifier: Apache-2.0
"""What every command has in common: its help, and what becomes of its output."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from gpudeck.cli.main import main

GENERATE = [sys.executable, "-c", "from gpudeck.cli.starting import main; main()"]
GENERATE += ["mig", "generate-config", "--all-models"]


def groups(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The words that lead to each group of commands."""
    if isinstance(command, click.Group):
        yield path
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from groups(inner, (*path, name))


def test_help_says_what_each_command_does_in_whole_sentences() -> None:
    found = list(groups(main, ()))
    assert ("lab", "node") in found
    for path in found:
        shown = CliRunner().invoke(main, [*path, "--help"], terminal_width=80)
        assert shown.exit_code == 0
        assert "..." not in shown.output.replace("]...", ""), path


def test_output_that_cannot_be_written_is_told_in_a_line() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(GENERATE, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    said = "error: the standard output cannot be written: No space left on device\n"
    assert done.stderr == said


def test_who_has_read_enough_is_told_nothing() -> None:
    with subprocess.Popen(
        GENERATE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == -signal.SIGPIPE
