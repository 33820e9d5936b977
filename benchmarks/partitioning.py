# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.partitioning`: a node's cards partitioned by its label, part by part.

From the label of the Node to its state `success`, and to the partitions in the kubelet's list.
mig-manager, device plugin and gfd are real processes on one simulated host with eight cards;
what is theirs in a cluster, DaemonSets, kubelet and evictions, is done here at once (`Node`),
so the figures are of our own programs. As root: device nodes are made.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from typing import Any

import click
from tests.scenario.repartitioning import standins

from benchmarks import hosts, writing
from benchmarks.figures import Figure, signed, started
from gpudeck.api import labels, resources

ROUNDS = 5
GROUP = "Device plugin mode: a node partitioned by its label"
GPU, SMALL = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
CUT, WHOLE = "all-1g.10gb", "all-disabled"
PARTITIONS = 56
PARTS = {
    "look": "label to drain: the cards are read and planned for",
    "drain": "drain of one pod that holds a card, evicted at once",
    "pause": "pause: device plugin and gfd end",
    "change": "change: 8 cards cut into 56 partitions, and read anew",
}


class Node:
    """What a cluster does to the node: workloads follow their labels, pods go when asked to."""

    def __init__(self, host: hosts.Host) -> None:
        self.host = host
        self.pods = standins.Kubelet(host.folder / "all-pods.sock")
        self.moments: dict[str, float] = {}
        """When the Node first said a phase of the change, on the clock of `time.perf_counter`."""
        self._programs: dict[str, hosts.Program] = {}
        self._changed = asyncio.Event()
        host.api.store.on_change(self._noted)
        self.label({labels.ACTIVE_MODE: labels.MODE_DEVICE_PLUGIN})

    @property
    def _found(self) -> dict[str, Any]:
        found: dict[str, Any] = self.host.api.objects(resources.NODE).get(hosts.NODE, {})
        return found

    def known(self, field: str) -> dict[str, str]:
        """Labels or annotations of the Node."""
        found: dict[str, str] = self._found.get("metadata", {}).get(field) or {}
        return found

    def label(self, wanted: dict[str, str]) -> None:
        """Label the Node as an administrator does."""
        node = json.loads(json.dumps(self._found))
        node["metadata"]["labels"] = {**self.known("labels"), **wanted}
        self.host.api.put(resources.NODE, node)

    def _noted(self) -> None:
        change = self.known("annotations").get(labels.MIG_CHANGE)
        if change is not None:
            self.moments.setdefault(json.loads(change)["phase"], time.perf_counter())
        self._changed.set()

    async def run(self) -> None:
        """Follow the Node, for ever."""
        try:
            while True:
                self._changed.clear()
                drain = json.loads(self.known("annotations").get(labels.DRAIN, "{}"))
                for each in drain.get("pods", ()):
                    self.pods.pods.pop(f"{each['namespace']}/{each['name']}", None)
                await asyncio.gather(*map(self._follow, standins.WORKLOADS))
                await self._changed.wait()
        finally:
            for program in self._programs.values():
                await program.kill()

    async def _follow(self, workload: str) -> None:
        paused = self.known("labels").get(labels.DEPLOY + workload) == labels.PAUSED_FOR_MIG
        key = f"{hosts.NAMESPACE}/{workload}"
        if paused and workload in self._programs:
            await self._programs.pop(workload).stop()
            self.pods.pods.pop(key, None)
        elif not paused and workload not in self._programs:
            words, options = _commands(self.host)[workload]
            self._programs[workload] = await self.host.start(words, **options)
            self.pods.pods[key] = standins.Pod(container=standins.WORKLOADS[workload])


def _commands(host: hosts.Host) -> dict[str, tuple[str, dict[str, Any]]]:
    mixed = {"mig-strategy": "mixed"}
    return {
        "device-plugin": ("device-plugin", {**host.plugin(), **mixed}),
        "gpu-feature-discovery": ("gfd", mixed),
    }


async def measure(host: hosts.Host) -> list[Figure]:
    """All cards cut up and made whole again, some times."""
    node = Node(host)
    values: dict[str, list[float]] = {}
    await node.pods.start()
    try:
        async with standins.running(node.run()):
            await host.offers(GPU, hosts.CARDS)
            async with host.running("mig-manager", **{"pod-resources": node.pods.socket}):
                for _ in range(ROUNDS):
                    await _cut(node, values)
                    await _mend(node, values)
    finally:
        await node.pods.stop()
    return [_figure(key, about, values[key]) for key, about in _about().items()]


async def _cut(node: Node, values: dict[str, list[float]]) -> None:
    card = sorted(node.host.kubelet.devices(GPU) or {})[0]
    node.pods.pods["team/trains"] = standins.Pod([card])
    begin = await _chosen(node, CUT)
    seen = await node.host.offers(SMALL, PARTITIONS)
    steps = [begin, *(node.moments[each] for each in ("Draining", "Pausing", "Changing", "Done"))]
    for name, (before, after) in zip(PARTS, itertools.pairwise(steps), strict=True):
        values.setdefault(name, []).append(after - before)
    values.setdefault("success", []).append(steps[-1] - begin)
    values.setdefault("back", []).append(seen - steps[-1])


async def _mend(node: Node, values: dict[str, list[float]]) -> None:
    begin = await _chosen(node, WHOLE)
    await node.host.offers(GPU, hosts.CARDS)
    values.setdefault("whole", []).append(node.moments["Done"] - begin)


async def _chosen(node: Node, config: str) -> float:
    """Choose a config and wait until it is done; when it was chosen."""
    node.moments.clear()
    begin = time.perf_counter()
    node.label({labels.MIG_CONFIG: config})
    # The outcome of the config before stands there until the change begins.
    await hosts.moment(lambda: "Changing" in node.moments)
    node.moments.pop("Done", None)
    await hosts.moment(lambda: node.known("labels").get(labels.MIG_STATE) == "success")
    return begin


def _about() -> dict[str, str]:
    return {
        "success": f"label {CUT} to state success, 8 cards",
        **PARTS,
        "back": "state success to 56 partitions in the kubelet's list: device plugin starts",
        "whole": f"label {WHOLE} to state success, 8 cards of 56 partitions",
    }


def _figure(key: str, what: str, values: list[float]) -> Figure:
    return Figure(key=f"mig_label_{key}", group=GROUP, what=what, unit="s", values=values)


@click.command()
@click.option("--record/--no-record", default=True, help="Write results.json and README.md.")
def main(record: bool) -> None:
    """Measure how a node is partitioned by its label."""
    before = started()
    found = signed(hosts.run(measure), "python -m benchmarks.partitioning", before)
    writing.tell(found, record=record)


if __name__ == "__main__":
    main()
