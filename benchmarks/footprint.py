# SPDX-License-Identifier: Apache-2.0
"""What the processes take while nothing happens: memory, threads, CPU time of a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from benchmarks import processes
from benchmarks.figures import Figure
from benchmarks.world import World

IDLE_SECONDS = 60.0
ROUNDS = 3
GROUP = "Memory and idle CPU"
_POD = ("dra-plugin", "adapter nvidia", "adapter nvidia, its library process")
_NODE_SET = ("node-agent", *_POD)

Sizes = dict[str, processes.Size]


async def measure(world: World) -> list[Figure]:
    """One value a minute and process, of the node with the most cards and the controller."""
    await world.settled()
    rounds: list[Sizes] = []
    for _ in range(ROUNDS):
        chosen = [
            each
            for each in processes.found(world.folder.cgroup)
            if each.node == world.node or each.name == "controller"
        ]
        before = {each.pid: processes.size(each.pid) for each in chosen}
        await asyncio.sleep(IDLE_SECONDS)
        rounds.append(
            {each.name: _since(processes.size(each.pid), before[each.pid]) for each in chosen}
        )
    return list(_figures(rounds))


def _since(after: processes.Size, before: processes.Size) -> processes.Size:
    return processes.Size(
        pss=after.pss,
        rss=after.rss,
        anonymous=after.anonymous,
        threads=after.threads,
        cpu_seconds=after.cpu_seconds - before.cpu_seconds,
    )


def _figures(rounds: list[Sizes]) -> Iterator[Figure]:
    for name in sorted(rounds[0]):
        sizes = [each[name] for each in rounds]
        yield from _rows(name.replace(" ", "_").replace(",", ""), name, sizes)
    pod = [[each[name] for name in _POD if name in each] for each in rounds]
    yield from _rows(
        "plugin_adapter", "the pod nvidia-adapter", [processes.summed(each) for each in pod]
    )
    together = [[each[name] for name in _NODE_SET if name in each] for each in rounds]
    yield from _rows("node", "all of one node", [processes.summed(each) for each in together])


def _rows(key: str, name: str, sizes: list[processes.Size]) -> Iterator[Figure]:
    for what, unit, values in (
        ("PSS", "MB", [each.pss for each in sizes]),
        ("RSS", "MB", [each.rss for each in sizes]),
        ("anonymous memory", "MB", [each.anonymous for each in sizes]),
        ("threads", "", [float(each.threads) for each in sizes]),
        ("CPU s in 60 idle s", "s", [each.cpu_seconds for each in sizes]),
    ):
        yield Figure(
            key=f"{key}_{what.split()[0].lower()}",
            group=GROUP,
            what=f"{name}: {what}",
            unit=unit,
            values=values,
        )
