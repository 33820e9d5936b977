# SPDX-License-Identifier: Apache-2.0
"""Read from a cluster what `get` and `explain` look at, and nothing else.

Kinds that the server does not know count as empty (no gpudeck there, an older
Kubernetes); kinds that the caller may not read are named. Pods are listed only
where a device plugin other than ours hands out cards: elsewhere it is told who holds them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import re
import sys
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
from gpudeck.kube import caching, pacing, responses
from gpudeck.kube.client import Client, path_of

T = TypeVar("T")
_DEFAULT = Path("~/.kube/config")
PATIENT_SECONDS = 3.0
"""How long a person is not told what is waited for."""
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|)")


@dataclasses.dataclass(frozen=True)
class Server:
    """Which API server is asked, and how long one request to it may take; 0 is without a limit."""

    kubeconfig: str
    context: str
    request_seconds: float


class _Duration(click.ParamType[float]):
    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        match = _DURATION.fullmatch(value)
        if match is None:
            self.fail(f"{value!r} is not valid; allowed: a time such as 500ms, 15s or 1m, or 0")
        return float(match[1]) * _UNITS[match[2]]


def connecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that choose the `server` and the form of the output."""

    @functools.wraps(command)
    def wrapped(*, kubeconfig: str, context: str, request_timeout: float, **given: Any) -> None:
        command(server=Server(kubeconfig, context, request_timeout), **given)

    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option(
            "--request-timeout",
            type=_Duration(),
            default="15s",
            show_default=True,
            help="How long one request may take; 0: without a limit.",
        ),
        click.option("--context", default="", help="Context of the kubeconfig to use."),
        click.option(
            "--kubeconfig",
            default="",
            envvar="KUBECONFIG",
            help="Kubeconfig file [KUBECONFIG; default: ~/.kube/config].",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped


def run(server: Server, work: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, do the work, and close; a person who waits is told for what."""

    async def connected() -> T:
        opening = Client.connect(
            _chosen(server.kubeconfig),
            context=server.context,
            request_seconds=server.request_seconds,
        )
        async with await opening as client:
            loop = asyncio.get_running_loop()
            told = loop.call_later(PATIENT_SECONDS, _tell_waiting, client.server)
            try:
                return await work(client)
            finally:
                told.cancel()

    try:
        return asyncio.run(connected())
    except errors.UnavailableError as error:
        if isinstance(error.__cause__, TimeoutError) and error.reason in _OF_REQUESTS:
            raise errors.UnavailableError(
                f"{error}; --request-timeout lets it take longer", reason=error.reason
            ) from error
        raise


_OF_REQUESTS = (pacing.UNREACHABLE, errors.UnavailableError.reason)


def _tell_waiting(address: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"waiting for the API server at {address} ...", err=True)


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
