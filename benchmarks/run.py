# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.run [--lab NAME] [--only PART]...`: measure, and write the tables.

Without --lab a lab named `bench` is brought up for it and ended afterwards. Needs root, as
the lab does, and a machine that has little else to do.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence

import click
import msgspec
import uvloop

from benchmarks import claims, footprint, lifecycle, machine, pods, starts, writing
from benchmarks.figures import Figure, signed, started
from benchmarks.world import World
from gpudeck.errors import GpudeckError
from gpudeck.kube.client import Client
from gpudeck.lab import hardware, state

OWN_LAB = "bench"
LAB_UP = "lab"
PARTS: dict[str, Callable[[World], Awaitable[list[Figure]]]] = {
    "calls": claims.measure,
    "plugin": starts.plugin,
    "agent": starts.agent,
    "pods": pods.measure,
    "footprint": footprint.measure,
}
NAMES = (LAB_UP, *PARTS)


@click.command()
@click.option("--lab", "lab_name", help=f"A running lab; default: one named {OWN_LAB} is made.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Only this; repeatable.")
def main(lab_name: str | None, only: Sequence[str]) -> None:
    """Measure gpudeck and write results.json and README.md."""
    wanted = only or NAMES
    try:
        if LAB_UP in wanted:
            _keep(LAB_UP, lifecycle.measure)
        if set(wanted) & set(PARTS):
            _in_lab(lab_name, [name for name in PARTS if name in wanted])
    except GpudeckError as error:
        raise click.ClickException(str(error)) from error


def _in_lab(name: str | None, parts: Sequence[str]) -> None:
    if name is not None:
        uvloop.run(_measure(name, parts))
        return
    lifecycle.lab("up", name=OWN_LAB)
    try:
        lifecycle.lab("install", name=OWN_LAB)
        uvloop.run(_measure(OWN_LAB, parts))
    finally:
        lifecycle.lab("down", name=OWN_LAB)


async def _measure(name: str, parts: Sequence[str]) -> None:
    folder = state.folder(name)
    lab = state.running(folder)
    cards = {node.name: len(hardware.describe(node).cards) for node in lab.workers()}
    node = max(cards, key=lambda each: cards[each])
    async with await Client.connect(str(folder.kubeconfig)) as api:
        world = World(folder, lab, api, node, cards[node])
        version = msgspec.json.decode(await api.raw("GET", "/version"))["gitVersion"]
        about = machine.describe(folder.path, version)
        for part in parts:
            before = started()
            sys.stderr.write(f"measuring {part} …\n")
            found = await PARTS[part](world)
            writing.add(signed(found, _command(part), before), machine=about)


def _keep(part: str, measure: Callable[[], list[Figure]]) -> None:
    before = started()
    writing.add(signed(measure(), _command(part), before))


def _command(part: str) -> str:
    return f"python -m benchmarks.run --only {part}"


if __name__ == "__main__":
    main()
