# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.scale [--nodes N]`: the controller on a large cluster of objects alone.

A real etcd and kube-apiserver hold N nodes with eight cards each: a Node, its adapter's pod,
eight PhysicalGPUs as the node processes write them, and a claim for every fourth card. No
kubelet runs; the real controller does, as a process of its own. Measured are its first pass over
cards that nobody has judged yet, its start on a cluster that is as it must be, its memory then,
and how long after a claim's allocation the card says who holds it, while claims come and go.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import click
import uvloop
import yaml
from tests.support import realapiserver

from benchmarks import processes, writing
from benchmarks.figures import Figure, percentile, signed, started
from gpudeck.api import labels, names
from gpudeck.api.meta import Meta
from gpudeck.api.resources import GPU_CLASS, NODE, PHYSICAL_GPU, POD, RESOURCE_CLAIM, Resource
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.devices.identities import PciAddress
from gpudeck.errors import NotFoundError
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client, path_of
from gpudeck.kube.watching import Change

CRDS = Path(__file__).parents[1] / "charts/gpudeck/crds"
GROUP = "Scale"
CARDS = 8
HELD_EVERY = 4
AT_ONCE = 48
CHANGES = 400
CHANGES_PER_SECOND = 20.0
NAMESPACE = "default"
_ADDRESSES = [PciAddress.parse(f"0000:{0x1B + 16 * index:02x}:00.0") for index in range(CARDS)]


@click.command()
@click.option("--nodes", default=5000, show_default=True, help="Nodes, with eight cards each.")
@click.option("--record/--no-record", default=True, help="Write results.json and README.md.")
def main(nodes: int, record: bool) -> None:
    """Measure the controller on a cluster of that many nodes."""
    programs = realapiserver.find()
    if programs is None:
        raise click.ClickException("the programs of Kubernetes are not built; run: make programs")
    before = started()
    with realapiserver.running(programs) as kubeconfig:
        found = uvloop.run(_measure(kubeconfig, nodes))
    command = f"python -m benchmarks.scale --nodes {nodes}"
    writing.tell(signed(found, command, before), record=record)


async def _measure(kubeconfig: str, nodes: int) -> list[Figure]:
    cards, claims = nodes * CARDS, nodes * CARDS // HELD_EVERY
    about = f"{nodes} nodes, {cards} cards, {claims} claims"
    async with await Client.connect(kubeconfig) as api:
        await _definitions(api)
        made = await _timed(lambda: _fill(api, nodes))
        sys.stderr.write(f"made {about} in {made:.0f} s\n")
        async with _controller(kubeconfig) as first:
            judged = await _timed(lambda: _until(lambda: _are_judged(api, cards)))
            first_memory = processes.size(first.pid).rss
        size = await _object_size(api)
        async with _controller(kubeconfig) as again:
            synced = await _timed(again.reconciling.wait)
            memory = processes.size(again.pid).rss
            await _until(lambda: _is_idle(again.pid))
            before = processes.cpu_seconds(again.pid)
            delays = await _change_claims(api, nodes)
            spent = processes.cpu_seconds(again.pid) - before
    note = f"{about}; a PhysicalGPU has {size} bytes"
    paced = f"{CHANGES} changes at {CHANGES_PER_SECOND:g} a second, {about}"
    rows = [
        ("first", "exec to every card judged for the first time", "s", judged, note),
        ("sync", "exec to leading with full caches", "s", synced, note),
        ("rss_first", "resident memory after the first pass", "MB", first_memory, note),
        ("rss", "resident memory after a start on cards that are judged", "MB", memory, note),
        ("p50", "allocation of a claim to its card's occupancy, p50", "s",
         percentile(delays, 0.5), paced),
        ("p99", "allocation of a claim to its card's occupancy, p99", "s",
         percentile(delays, 0.99), paced),
        ("cpu", "CPU a change", "ms", spent / len(delays) * 1000, paced),
    ]  # fmt: skip
    return [
        Figure(
            key=f"scale_{key}_{nodes}",
            group=GROUP,
            what=f"controller: {what}",
            unit=unit,
            values=[value],
            note=said,
        )
        for key, what, unit, value, said in rows
    ]


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    started = time.monotonic()
    await work()
    return time.monotonic() - started


# The cluster


async def _definitions(api: Client) -> None:
    kind = Resource(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
        namespaced=False,
    )  # fmt: skip
    for path in sorted(CRDS.glob("*.yaml")):
        await api.create(kind, yaml.safe_load(path.read_text()), Meta)
    await _until(lambda: _serves(api))
    body = {"metadata": {"name": "gpu"}, "spec": {"vendor": "nvidia"}}
    await api.create(GPU_CLASS, body, Meta)


async def _serves(api: Client) -> bool:
    try:
        await api.list(PHYSICAL_GPU, Meta)
        await api.list(GPU_CLASS, Meta)
    except NotFoundError:  # A definition is served some time after it is made.
        return False
    return True


def _node_name(index: int) -> str:
    return f"node-{index:05d}"


async def _fill(api: Client, nodes: int) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(index: int) -> None:
        async with limit:
            await _node(api, index)

    async with asyncio.TaskGroup() as group:
        for index in range(nodes):
            group.create_task(one(index))


async def _node(api: Client, index: int) -> None:
    node = _node_name(index)
    made = await api.create(NODE, {"metadata": {"name": node}}, Meta)
    await _adapter(api, node)
    for place, address in enumerate(_ADDRESSES):
        name = names.physical_gpu_name(node, address)
        body = {
            "metadata": {
                "name": name,
                "labels": {labels.NODE: node, labels.VENDOR: "nvidia"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": node, "uid": made.metadata.uid}
                ],
            }
        }
        await api.create(PHYSICAL_GPU, body, Meta)
        status = _card_status(node, place, address)
        await api.merge_patch(
            PHYSICAL_GPU, name, {"status": status}, Meta, manager="bench", subresource="status"
        )
    for place in range(0, CARDS, HELD_EVERY):
        name = f"{node}-{place}"
        await _claim(api, name)
        await _allocate(api, name, node, _ADDRESSES[place])


async def _adapter(api: Client, node: str) -> None:
    """The pod of the node's adapter, which makes its cards count."""
    name = f"nvidia-adapter-{node}"
    body = {
        "metadata": {"name": name, "labels": {labels.COMPONENT: labels.ADAPTERS[0]}},
        "spec": {"nodeName": node, "containers": [{"name": "dra-plugin", "image": "gpudeck"}]},
    }
    await api.create(POD, body, Meta, namespace=NAMESPACE)
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    await api.merge_patch(
        POD, name, {"status": status}, Meta,
        manager="bench", namespace=NAMESPACE, subresource="status",
    )  # fmt: skip


def _card_status(node: str, place: int, address: PciAddress) -> dict[str, Any]:
    now = "2026-01-01T00:00:00Z"
    return {
        "nodeInfo": {"nodeName": node, "kernelRelease": "6.8.0-45-generic", "bareMetal": True},
        "pciInfo": {
            "address": str(address),
            "class": {"code": "0302", "name": "3D controller"},
            "vendor": {"id": "10de", "name": "NVIDIA Corporation"},
            "device": {"id": "2330", "name": "GH100 [H100 SXM5 80GB]"},
            "numaNode": place // 4,
        },
        "capabilities": {
            "vendor": "nvidia",
            "productName": "NVIDIA H100 80GB HBM3",
            "architecture": "Hopper",
            "computeAPI": "CUDA",
            "computeCapability": "9.0",
            "memoryMiB": 81559,
        },
        "currentState": {
            "driverType": "Nvidia",
            "driverVersion": "580.65.06",
            "uuid": f"GPU-{node}-{place}",
        },
        "conditions": [
            {"type": kind, "status": "True", "reason": kind, "message": "",
             "lastTransitionTime": now}
            for kind in ("Discovered", "DriverReady", "HardwareHealthy", "Published")
        ],
    }  # fmt: skip


async def _claim(api: Client, name: str) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    body = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    await api.create(RESOURCE_CLAIM, body, Meta, namespace=NAMESPACE)


async def _allocate(api: Client, name: str, node: str, address: PciAddress) -> None:
    result = {
        "request": "gpu",
        "driver": labels.DRIVER,
        "pool": node,
        "device": names.gpu_device_name(address),
    }
    status = {"allocation": {"devices": {"results": [result]}}}
    await api.merge_patch(
        RESOURCE_CLAIM, name, {"status": status}, Meta,
        manager="bench", namespace=NAMESPACE, subresource="status",
    )  # fmt: skip


# The controller


class Controller:
    """The controller as a process; `reconciling` is when it leads with full caches."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.pid = child.pid
        self.reconciling = asyncio.Event()
        self._child = child
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._child.stderr is not None
        async for line in self._child.stderr:
            if b"Reconciling" in line:
                self.reconciling.set()

    async def end(self) -> None:
        """End it as the kubelet does: it gives its lease back."""
        self._child.terminate()
        await self._child.wait()
        await self._reading


@contextlib.asynccontextmanager
async def _controller(kubeconfig: str) -> AsyncIterator[Controller]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from gpudeck.cli.main import main; main()", "controller",
        f"--kubeconfig={kubeconfig}", "--namespace=default", "--identity=scale", "--metrics-port=0",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    controller = Controller(child)
    try:
        yield controller
    finally:
        await controller.end()


async def _until(check: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again: a watch of all cards would compete with what is measured."""
    while not await check():  # noqa: ASYNC110
        await asyncio.sleep(1.0)


async def _is_idle(pid: int) -> bool:
    """Whether the process has done what it began with: at most 2 % of a CPU over a second."""
    before = processes.cpu_seconds(pid)
    await asyncio.sleep(1.0)
    return processes.cpu_seconds(pid) - before < 0.02


async def _are_judged(api: Client, cards: int) -> bool:
    judged = 0
    async for page in api.pages(path_of(PHYSICAL_GPU), {}):
        judged += sum(b'"phase"' in bytes(item) for item in page.items)
    return judged == cards


async def _object_size(api: Client) -> int:
    name = names.physical_gpu_name(_node_name(0), _ADDRESSES[0])
    return len(await api.raw("GET", path_of(PHYSICAL_GPU, None, name)))


async def _change_claims(api: Client, nodes: int) -> list[float]:
    """Allocate free cards one after the other; the seconds until each card says who holds it."""
    chosen = random.Random(1).sample(range(nodes), min(CHANGES, nodes))
    delays: list[float] = []
    seen: dict[str, asyncio.Event] = {}

    def changed(change: Change[PhysicalGPU]) -> None:
        status = change.new.status if change.new else None
        if change.key in seen and status and status.occupancy and status.occupancy.claims:
            seen[change.key].set()

    async def one(index: int) -> None:
        node, address = _node_name(index), _ADDRESSES[1]
        claim, gpu = f"{node}-change", names.physical_gpu_name(node, address)
        await _claim(api, claim)
        seen[gpu] = asyncio.Event()
        started = time.monotonic()
        await _allocate(api, claim, node, address)
        await seen[gpu].wait()
        delays.append(time.monotonic() - started)

    cache = Cache(api, PHYSICAL_GPU, PhysicalGPU)
    watching = asyncio.create_task(cache.run())
    await cache.synced()
    cache.subscribe(changed)
    async with asyncio.TaskGroup() as group:
        for index in chosen:
            group.create_task(one(index))
            await asyncio.sleep(1 / CHANGES_PER_SECOND)
    watching.cancel()
    return delays


if __name__ == "__main__":
    main()
