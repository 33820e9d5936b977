# SPDX-License-Identifier: Apache-2.0
"""Labels as a NodeFeature of `nfd.k8s-sigs.io/v1alpha1`, by server-side apply.

Its owners are this pod and the workload that made it: while either is there the object stays, so
that a restart takes no label away (kubernetes-sigs/node-feature-discovery issue 1752), and
when both are gone it goes. It is not removed when the process ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpudeck.api import labels as known
from gpudeck.api import names
from gpudeck.api.meta import Meta, ObjectMeta, OwnerReference
from gpudeck.api.nodefeatures import Features, NodeFeature, NodeFeatureSpec
from gpudeck.api.resources import NODE_FEATURE, POD
from gpudeck.kube.client import Client

_NONE = Features(flags={}, attributes={}, instances={})
"""There are none of ours, but the CRD of node-feature-discovery itself wants all three."""


class Object:
    """The NodeFeature of one node; a `publishing.Sink`."""

    def __init__(self, api: Client, node: str, *, namespace: str = "", pod: str = "") -> None:
        self._api = api
        self._node = node
        self._namespace = namespace or api.namespace
        self._pod = pod
        self._owners: list[OwnerReference] | None = None

    async def begin(self) -> None:
        """`Sink.begin`."""

    async def write(self, labels: Mapping[str, str]) -> bool:
        """`Sink.write`."""
        metadata = ObjectMeta(
            name=known.FEATURES_OF_GPUS + self._node,
            namespace=self._namespace,
            labels={
                known.FEATURES_NODE: names.node_label(self._node),
                known.COMPONENT: known.DISCOVERY,
            },
            owner_references=await self._find_owners(),
        )
        body = NodeFeature(
            metadata=metadata, spec=NodeFeatureSpec(features=_NONE, labels=dict(labels))
        )
        stored = await self._api.apply(NODE_FEATURE, body, NodeFeature, manager=known.MANAGER_GFD)
        await self._remove(set(stored.spec.labels or {}) - set(labels))
        return True

    async def _remove(self, foreign: set[str]) -> None:
        """Labels that NVIDIA's gpu-feature-discovery left in the object of that name."""
        if foreign:
            await self._api.merge_patch(
                NODE_FEATURE,
                known.FEATURES_OF_GPUS + self._node,
                {"spec": {"labels": dict.fromkeys(sorted(foreign))}},
                Meta,
                namespace=self._namespace,
                manager=known.MANAGER_GFD,
            )

    async def close(self) -> None:
        """`Sink.close`."""

    async def _find_owners(self) -> list[OwnerReference] | None:
        if not self._pod:
            return None
        if self._owners is None:
            pod = await self._api.get(POD, self._pod, Meta, namespace=self._namespace)
            found = [
                OwnerReference(
                    api_version=each.api_version, kind=each.kind, name=each.name, uid=each.uid
                )
                for each in pod.metadata.owner_references or []
            ]
            own = OwnerReference(
                api_version="v1", kind="Pod", name=self._pod, uid=pod.metadata.uid or ""
            )
            self._owners = [*found, own]
        return self._owners
