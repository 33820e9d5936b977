# SPDX-License-Identifier: Apache-2.0
"""Removes what gpu-feature-discovery said of nodes for which none speaks any more.

Its NodeFeature is owned by its DaemonSet, which lives on for other nodes; a node that left
would keep labels of cards that it has no more. Called by the leader after a node
left, and once at its start for what was left before.
"""

from __future__ import annotations

from collections.abc import Callable

from gpudeck import errors, logs
from gpudeck.api import labels
from gpudeck.api.meta import Meta
from gpudeck.api.resources import NODE_FEATURE
from gpudeck.controller import metrics
from gpudeck.kube.client import Client

_log = logs.get(__name__)


class Features:
    """The NodeFeatures of the release's namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def sweep(self, is_discovered: Callable[[str], bool]) -> None:
        """Delete those of nodes for which `is_discovered` is false."""
        try:
            # Those of the workers, a hundred kilobytes each, are not asked for.
            found = await self._client.list(
                NODE_FEATURE,
                Meta,
                namespace=self._namespace,
                label_selector=f"{labels.COMPONENT}={labels.DISCOVERY}",
            )
        except errors.NotFoundError:
            return  # Nobody serves the kind.
        for each in found.items:
            meta = each.metadata
            # Not by the label: a long name is cut there.
            node = meta.name.removeprefix(labels.FEATURES_OF_GPUS)
            if node != meta.name and not is_discovered(node):
                await self._delete(meta.name, meta.uid)

    async def forget(self, node: str) -> None:
        """Delete that of one node."""
        await self._delete(labels.FEATURES_OF_GPUS + node)

    async def _delete(self, name: str, uid: str | None = None) -> None:
        try:
            await self._client.delete(NODE_FEATURE, name, namespace=self._namespace, uid=uid)
        except (errors.NotFoundError, errors.ConflictError):
            return
        metrics.writes.labels(NODE_FEATURE.kind).inc()
        _log.info("Deleted labels of cards that nobody speaks for", name=name)
