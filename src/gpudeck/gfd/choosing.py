# SPDX-License-Identifier: Apache-2.0
"""Which named config holds on this node, followed as the Node's label and the ConfigMap change.

The rules are `pluginconfig.selecting`'s, so that labels and devices follow the same config. It is
not kept on disk: until it is known, the labels of the last run stay where they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpudeck import errors, logs
from gpudeck.api.core import ConfigMap
from gpudeck.api.meta import Meta, ObjectMeta
from gpudeck.api.resources import CONFIG_MAP, NODE
from gpudeck.gfd import metrics
from gpudeck.gfd.settings import Settings
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.watching import Change
from gpudeck.pluginconfig import model, selecting
from gpudeck.pluginconfig.fields import Field

Show = Callable[[model.Config], None]
_log = logs.get(__name__)


def choices(settings: Settings, label: str) -> selecting.Choices:
    """Who wants what. Raises InvalidError for a fallback that there is not."""
    return selecting.Choices(
        label=label,
        group=settings.group_config,
        default=settings.default_config,
        fallbacks=tuple(
            Field(word, "config-fallback", {}).word(selecting.Fallback)
            for word in settings.config_fallback
        ),
    )


class Choosing:
    """Tells `show` the config that holds; `run` must run."""

    def __init__(self, settings: Settings, api: Client, show: Show) -> None:
        choices(settings, "")
        self._settings = settings
        self._show = show
        self._selected: selecting.Selected | None = None
        self._wake = asyncio.Event()
        self._nodes = Cache(
            api, NODE, Meta, field_selector=f"metadata.name={settings.node_name}", keep=_trimmed
        )
        self._maps = Cache(
            api,
            CONFIG_MAP,
            ConfigMap,
            namespace=settings.namespace or api.namespace,
            field_selector=f"metadata.name={settings.config_map}",
        )

    async def run(self) -> None:
        """Follow, for ever. Nothing is decided from a cache that is not full yet."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run(), name="node")
            group.create_task(self._maps.run(), name="config map")
            await self._nodes.synced()
            await self._maps.synced()
            self._nodes.subscribe(self._woken)
            self._maps.subscribe(self._woken)
            self._wake.set()
            while True:
                await self._wake.wait()
                self._wake.clear()
                self._select()

    def _woken(self, _change: Change[Meta] | Change[ConfigMap]) -> None:
        self._wake.set()

    def _select(self) -> None:
        node = self._nodes.objects.get(self._settings.node_name)
        if node is None:
            return  # A Node that is not there chooses nothing: what holds stays.
        label = (node.metadata.labels or {}).get(selecting.LABEL, "")
        found = next(iter(self._maps.objects.values()), ConfigMap())
        wanted = choices(self._settings, label)
        selected = selecting.select(found.data or {}, wanted, self._selected)
        if selected == self._selected:
            return
        metrics.config_valid.set(selected.problem is None)
        if selected.problem is not None:
            problem = selected.problem
            kept = selected.name or "none"
            _log.warning("The config is not used", kept=kept, error=problem.message)
        else:
            _log.info("Using config", config=selected.name or "none", origin=selected.origin)
        self._selected = selected
        try:
            self._show(selected.config)
        except errors.InvalidError as error:
            metrics.config_valid.set(0)
            _log.warning("The config is not used", config=selected.name, error=error)


def _trimmed(node: Meta) -> Meta:
    """What is used of a Node, so that the kubelet's reports of its state wake nobody."""
    label = (node.metadata.labels or {}).get(selecting.LABEL)
    kept = {selecting.LABEL: label} if label is not None else None
    return Meta(metadata=ObjectMeta(name=node.metadata.name, uid=node.metadata.uid, labels=kept))
