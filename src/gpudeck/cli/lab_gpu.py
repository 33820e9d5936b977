# SPDX-License-Identifier: Apache-2.0
"""`gpudeck lab gpu NODE INDEX VERB …`: the knobs of one simulated card.

A knob says what happens to the hardware, never what gpudeck makes of it. Every command is
one call of `gpudeck.lab.simulation`; the host tree follows where the kernel would notice.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from gpudeck import errors
from gpudeck.lab import hardware, report, state
from gpudeck.lab.simulation import Simulation
from gpudeck.lab.state import Folder, Node

HOTTEST = 150
"""Degrees Celsius; no card reports more."""


@dataclasses.dataclass(frozen=True)
class Card:
    """One card of a running node."""

    folder: Folder
    node: Node
    address: str
    artifacts: Path

    @property
    def knobs(self) -> Simulation:
        """The simulation that the card belongs to."""
        return hardware.simulated(self.folder, self.node, self.artifacts)


@click.group(subcommand_metavar="VERB [ARGS]...")
@click.option(
    "--name", default="lab", show_default=True, envvar="GPUDECK_LAB", help="Name of the lab."
)
@click.argument("node")
@click.argument("index", type=int)
@click.pass_context
def gpu(ctx: click.Context, name: str, node: str, index: int) -> None:
    """Turn a knob of a node's card: gpudeck lab gpu node-0 3 xid 79."""
    folder = state.folder(name)
    lab = state.running(folder)
    found = lab.node(node)
    if found.machine is None:
        raise errors.InvalidError(
            f"NODE: {node} has no cards; allowed: {', '.join(each.name for each in lab.workers())}",
            reason="NodeWithoutCards",
            field="NODE",
        )
    report.init_of(lab, node)
    address = hardware.card_address(found, index)
    ctx.obj = Card(folder, found, address, Path(lab.artifacts))


@gpu.command()
@click.argument("number", type=click.IntRange(1, 1023))
@click.pass_obj
def xid(card: Card, number: int) -> None:
    """Raise an Xid event."""
    card.knobs.xid(card.address, number)


@gpu.command()
@click.argument("count", type=click.IntRange(0, (1 << 63) - 1))
@click.option("--corrected", is_flag=True, help="Corrected errors instead of uncorrected ones.")
@click.option("--aggregate", is_flag=True, help="Of the card's life instead of since the reset.")
@click.pass_obj
def ecc(card: Card, count: int, corrected: bool, aggregate: bool) -> None:
    """Set the count of memory errors."""
    card.knobs.ecc(card.address, count, corrected=corrected, aggregate=aggregate)


@gpu.command()
@click.option("--unplug", is_flag=True, help="Take the card out of /sys and /proc too.")
@click.pass_obj
def lose(card: Card, unplug: bool) -> None:
    """Let the card fall off the bus (Xid 79)."""
    hardware.lose(card.folder, card.node, card.artifacts, card.address, unplug=unplug)


@gpu.command(name="return")
@click.pass_obj
def return_(card: Card) -> None:
    """Put a lost card back."""
    hardware.return_(card.folder, card.node, card.artifacts, card.address)


@gpu.command()
@click.argument("degrees", metavar="DEGREES|auto")
@click.pass_obj
def temperature(card: Card, degrees: str) -> None:
    """Set the temperature in Celsius; auto lets it follow the load."""
    if degrees != "auto" and not (degrees.isdigit() and int(degrees) <= HOTTEST):
        allowed = f"auto or a whole number from 0 to {HOTTEST}"
        raise errors.InvalidError(
            f"DEGREES: {degrees!r} is not a temperature; allowed: {allowed}",
            field="DEGREES",
            allowed=allowed,
        )
    card.knobs.temperature(card.address, None if degrees == "auto" else int(degrees))


@gpu.command()
@click.option(
    "--pid",
    type=click.IntRange(1, (1 << 22)),
    default=1,
    show_default=True,
    help="Process it pretends to be.",
)
@click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(0, 1 << 24),
    default=1024,
    show_default=True,
    help="MiB.",
)
@click.option(
    "--percent", type=click.IntRange(0, 100), default=100, show_default=True, help="Utilisation."
)
@click.pass_obj
def busy(card: Card, pid: int, memory_mib: int, percent: int) -> None:
    """Pretend that a process works on the card."""
    card.knobs.busy(card.address, pid=pid, memory_mib=memory_mib, percent=percent)


@gpu.command()
@click.pass_obj
def idle(card: Card) -> None:
    """End every pretended process on the card."""
    card.knobs.idle(card.address)


@gpu.command()
@click.argument("code", type=click.IntRange(0, 999))
@click.option("--function", default=None, help="Only this NVML function.")
@click.pass_obj
def fail(card: Card, code: int, function: str | None) -> None:
    """Let the card's NVML calls answer CODE; 0 ends it."""
    card.knobs.fail(card.address, code, function=function)


@gpu.command()
@click.option("--function", default=None, help="Only this NVML function.")
@click.pass_obj
def hang(card: Card, function: str | None) -> None:
    """Let the card's NVML calls block until clear."""
    card.knobs.hang(card.address, function=function)


@gpu.command()
@click.argument("milliseconds", type=click.IntRange(0, 600_000))
@click.pass_obj
def slow(card: Card, milliseconds: int) -> None:
    """Let each of the card's NVML calls take so long; 0 ends it."""
    card.knobs.slow(card.address, milliseconds)


@gpu.command()
@click.pass_obj
def clear(card: Card) -> None:
    """End failing, hanging, slowness and fixed readings.

    Counters and losses stay.
    """
    card.knobs.clear(card.address)


@gpu.command()
@click.pass_obj
def show(card: Card) -> None:
    """Print what the simulation holds of the card, as JSON."""
    shown = card.knobs.show()["cards"]
    mine = next(each for each in shown if each["facts"]["pci"] == card.address)
    click.echo(json.dumps(mine, indent=2))
