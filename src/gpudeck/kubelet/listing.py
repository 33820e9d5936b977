# SPDX-License-Identifier: Apache-2.0
"""The pods of this node with their containers and devices, as the kubelet tells it.

Who wants cards free asks here whom that concerns, and waits here until they have ended:
the kubelet lists every pod whose containers have not all ended, with or without devices
(pod-resources API, 1.34 to 1.37). It does not tell their UIDs. Changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpudeck.kubelet.wire import podresources_pb2


class Pod(msgspec.Struct, frozen=True, order=True):
    """A pod that has not ended."""

    namespace: str
    name: str
    containers: frozenset[str] = frozenset()
    """Names of its containers, init containers that have ended left out."""
    devices: frozenset[str] = frozenset()
    """Ids of devices of device plugins that any of them has, whatever the resource."""


async def pods(socket: Path) -> tuple[Pod, ...]:
    """List them by name. Raises UnavailableError when the kubelet does not answer."""
    # gRPC is a third of a process that has nothing to ask yet, and perhaps never has.
    from gpudeck.kubelet import podresources  # noqa: PLC0415 - as just said.

    answer = await podresources.listed(socket, what="what pods there are")
    return tuple(sorted(map(_pod, answer.pod_resources), key=lambda pod: (pod.namespace, pod.name)))


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
