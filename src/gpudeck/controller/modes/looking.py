# SPDX-License-Identifier: Apache-2.0
"""See what `deciding` wants to know of one node. Reads only.

Called while a mode changes, not otherwise: pods, slices and claims are asked for node by
node, so that the controller of a big cluster need not hold them all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from gpudeck import errors
from gpudeck.api import conditions, labels, names, resource, resources
from gpudeck.api.core import Node, Pod
from gpudeck.api.meta import Wire
from gpudeck.controller.draining import reconciler as draining
from gpudeck.controller.modes import deciding, holders, unoffered
from gpudeck.kube.client import Client

_WORKLOADS = {
    labels.MODE_DRA: ("nvidia-adapter",),
    labels.MODE_DEVICE_PLUGIN: ("nvidia-device-plugin",),
}
"""Components of pods, by mode."""


class _OfferedResource(Wire):
    resource: str = ""


class _Occupancy(Wire):
    plugin: list[_OfferedResource] | None = None


class _CardStatus(Wire):
    extended_resources: list[_OfferedResource] | None = None
    occupancy: _Occupancy | None = None

    @property
    def names(self) -> set[str]:
        """Also those of an earlier config by which pods have the card still."""
        held = self.occupancy.plugin if self.occupancy else None
        return {each.resource for each in (*(self.extended_resources or ()), *(held or ()))}


class _Card(Wire):
    """A PhysicalGPU, as far as it says under which names the plugin offers or offered the card."""

    status: _CardStatus | None = None


class Looker:
    """Looks at nodes; `claims` tells which claims hold devices of a node, as "namespace/name"."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        claims: Callable[[str], Collection[str]],
        *,
        nothing: Callable[[str], str],
    ) -> None:
        """`nothing` tells why a node offers no card, empty where it does."""
        self.nothing = nothing
        self._client = client
        self._namespace = namespace
        self._claims = claims

    async def look(self, node: Node) -> deciding.View:
        """Return what is seen now."""
        name = node.metadata.name
        pods = await draining.pods_of(self._client, name)
        offered = await self._offered(name)
        slices, devices = await self._pool(name)
        allocatable, nothing = _allocatable(node, offered), self.nothing(name)
        return deciding.View(
            labels=node.metadata.labels or {},
            taint=taint_of(node),
            holders=holders.find(name, pods, await self._claims_of(pods), offered),
            claims=tuple(sorted(self._claims(name))),
            workloads={mode: self._workload(mode, pods) for mode in labels.MODES},
            offers={
                labels.MODE_DRA: slices,
                labels.MODE_DEVICE_PLUGIN: allocatable,
            },
            devices={
                labels.MODE_DRA: devices,
                # The kubelet does not say that it was told of no device.
                labels.MODE_DEVICE_PLUGIN: len(allocatable) if allocatable or nothing else None,
            },
            nothing=nothing,
        )

    async def _claims_of(
        self, pods: Iterable[Pod]
    ) -> dict[tuple[str, str], resource.ResourceClaim]:
        found = {}
        for pod in pods:
            space = pod.metadata.namespace or ""
            for name in holders.claims_of(pod):
                try:
                    found[space, name] = await self._client.get(
                        resources.RESOURCE_CLAIM, name, resource.ResourceClaim, namespace=space
                    )
                except errors.NotFoundError:
                    continue  # Made a moment ago, or gone with its pod.
        return found

    async def _offered(self, node: str) -> frozenset[str]:
        """The resources that the node's plugin offers or offered, as it says itself."""
        found = await self._client.list(
            resources.PHYSICAL_GPU,
            _Card,
            label_selector=f"{labels.NODE}={names.node_label(node)}",
        )
        return frozenset[str]().union(*(gpu.status.names for gpu in found.items if gpu.status))

    async def _pool(self, node: str) -> tuple[tuple[str, ...], int | None]:
        """The slices of the node's pool, and how many devices it has."""
        found = await self._client.list(
            resources.RESOURCE_SLICE,
            unoffered.ResourceSlice,
            field_selector=f"spec.driver={labels.DRIVER},spec.nodeName={node}",
        )
        names = tuple(f"ResourceSlice {each.metadata.name}" for each in found.items)
        return names, unoffered.devices(found.items)

    def _workload(self, mode: str, pods: Iterable[Pod]) -> deciding.Workload:
        own = [
            each
            for each in pods
            if each.metadata.namespace == self._namespace
            and (each.metadata.labels or {}).get(labels.COMPONENT) in _WORKLOADS[mode]
        ]
        return deciding.Workload(
            tuple(sorted(each.metadata.name for each in own)), any(map(_is_ready, own))
        )


def taint_of(node: Node) -> str | None:
    """Return the mode that the taint of a change says, None without the taint."""
    taints = (node.spec.taints if node.spec else None) or ()
    return next((each.value or "" for each in taints if each.key == labels.MODE_CHANGE), None)


def is_ready(node: Node) -> bool:
    """Whether a Node is Ready; one that was made a moment ago says nothing of it yet."""
    found = (node.status.conditions if node.status else None) or ()
    return all(each.status == conditions.TRUE for each in found if each.type == conditions.READY)


def _allocatable(node: Node, offered: Collection[str]) -> tuple[str, ...]:
    found = (node.status.allocatable if node.status else None) or {}
    return tuple(
        f"{name}: {amount}"
        for name, amount in sorted(found.items())
        if amount != "0" and holders.is_of_cards(name, offered)
    )


def _is_ready(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and any(
        each.type == conditions.READY and each.status == conditions.TRUE
        for each in (pod.status.conditions if pod.status else None) or ()
    )
