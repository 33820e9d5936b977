# SPDX-License-Identifier: Apache-2.0
"""Results as JSON and as tables of README.md. Pure, but for `tell`, `add` and `keep`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from benchmarks import peers
from benchmarks.figures import Figure, shown, spread

FOLDER = Path(__file__).parent
"""Where the results stand."""
BEGIN, END = "<!-- figures: written by benchmarks.run -->", "<!-- end of figures -->"


class Results(msgspec.Struct, kw_only=True):
    """The file results.json."""

    machine: dict[str, str] = {}
    figures: list[Figure] = []


def load(path: Path) -> Results:
    """Read the file; empty results if there is none."""
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else Results()


def merge(old: Sequence[Figure], new: Sequence[Figure]) -> list[Figure]:
    """The new figures instead of all that the same commands measured before."""
    measured = {each.command for each in new}
    return [each for each in old if each.command not in measured] + list(new)


def keep(results: Results, folder: Path) -> None:
    """Write results.json and the tables of README.md."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=1)
    (folder / "results.json").write_bytes(text + b"\n")
    page = folder / "README.md"
    page.write_text(placed(page.read_text(), tables(results)))


def tell(figures: Sequence[Figure], *, record: bool) -> None:
    """Print the figures, and write them to the others if they are to be kept."""
    for each in figures:
        values = ", ".join(f"{value:.3g}" for value in each.values)
        click.echo(f"{each.what}: {values} {each.unit}")
    if record:
        add(figures)


def add(figures: Sequence[Figure], *, machine: Mapping[str, str] | None = None) -> None:
    """Write the figures, and what is new of the machine, to those that there are."""
    results = load(FOLDER / "results.json")
    results.figures = merge(results.figures, figures)
    results.machine |= machine or {}
    keep(results, FOLDER)


def placed(page: str, text: str) -> str:
    """The page with `text` between the marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


def tables(results: Results) -> str:
    """One table a group, in the order of `ORDER`, and the machine before them."""
    parts = ["Machine:", "", *(f"- {name}: {value}" for name, value in results.machine.items())]
    groups = list(dict.fromkeys(each.group for each in results.figures))
    for group in sorted(groups, key=_order):
        figures = [each for each in results.figures if each.group == group]
        parts += ["", f"## {group}", "", *_told(figures), "", *_table(figures)]
    return "\n".join(parts) + "\n"


ORDER = (
    "Calls of the kubelet, ms",
    "Start",
    "Device plugin mode: start and changes",
    "Device plugin mode: a node partitioned by its label",
    "Device plugin mode: calls, ms",
    "Device plugin mode: memory and idle CPU",
    "Pods",
    "Memory and idle CPU",
    "Scale",
    "Node features",
    "Admission",
    "The lab",
)


def _order(group: str) -> int:
    return ORDER.index(group) if group in ORDER else len(ORDER)


def _told(figures: Sequence[Figure]) -> Iterable[str]:
    """The commands of a group, each with its day and the machine's load then."""
    for command in dict.fromkeys(each.command for each in figures):
        first = next(each for each in figures if each.command == command)
        yield f"- `{command}`, {first.when}, load average before it {shown(first.load)}."


def _table(figures: Sequence[Figure]) -> Iterable[str]:
    yield "| what | gpudeck | n | peer | ratio |"
    yield "|---|---|---|---|---|"
    for each in figures:
        peer = peers.FIGURES.get(each.key)
        unit = f" {each.unit}" if each.unit else ""
        note = f" ({each.note})" if each.note else ""
        other = f"{peer.name}: {peer.text}{unit}" if peer else ""
        ratio = f"{each.median / peer.median:.2f}" if peer else ""
        yield (
            f"| {each.what}{note} | {spread(each.values)}{unit} | {len(each.values)} "
            f"| {other} | {ratio} |"
        )
