# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.features [--nodes N]`: node features of one node, and of a large cluster.

A real etcd and kube-apiserver; no kubelet runs. One simulated host with eight cards and the usual
4,500 options of a kernel is read by the real worker; N Nodes have a NodeFeature of its size each.
Master and gc are the real programs, processes of their own. Memory and idle CPU of the three
stand in `benchmarks.node --only footprint`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import uvloop
import yaml
from tests.support import realapiserver

from benchmarks import hosts, processes, writing
from benchmarks.figures import Figure, percentile, signed, started
from gpudeck.api import labels
from gpudeck.api.meta import Meta
from gpudeck.api.resources import (
    NAMESPACE,
    NODE,
    NODE_FEATURE,
    NODE_FEATURE_GROUP,
    NODE_FEATURE_RULE,
    Resource,
)
from gpudeck.errors import NotFoundError
from gpudeck.features import worker
from gpudeck.features.settings import Settings
from gpudeck.features.sources import reading
from gpudeck.host.root import Root
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.watching import Change
from gpudeck.lab import hosttree, machine, tree

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts/gpudeck"
RULE = ROOT / "examples/10-node-features/rule.yaml"
GROUP = "Node features"
SYSTEM, ONE = "gpudeck-system", "node-one"
ROUNDS, AT_ONCE, OPTIONS = 6, 16, 4500
CHANGES, CHANGES_PER_SECOND = 50, 2.0
LIMIT_SECONDS, LIMIT_SECONDS_A_NODE = 120.0, 0.4
"""At 300 nodes 240 s. Most of it is the API server's, which takes 0.1 s of CPU a NodeFeature."""
CARD = "feature.node.kubernetes.io/pci-1200_1d0f.present"
NVIDIA = [
    {"feature": "pci.device", "matchExpressions": {"vendor": {"op": "In", "value": ["10de"]}}}
]
CRD = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
    namespaced=False,
)  # fmt: skip


@click.command()
@click.option("--nodes", default=300, show_default=True, help="Nodes of the large cluster.")
@click.option("--record/--no-record", default=True, help="Write results.json and README.md.")
def main(nodes: int, record: bool) -> None:
    """Measure node features; ends within the time that LIMIT_SECONDS states, or fails."""
    programs = realapiserver.find()
    if programs is None:
        raise click.ClickException("the programs of Kubernetes are not built; run: make programs")
    before = started()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        realapiserver.running(programs) as kubeconfig,
    ):
        try:
            found = uvloop.run(_measured(kubeconfig, Path(name), nodes))
        except TimeoutError as error:
            raise click.ClickException("the machine is too busy, or something hangs") from error
    command = f"python -m benchmarks.features --nodes {nodes}"
    writing.tell(signed(found, command, before), record=record)


async def _measured(kubeconfig: str, host: Path, nodes: int) -> list[Figure]:
    _write_host(host)
    limit = LIMIT_SECONDS + nodes * LIMIT_SECONDS_A_NODE
    async with asyncio.timeout(limit), await Client.connect(kubeconfig) as api:
        await _definitions(api)
        _say("one node …")
        one = await _one_node(api, kubeconfig, host)
        return [*one, *await _large(api, kubeconfig, host, nodes)]


def _say(what: str) -> None:
    """Tell what is measured now, since a busy machine takes minutes."""
    sys.stderr.write(f"{what}\n")


def _figure(key: str, what: str, values: list[float], unit: str = "s", note: str = "") -> Figure:
    return Figure(
        key=f"features_{key}", group=GROUP, what=what, unit=unit, values=values, note=note
    )


# The host and the cluster


def _write_host(host: Path) -> None:
    """The files of a host with eight cards; device nodes, which no feature is made of, are not."""
    below = hosttree.describe(machine.load(hosts.MACHINE), boot_id="bench")
    tree.apply({p: each for p, each in below.items() if not isinstance(each, tree.Device)}, host)
    with next((host / "boot").iterdir()).open("a") as config:
        for index in range(OPTIONS):
            config.write(f"CONFIG_SOME_OTHER_OPTION_{index}={'ym'[index % 2]}\n")


@contextlib.contextmanager
def _another_card(host: Path) -> Any:
    address = "0000:f0:00.0"
    folder, link = host / "sys/devices/pci0000:f0", host / "sys/bus/pci/devices" / address
    (folder / address).mkdir(parents=True)
    for name, value in (("class", "0x120000"), ("vendor", "0x1d0f"), ("device", "0x7064")):
        (folder / address / name).write_text(value + "\n")
    link.symlink_to(f"../../../devices/pci0000:f0/{address}")
    try:
        yield
    finally:
        link.unlink()
        shutil.rmtree(folder)


async def _definitions(api: Client) -> None:
    for path in sorted((CHART / "crds").glob("nfd*.yaml")):
        await api.create(CRD, yaml.safe_load(path.read_text()), Meta)
    await api.create(NAMESPACE, {"metadata": {"name": SYSTEM}}, Meta)
    await _until(lambda: _serves(api))
    await api.apply(NODE_FEATURE_RULE, yaml.safe_load(RULE.read_text()), Meta, manager="bench")
    group = {
        "metadata": {"name": "gpus", "namespace": SYSTEM},
        "spec": {"featureGroupRules": [{"name": "gpu", "matchFeatures": NVIDIA}]},
    }
    await api.apply(NODE_FEATURE_GROUP, group, Meta, manager="bench")


async def _serves(api: Client) -> bool:
    try:
        for kind in (NODE_FEATURE, NODE_FEATURE_RULE, NODE_FEATURE_GROUP):
            await api.list(kind, Meta)
    except NotFoundError:  # A definition is served some time after it is made.
        return False
    return True


async def _until(check: Callable[[], Awaitable[bool]], seconds: float = 0.5) -> None:
    while not await check():  # noqa: ASYNC110
        await asyncio.sleep(seconds)


@contextlib.asynccontextmanager
async def _running(role: str, kubeconfig: str, **options: Any) -> AsyncIterator[hosts.Program]:
    program = hosts.Program()
    await program.start("features", role, kubeconfig=kubeconfig, namespace=SYSTEM, **options)
    try:
        yield program
    finally:
        await program.kill()


class Watched:
    """What is asked of one kind of object, again at each change."""

    def __init__(self, api: Client, kind: Resource) -> None:
        self.cache: Cache[Meta] = Cache(api, kind, Meta)
        self._more = asyncio.Event()

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[Watched]:
        """Follow inside the block."""
        task = asyncio.create_task(self.cache.run())
        await self.cache.synced()
        self.cache.subscribe(self._changed)
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _changed(self, _change: Change[Meta]) -> None:
        self._more.set()

    async def moment(self, check: Callable[[], bool]) -> float:
        """When `check` was first seen to hold, on the clock of `time.perf_counter`."""
        while not check():
            self._more.clear()
            await self._more.wait()
        return time.perf_counter()

    def labels(self, name: str) -> dict[str, str]:
        """The labels of an object; none of one that is not there."""
        held = self.cache.objects.get(name)
        return (held.metadata.labels if held else None) or {}


# One node


async def _one_node(api: Client, kubeconfig: str, host: Path) -> list[Figure]:
    await api.create(NODE, {"metadata": {"name": ONE}}, Meta)
    options = {"node-name": ONE, "host-root": host, "host-root-on-node": "/mnt/host"}
    begun, appeared, gone = [], [], []
    async with Watched(api, NODE_FEATURE).following() as features:
        for _ in range(ROUNDS):
            async with _running("worker", kubeconfig, **options) as program:
                seen = await features.moment(lambda: f"{SYSTEM}/{ONE}" in features.cache.objects)
                begun.append(seen - program.started)
            await api.delete(NODE_FEATURE, ONE, namespace=SYSTEM)
            await features.moment(lambda: not features.cache.objects)
    async with (
        Watched(api, NODE).following() as nodes,
        _running("worker", kubeconfig, **options),
        _running("master", kubeconfig, **{"absent-seconds": 0}),
    ):
        await nodes.moment(lambda: "example.com/nvidia-cards" in nodes.labels(ONE))
        for _ in range(ROUNDS):
            with _another_card(host):
                begin = time.perf_counter()
                appeared.append(await nodes.moment(lambda: CARD in nodes.labels(ONE)) - begin)
            begin = time.perf_counter()
            gone.append(await nodes.moment(lambda: CARD not in nodes.labels(ONE)) - begin)
    await api.delete(NODE, ONE)
    looked = "without events of the kernel the bus is looked at each second"
    return [
        _figure("start", "worker: exec to its NodeFeature on the API server", begun),
        _figure("card", "PCI card appears to its label on the Node", appeared, note=looked),
        _figure("no_card", "PCI card gone to its label gone", gone, note=looked),
    ]


# A large cluster


async def _large(api: Client, kubeconfig: str, host: Path, nodes: int) -> list[Figure]:
    found = reading.read(Root(host), reading.Wanted(tuple(reading.SOURCES)))
    spec = worker.describe(found, Settings(node_name=ONE)).spec
    about = f"{nodes} nodes, a NodeFeature of {len(msgspec.json.encode(spec)) // 1000} kB each"
    _say(f"making {about} …")
    await _fill(api, spec, nodes)
    _say("master …")
    port = _free_port()
    options = {"absent-seconds": 0, "page-size": 100, "health-port": port}
    async with (
        Watched(api, NODE).following() as seen,
        _running("master", kubeconfig, **options) as master,
    ):

        def whole() -> bool:
            return all("example.com/gpu-server" in seen.labels(_name(i)) for i in range(nodes))

        first = await seen.moment(whole) - master.started
        spent = processes.cpu_seconds(master.pid)
        _say("changes …")
        delays, change = await _changes(api, seen, master, nodes)
        _say("a rule …")
        rule = await _rule(api, seen, master, port=port, nodes=nodes)
        size = processes.size(master.pid)
    _say("gc …")
    deleted, gc_size = await _collected(api, kubeconfig, nodes)
    return [
        _figure(f"first_{nodes}", "master: exec to every node labelled", [first], note=about),
        _figure(f"first_cpu_{nodes}", "master: CPU until then", [spent], note=about),
        _figure(f"rss_{nodes}", "master: resident memory", [size.rss], "MB", note=about),
        *(
            _figure(
                f"change_{nodes}_p{share * 100:.0f}",
                f"NodeFeature changed to its label on the Node, p{share * 100:.0f}",
                [percentile(delays, share)],
                note=f"{CHANGES} changes at {CHANGES_PER_SECOND:g} a second, one group, {about}",
            )
            for share in (0.5, 0.99)
        ),
        _figure(f"change_cpu_{nodes}", "master: CPU a change", [change], "ms", note=about),
        _figure(
            f"rule_{nodes}", "new NodeFeatureRule to the label on every node", [rule.seconds],
            note=about,
        ),
        _figure(
            f"rule_cpu_{nodes}", "master: CPU a node for a new NodeFeatureRule", [rule.cpu_ms],
            "ms", note=f"one PATCH a node, {about}",
        ),
        _figure(
            f"rule_answer_{nodes}", "slowest answer of the master's /healthz meanwhile",
            [rule.slowest], note=about,
        ),
        _figure(
            f"gc_{nodes}", "gc: exec to the last NodeFeature of a vanished node gone", [deleted],
            note=f"a tenth of {about}",
        ),
        _figure(f"gc_rss_{nodes}", "gc: resident memory", [gc_size], "MB", note=about),
    ]  # fmt: skip


def _name(index: int) -> str:
    return f"node-{index:05d}"


async def _fill(api: Client, spec: Any, nodes: int) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        meta = {"name": name, "namespace": SYSTEM, "labels": {labels.FEATURES_NODE: name}}
        async with limit:
            await api.create(NODE, {"metadata": {"name": name}}, Meta)
            await api.create(NODE_FEATURE, {"metadata": meta, "spec": spec}, Meta)

    async with asyncio.TaskGroup() as group:
        for index in range(nodes):
            group.create_task(one(_name(index)))


async def _changes(
    api: Client, seen: Watched, master: hosts.Program, nodes: int
) -> tuple[list[float], float]:
    """Seconds from each answer to a change to the label, and milliseconds of CPU a change."""
    before = processes.cpu_seconds(master.pid)
    delays: list[float] = []

    async def one(index: int) -> None:
        name, mark = _name(index), "example.com/mark"
        patch = {"spec": {"labels": {mark: "yes"}}}
        await api.merge_patch(NODE_FEATURE, name, patch, Meta, manager="bench", namespace=SYSTEM)
        begin = time.perf_counter()
        delays.append(await seen.moment(lambda: mark in seen.labels(name)) - begin)

    async with asyncio.TaskGroup() as group:
        for index in random.Random(1).sample(range(nodes), min(CHANGES, nodes)):
            group.create_task(one(index))
            await asyncio.sleep(1 / CHANGES_PER_SECOND)
    return delays, (processes.cpu_seconds(master.pid) - before) / len(delays) * 1000


class Passed(msgspec.Struct):
    """What a pass over all nodes took."""

    seconds: float
    cpu_ms: float
    """Of the master, a node."""
    slowest: float
    """Longest time in seconds to an answer of its /healthz."""


async def _rule(
    api: Client, seen: Watched, master: hosts.Program, *, port: int, nodes: int
) -> Passed:
    """Give every node a label by one rule."""
    label = "example.com/passed"
    rule = {"name": "all", "labels": {label: "yes"}, "matchFeatures": NVIDIA}
    body = {"metadata": {"name": "all"}, "spec": {"rules": [rule]}}
    answers: list[float] = []
    asking = asyncio.create_task(_ask(port, answers))
    before = processes.cpu_seconds(master.pid)
    await api.apply(NODE_FEATURE_RULE, body, Meta, manager="bench")
    begin = time.perf_counter()
    names = [_name(index) for index in range(nodes)]
    end = await seen.moment(lambda: all(label in seen.labels(name) for name in names))
    spent = processes.cpu_seconds(master.pid) - before
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    return Passed(end - begin, spent / nodes * 1000, max(answers))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def _ask(port: int, answers: list[float]) -> None:
    """Ask for /healthz again and again, and note how long each answer took."""
    while True:
        begin = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await reader.readline()
        answers.append(time.perf_counter() - begin)
        writer.close()
        await asyncio.sleep(0.01)


async def _collected(api: Client, kubeconfig: str, nodes: int) -> tuple[float, float]:
    """Delete every tenth Node; the seconds until gc has deleted their NodeFeatures."""
    gone = [_name(index) for index in range(0, nodes, 10)]
    for name in gone:
        await api.delete(NODE, name)
    async with (
        Watched(api, NODE_FEATURE).following() as seen,
        _running("gc", kubeconfig, **{"page-size": 100}) as gc,
    ):
        last = await seen.moment(
            lambda: not any(f"{SYSTEM}/{name}" in seen.cache.objects for name in gone)
        )
        return last - gc.started, processes.size(gc.pid).rss


if __name__ == "__main__":
    main()
