# SPDX-License-Identifier: Apache-2.0
"""Which claims containers of this node use, as the kubelet's pod-resources API tells it.

`dra.collecting` asks before it frees what the kubelet may have forgotten. The kubelet
lists pods that it knows and that have not terminated, without their ordinary init
containers; a claim comes with its name and its CDI devices. A claim that it has forgotten
is left out even while a container of its pod runs (1.34 to 1.37). Changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from gpudeck.kubelet import podresources
from gpudeck.kubelet.wire import podresources_pb2


@dataclasses.dataclass(frozen=True)
class Used:
    """The fully qualified CDI devices of each claim, which is `namespace/name`."""

    claims: Mapping[str, frozenset[str]]


async def used(socket: Path) -> Used:
    """Ask the kubelet. Raises UnavailableError when it does not answer."""
    answer = await podresources.listed(socket, what="what containers use")
    return _read(answer)


def _read(answer: podresources_pb2.ListPodResourcesResponse) -> Used:
    found: dict[str, frozenset[str]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for claim in container.dynamic_resources:
                name = f"{claim.claim_namespace}/{claim.claim_name}"
                devices = {each.name for one in claim.claim_resources for each in one.cdi_devices}
                found[name] = found.get(name, frozenset()) | devices
    return Used(found)
