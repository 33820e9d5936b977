# SPDX-License-Identifier: Apache-2.0
"""The console script `gpudeck`: commands for people, and the processes of the chart.

A command's module is imported only when it runs, so `gpudeck get` never loads gRPC
and the node agent never loads tables. Exit codes: 0 done, 1 failed with one line
that says why, 2 wrong usage. Ctrl-C, and a reader of the output who has enough, end it in
silence by their signals.
"""

from __future__ import annotations

import importlib
import signal
from typing import Any

import click

import gpudeck
from gpudeck.cli import starting
from gpudeck.errors import GpudeckError, InvalidError

_COMMANDS = {
    "get": ("gpudeck.cli.get", "Show nodes, cards, classes and who holds what."),
    "explain": ("gpudeck.cli.explain", "Say why a pod waits for a card, or which it holds."),
    "cordon": ("gpudeck.cli.cordon", "Keep new pods off a card, or end those that hold it."),
    "uncordon": ("gpudeck.cli.cordon", "Let pods have a card again."),
    "cleanup": ("gpudeck.cli.cleanup", "Take off all Nodes what an uninstalled gpudeck wrote."),
    "mig": ("gpudeck.cli.mig", "Partition the cards of this host as a config says."),
    "lab": ("gpudeck.cli.lab", "Run a real Kubernetes with simulated GPUs on this machine."),
}
_PROCESSES = {
    "controller": "The cluster's controller (started by the chart).",
    "node-agent": "Finds the cards of a node (started by the chart).",
    "dra-plugin": "Serves the kubelet (started by the chart).",
    "adapter": "Serves one maker's cards of a node (started by the chart).",
    "device-plugin": "Offers a node's cards to its kubelet (started by the chart).",
    "mps-control": "Keeps the MPS daemons of a node's NVIDIA cards (started by the chart).",
    "features": "Finds what nodes have and labels them: worker, master, gc (started by the chart).",
    "gfd": "Keeps the labels of a node's NVIDIA cards (started by the chart).",
    "mig-manager": "Partitions a node's cards as its label says (started by the chart).",
}


class Commands(click.Group):
    """Resolves command names without importing them, and prints errors as one sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *_PROCESSES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _PROCESSES:
            processes = importlib.import_module("gpudeck.cli.processes")
            found: click.Command = processes.command(cmd_name, _PROCESSES[cmd_name])
            return found
        if cmd_name in _COMMANDS:
            module = importlib.import_module(_COMMANDS[cmd_name][0])
            command: click.Command = getattr(module, cmd_name)
            return command
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the tables above: `--help` imports none of them."""
        people = [(name, text) for name, (_, text) in _COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(people)
        with formatter.section("Processes"):
            formatter.write_dl(list(_PROCESSES.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GpudeckError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(2 if isinstance(error, InvalidError) else 1)
        except KeyboardInterrupt:
            starting.end_by(signal.SIGINT)
        except BrokenPipeError:
            starting.end_by(signal.SIGPIPE)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(gpudeck.__version__, prog_name="gpudeck")
def main() -> None:
    """GPU management for Kubernetes."""
