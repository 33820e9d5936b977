# SPDX-License-Identifier: Apache-2.0
"""How long a pod takes from its creation to Running, with a card and without, by turns."""

from __future__ import annotations

from typing import Any

from benchmarks import processes
from benchmarks.figures import Figure
from benchmarks.world import World, watched
from gpudeck.api.meta import Meta
from gpudeck.api.resources import POD

ROUNDS = 8
NAMESPACE = "default"
GROUP = "Pods"
RESOURCE = "nvidia.com/gpu"
_NAME = "benchmark"
_IMAGE = "registry.lab/gpu-burn:latest"


async def measure(world: World) -> list[Figure]:
    """Create to phase Running, as a watch tells it."""
    await world.settled()
    times: dict[bool, list[float]] = {False: [], True: []}
    await _one(world, with_card=True)  # The first one warms what is read from disk.
    for _ in range(ROUNDS):
        for with_card in (False, True):
            times[with_card].append(await _one(world, with_card=with_card))
    return [
        Figure(
            key="pod_with_card" if with_card else "pod_without",
            group=GROUP,
            what=f"pod create to Running, {f'{RESOURCE}: 1' if with_card else 'no card'}",
            unit="s",
            values=values,
        )
        for with_card, values in times.items()
    ]


async def _one(world: World, *, with_card: bool) -> float:
    key = f"{NAMESPACE}/{_NAME}"

    def is_running(found: dict[str, Any]) -> bool:
        return key in found and found[key].status.phase == "Running"

    cache = world.pods(NAMESPACE)
    async with watched(cache, is_running) as running:
        running.arm()
        created = processes.now()
        await world.api.create(POD, _pod(world.node, with_card=with_card), Meta)
        seen = await running.moment()
    async with watched(world.pods(NAMESPACE), lambda found: key not in found) as gone:
        gone.arm()
        await world.api.delete(POD, _NAME, namespace=NAMESPACE)
        gone.look()
        await gone.moment()
    return seen - created


def _pod(node: str, *, with_card: bool) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "sleep",
        "image": _IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "3600"],
    }
    if with_card:
        container["resources"] = {"limits": {RESOURCE: "1"}}
    return {
        "metadata": {"name": _NAME, "namespace": NAMESPACE},
        "spec": {
            "containers": [container],
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
        },
    }
