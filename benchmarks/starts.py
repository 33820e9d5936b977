# SPDX-License-Identifier: Apache-2.0
"""How long a process takes from its start until the cluster sees its work.

A start is the kernel's (stat, hundredths of a second); seen is when a watch of the API
server told this program. Before each start everything that the process would find done is
deleted, so it must do it again.
"""

from __future__ import annotations

from typing import Any

from benchmarks.figures import Figure
from benchmarks.world import NAMESPACE, World, watched
from gpudeck.api import labels
from gpudeck.api.core import Pod
from gpudeck.api.resources import PHYSICAL_GPU, RESOURCE_SLICE

ROUNDS = 6
GROUP = "Start"


async def plugin(world: World) -> list[Figure]:
    """The dra-plugin alone, killed by SIGKILL, then its whole pod, made anew."""
    alone, pod, plugin_in_pod, adapter_in_pod = [], [], [], []
    slices = world.resource_slices()
    async with watched(slices, lambda found: _devices(found) == world.cards) as published:
        for _ in range(ROUNDS):
            await _pod_gone(world)
            await world.delete_all(RESOURCE_SLICE, field=f"spec.nodeName={world.node}")
            published.arm()
            seen, created = await _pod_made(world, published)
            pod.append(seen - created)
            plugin_in_pod.append(seen - world.process("dra-plugin").start)
            adapter_in_pod.append(seen - world.process("adapter nvidia").start)
            await world.settled()
            await world.kill("dra-plugin")
            await world.delete_all(RESOURCE_SLICE, field=f"spec.nodeName={world.node}")
            published.arm()
            seen = await published.moment()
            alone.append(seen - world.process("dra-plugin").start)
            await world.settled()
    cards = f"{world.cards} devices"
    return [
        Figure(
            key="plugin_start",
            group=GROUP,
            what=f"dra-plugin: exec to ResourceSlice with {cards} visible, the adapter running",
            unit="s",
            values=alone,
        ),
        Figure(
            key="plugin_pod_plugin",
            group=GROUP,
            what="both together: exec of dra-plugin to the same",
            unit="s",
            values=plugin_in_pod,
        ),
        Figure(
            key="plugin_pod_adapter",
            group=GROUP,
            what="both together: exec of adapter nvidia to the same",
            unit="s",
            values=adapter_in_pod,
        ),
        Figure(
            key="plugin_pod",
            group=GROUP,
            what="pod nvidia-adapter: seen as created to the same",
            unit="s",
            values=pod,
            note="with scheduler, kubelet, sandbox and network",
        ),
    ]


async def agent(world: World) -> list[Figure]:
    """The node agent: killed, its objects deleted."""
    values = []
    cache = world.physical_gpus()
    selector = f"{labels.NODE}={world.node}"
    async with watched(cache, lambda found: _described(found) == world.cards) as described:
        for _ in range(ROUNDS):
            await world.kill("node-agent")
            await world.delete_all(PHYSICAL_GPU, label=selector)
            described.arm()
            seen = await described.moment()
            values.append(seen - world.process("node-agent").start)
            await world.settled()
    return [
        Figure(
            key="agent_start",
            group=GROUP,
            what=f"node-agent: exec to {world.cards} PhysicalGPUs described",
            unit="s",
            values=values,
        )
    ]


async def _pod_gone(world: World) -> None:
    """Take the node's label away, which ends the pod, and wait until its processes are gone."""
    await world.label(None)
    async with watched(world.pods(NAMESPACE), lambda found: not _adapters(world, found)) as gone:
        gone.arm()
        gone.look()
        await gone.moment()


async def _pod_made(world: World, published: Any) -> tuple[float, float]:
    """Set the label; return when the slices and, before, the new pod were seen."""
    async with watched(world.pods(NAMESPACE), lambda found: bool(_adapters(world, found))) as made:
        made.arm()
        await world.label("nvidia")
        created = await made.moment()
        return await published.moment(), created


def _adapters(world: World, found: dict[str, Pod]) -> list[str]:
    return [
        key
        for key, each in found.items()
        if key.startswith(f"{NAMESPACE}/nvidia-adapter")
        and each.spec is not None
        and each.spec.node_name == world.node
    ]


def _devices(found: dict[str, Any]) -> int:
    return sum(len(each.spec.devices or ()) for each in found.values())


def _described(found: dict[str, Any]) -> int:
    return sum(1 for each in found.values() if each.status and each.status.pci_info)
