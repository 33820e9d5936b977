# SPDX-License-Identifier: Apache-2.0
"""Read from a cluster what `get` and `explain` look at, and nothing else.

Kinds that the server does not know count as empty (no gpudeck there, an older
Kubernetes); kinds that the caller may not read are named. Pods are listed only
where a device plugin other than ours hands out cards: elsewhere it is told who holds them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from gpudeck import errors
from gpudeck.api.core import Event, Node, Pod
from gpudeck.api.meta import Meta
from gpudeck.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from gpudeck.api.resources import (
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    EVENT,
    GPU_CLASS,
    NODE,
    PHYSICAL_GPU,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    Resource,
)
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.explaining import cards
from gpudeck.explaining.world import Placement, ResourceClaimTemplate, World
from gpudeck.kube import caching, responses
from gpudeck.kube.client import Client, path_of

T = TypeVar("T")
_DEFAULT = Path("~/.kube/config")


def connecting(command: Any) -> Any:
    """Give a command the options that choose the cluster and the form of the output."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--context", default="", help="Context of the kubeconfig to use."),
        click.option(
            "--kubeconfig",
            default="",
            envvar="KUBECONFIG",
            help="Kubeconfig file [KUBECONFIG; default: ~/.kube/config].",
        ),
    ):
        command = option(command)
    return command


def run(kubeconfig: str, context: str, work: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, do the work, and close."""

    async def connected() -> T:
        async with await Client.connect(_chosen(kubeconfig), context=context) as client:
            return await work(client)

    return asyncio.run(connected())


def _chosen(kubeconfig: str) -> str:
    """Return the kubeconfig to use: what is given, the usual file, "" inside a pod."""
    if kubeconfig or ("KUBERNETES_SERVICE_HOST" in os.environ and not _default().is_file()):
        return kubeconfig
    return str(_default())


def _default() -> Path:
    return _DEFAULT.expanduser()


async def world(client: Client) -> World:
    """Read what tells of cards and of who holds them."""
    found = World()
    nodes, claims, slices, device_classes, gpu_classes, gpus, rules = await asyncio.gather(
        _all(client, found, NODE, Node),
        _all(client, found, RESOURCE_CLAIM, ResourceClaim),
        _all(client, found, RESOURCE_SLICE, ResourceSlice),
        _all(client, found, DEVICE_CLASS, DeviceClass),
        _all(client, found, GPU_CLASS, GPUClass),
        _all(client, found, PHYSICAL_GPU, PhysicalGPU),
        _all(client, found, DEVICE_TAINT_RULE, DeviceTaintRule),
    )
    found.taint_rules = rules
    found.nodes, found.claims, found.slices = nodes, claims, _current(list(slices.values()))
    found.device_classes, found.gpu_classes, found.gpus = device_classes, gpu_classes, gpus
    if cards.needs_pods(found):
        found.pods = await _all(client, found, POD, Pod)
    found.unreadable.sort()
    return found


async def pod(client: Client, namespace: str, name: str, found: World) -> tuple[Pod, Placement]:
    """Read one pod, and with it the templates and the Events that its explanation needs."""
    body = await client.raw("GET", path_of(POD, namespace, name))
    asked = msgspec.json.decode(body, type=Pod)
    found.templates = await _all(
        client, found, RESOURCE_CLAIM_TEMPLATE, ResourceClaimTemplate, namespace=namespace
    )
    selector = f"involvedObject.uid={asked.metadata.uid}"
    events = await _all(client, found, EVENT, Event, namespace=namespace, fields=selector)
    found.events = list(events.values())
    return asked, msgspec.json.decode(body, type=Placement)


async def pod_names(client: Client, namespace: str) -> list[str]:
    """Return the pods of a namespace, for the nearest name; [] if they may not be read."""
    return [
        key.rpartition("/")[2]
        for key in await _all(client, World(), POD, Meta, namespace=namespace)
    ]


async def _all(
    client: Client,
    found: World,
    resource: Resource,
    type_: type[Any],
    *,
    namespace: str | None = None,
    fields: str = "",
) -> dict[str, Any]:
    try:
        listed = await client.list(resource, type_, namespace=namespace, field_selector=fields)
    except errors.NotFoundError as error:
        if error.reason != responses.NOT_SERVED:
            raise
        return {}
    except errors.ForbiddenError as error:
        if error.reason != "Forbidden":
            raise
        found.unreadable.append(resource.plural)
        return {}
    return {caching.key_of(each.metadata): each for each in listed.items}


def _current(slices: list[ResourceSlice]) -> list[ResourceSlice]:
    """Leave out the slices of older generations of their pool: they count for nothing."""
    newest: dict[tuple[str, str], int] = {}
    for each in slices:
        pool = (each.spec.driver, each.spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), each.spec.pool.generation)
    return [
        each
        for each in slices
        if each.spec.pool.generation == newest[each.spec.driver, each.spec.pool.name]
    ]
