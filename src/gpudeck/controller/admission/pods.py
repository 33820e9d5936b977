# SPDX-License-Identifier: Apache-2.0
"""Whether a pod asks by `resources.limits` for more devices than any node has. Pure.

Otherwise it would wait for ever, and the scheduler only say that no node fits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpudeck.api.core import Container, PodSpec
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.admission import amounts, claims
from gpudeck.controller.admission.fleet import Fleet
from gpudeck.errors import InvalidError


def impossible(pod: PodSpec, classes: Mapping[str, GPUClass], fleet: Fleet) -> list[InvalidError]:
    """Return what of the pod no node could give; `classes` are by extended resource name.

    The containers of a pod run on one node together, so their amounts add up. An init
    container's does only where it runs beside them, and is compared by itself. What a device
    plugin may offer is not judged: its config says how many devices it makes of a card.
    """
    together = [*(pod.containers or ()), *filter(_is_sidecar, pod.init_containers or ())]
    alone = [each for each in pod.init_containers or () if not _is_sidecar(each)]
    found = []
    for name, gpu_class in classes.items():
        most = max([_count(each, name) for each in alone], default=0)
        count = max(most, sum(_count(each, name) for each in together))
        if not count or fleet.may_be_plugins(name):
            continue
        try:
            reach = fleet.reach(gpu_class.spec)
        except InvalidError:  # Written under another schema: the status of the class says so.
            continue
        field = f"spec.containers[*].resources.limits[{name}]"
        if reach is not None and reach.devices is not None and count > reach.devices:
            found.append(claims.too_many(field, count, gpu_class, reach))
        elif count > amounts.MOST_DEVICES:
            found.append(amounts.too_many(field, str(count)))
    return found


def asks_for(pod: PodSpec, names: Collection[str]) -> bool:
    """Say whether a container of the pod has a limit for one of the extended resources."""
    every = [*(pod.init_containers or ()), *(pod.containers or ())]
    return any(name in names for each in every for name in _limits(each))


def _limits(container: Container) -> Mapping[str, str | int | float]:
    return (container.resources.limits if container.resources else None) or {}


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _count(container: Container, name: str) -> int:
    text = str(_limits(container).get(name, 0))
    return int(text) if text.isascii() and text.isdigit() else 0
