# SPDX-License-Identifier: Apache-2.0
"""Which devices of device plugins the containers of this node have, as the kubelet tells it.

The kubelet lists pods that have not terminated (pod-resources API, 1.34 to 1.37), also
those of a resource that no plugin serves any more. It does not tell when that changes.
Changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from gpudeck.kubelet import podresources
from gpudeck.kubelet.wire import podresources_pb2


@dataclasses.dataclass(frozen=True)
class Holder:
    """What one container has of one resource."""

    namespace: str
    pod: str
    container: str
    resource: str
    devices: tuple[str, ...]
    """Ids, sorted."""


async def holders(socket: Path) -> tuple[Holder, ...]:
    """Every container with a device, sorted. Raises UnavailableError without a kubelet."""
    answer = await podresources.listed(socket, what="what containers have")
    return _read(answer)


async def held(socket: Path) -> dict[str, dict[str, str]]:
    """The pod (NAMESPACE/NAME) that has a device, by resource and id.

    Raises UnavailableError when the kubelet does not answer.
    """
    return by_resource(await holders(socket))


def by_resource(found: Iterable[Holder]) -> dict[str, dict[str, str]]:
    """The pod (NAMESPACE/NAME) that has a device, by resource and id."""
    pods: dict[str, dict[str, str]] = {}
    for each in found:
        pod = f"{each.namespace}/{each.pod}"
        pods.setdefault(each.resource, {}).update(dict.fromkeys(each.devices, pod))
    return pods


def _read(answer: podresources_pb2.ListPodResourcesResponse) -> tuple[Holder, ...]:
    found: dict[tuple[str, str, str, str], set[str]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for each in container.devices:  # One entry a NUMA node.
                key = (pod.namespace, pod.name, container.name, each.resource_name)
                found.setdefault(key, set()).update(each.device_ids)
    return tuple(
        Holder(*key, devices=tuple(sorted(devices))) for key, devices in sorted(found.items())
    )
