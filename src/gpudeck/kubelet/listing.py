# SPDX-License-Identifier: Apache-2.0
"""The pods of this node with their containers and devices, as the kubelet tells it.

Who wants cards free asks here whom that concerns, and waits here until they have ended:
the kubelet lists every pod whose containers have not all ended, with or without devices
(pod-resources API, 1.34 to 1.37). It does not tell their UIDs, nor what their ordinary init
containers have, which stays theirs until the pod ends: its file of devices has that by UID,
and its folders of logs say which pod that is. Changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpudeck.host import root
from gpudeck.kubelet import checkpoints

if TYPE_CHECKING:
    from gpudeck.kubelet.wire import podresources_pb2


class Place(msgspec.Struct, frozen=True):
    """Where a kubelet tells it."""

    socket: Path
    """Of its pod-resources API."""
    plugins: Path
    """Folder with its file of devices."""
    logs: Path
    """Folder with a folder of logs for each pod, `NAMESPACE_NAME_UID` (1.14 to 1.37)."""


class Pod(msgspec.Struct, frozen=True, order=True):
    """A pod that has not ended."""

    namespace: str
    name: str
    containers: frozenset[str] = frozenset()
    """Names of its containers, ordinary init containers left out."""
    devices: frozenset[str] = frozenset()
    """Ids of devices of device plugins that any of them has, whatever the resource."""


async def pods(place: Place) -> tuple[Pod, ...]:
    """List them by name. Raises UnavailableError when the kubelet does not answer."""
    # gRPC is a third of a process that has nothing to ask yet, and perhaps never has.
    from gpudeck.kubelet import podresources  # noqa: PLC0415 - as just said.

    answer = await podresources.listed(place.socket, what="what pods there are")
    found = list(map(_pod, answer.pod_resources))
    told = {device for each in found for device in each.devices}
    untold = await asyncio.to_thread(_untold, place, told)
    for index, each in enumerate(found):
        more = untold.get((each.namespace, each.name), frozenset())
        found[index] = msgspec.structs.replace(each, devices=each.devices | more)
    return tuple(sorted(found, key=lambda pod: (pod.namespace, pod.name)))


def _untold(place: Place, told: Collection[str]) -> dict[tuple[str, str], frozenset[str]]:
    """What the kubelet's file has besides, by namespace and name of the pod.

    It has pods that have ended too; who asks knows which have not.
    """
    given = checkpoints.by_pod(place.plugins)
    untold = {uid: left for uid, ids in given.items() if (left := ids.difference(told))}
    found: dict[tuple[str, str], frozenset[str]] = {}
    for folder in root.Root().list(str(place.logs)) if untold else ():
        namespace, _, rest = folder.partition("_")
        name, _, uid = rest.partition("_")
        devices = found.get((namespace, name), frozenset()) | untold.get(uid, frozenset())
        found[namespace, name] = devices
    return found


def _pod(found: podresources_pb2.PodResources) -> Pod:
    return Pod(
        namespace=found.namespace,
        name=found.name,
        containers=frozenset(each.name for each in found.containers),
        devices=frozenset(
            device
            for container in found.containers
            for given in container.devices
            for device in given.device_ids
        ),
    )
