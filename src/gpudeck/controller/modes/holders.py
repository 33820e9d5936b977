# SPDX-License-Identifier: Apache-2.0
"""Which pods of a node hold cards, or parts of them, and by which mode they got them. Pure.

A pod holds a card by the device plugin if a container of it asks for an extended resource
that the plugin offers, and by DRA if a claim of it has a device of our driver on the node;
claims that the scheduler made for extended resources are claims (KEP-5004). Administrative
access holds nothing, but the kubelet cannot end such a pod without the driver that prepared
its claim (DynamicResourceAllocation, 1.37: "DRA plugin … not registered"), so these pods too
have to go before the driver does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from gpudeck.api import labels
from gpudeck.api.core import Container, Pod
from gpudeck.api.resource import ResourceClaim
from gpudeck.controller.draining import choosing
from gpudeck.kube import evicting

_WHOLE = "nvidia.com/gpu"
_PREFIXES = ("nvidia.com/gpu.", "nvidia.com/mig-", f"{labels.GROUP}/")
"""Resources of cards whatever the plugin's config is; other names are known from PhysicalGPUs."""


class Holder(msgspec.Struct, frozen=True, order=True):
    """A pod with a card."""

    pod: evicting.Pod
    mode: str
    is_leaving: bool = False
    is_static: bool = False
    daemon_set: str = ""


def is_of_cards(resource: str, offered: Collection[str]) -> bool:
    """Say whether an extended resource is a card, or a part of one.

    `offered` are the names that the node's plugin offers or offered. Other things of NVIDIA's
    than cards, such as network adapters, have names of the same domain.
    """
    return resource == _WHOLE or resource.startswith(_PREFIXES) or resource in offered


def claims_of(pod: Pod) -> list[str]:
    """Return the names of the claims that a pod uses."""
    spec, status = pod.spec, pod.status
    named = [each.resource_claim_name for each in (spec.resource_claims if spec else None) or ()]
    if status is not None:
        named += [each.resource_claim_name for each in status.resource_claim_statuses or ()]
        if status.extended_resource_claim_status is not None:
            named.append(status.extended_resource_claim_status.resource_claim_name)
    return sorted({each for each in named if each})


def has_devices(claim: ResourceClaim, node: str) -> bool:
    """Say whether a claim has a device of our driver on the node."""
    status = claim.status
    devices = status.allocation.devices if status and status.allocation else None
    return any(
        each.driver == labels.DRIVER and each.pool == node
        for each in (devices.results if devices else None) or ()
    )


def find(
    node: str,
    pods: Iterable[Pod],
    claims: Mapping[tuple[str, str], ResourceClaim],
    offered: Collection[str],
) -> tuple[Holder, ...]:
    """Return the pods that hold cards of the node, in order; `claims` by namespace and name."""
    found = []
    for pod in pods:
        mode = _mode(node, pod, claims, offered)
        if mode:
            found.append(
                Holder(
                    pod=choosing.identity(pod),
                    mode=mode,
                    is_leaving=choosing.is_leaving(pod),
                    is_static=choosing.is_static(pod),
                    daemon_set=choosing.daemon_set(pod),
                )
            )
    return tuple(sorted(found))


def _mode(
    node: str,
    pod: Pod,
    claims: Mapping[tuple[str, str], ResourceClaim],
    offered: Collection[str],
) -> str:
    """Return the mode by which a pod got a card; empty for a pod without one."""
    if choosing.has_ended(pod):
        return ""
    space = pod.metadata.namespace or ""
    own = [claims[space, each] for each in claims_of(pod) if (space, each) in claims]
    if any(has_devices(each, node) for each in own):
        return labels.MODE_DRA
    # What the scheduler made a claim for is something of another driver.
    made = pod.status.extended_resource_claim_status if pod.status else None
    is_asking = any(
        is_of_cards(each, offered) and not (made is not None and made.covers(each))
        for each in _resources(pod)
    )
    return labels.MODE_DEVICE_PLUGIN if is_asking else ""


def _resources(pod: Pod) -> Iterator[str]:
    spec = pod.spec
    containers: list[Container] = []
    if spec is not None:
        containers += [*(spec.containers or ()), *(spec.init_containers or ())]
    for each in containers:
        wanted = each.resources
        for name, amount in ((wanted.limits if wanted else None) or {}).items():
            if str(amount) != "0":
                yield name
