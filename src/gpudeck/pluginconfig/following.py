# SPDX-License-Identifier: Apache-2.0
"""Which named config holds on this node, followed as the Node's label and the ConfigMap change.

Used by the device plugin and by GPU feature discovery. Nothing is decided from a cache that is not
full yet: a ConfigMap that was not read is not one that is missing. With a `State` the last
good config holds from the start, so that a process which starts while the API server is away
does what it did before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from gpudeck import logs
from gpudeck.api import labels
from gpudeck.api.core import ConfigMap, Node, NodeSpec
from gpudeck.api.meta import ObjectMeta
from gpudeck.api.resources import CONFIG_MAP, NODE
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.watching import Change
from gpudeck.pluginconfig import keeping, selecting, telling
from gpudeck.pluginconfig.settings import ConfigSettings, choices

log = logs.get(__name__)


class Following:
    """Tells `show` the config that holds; `run` must run, and the cache's too (`own_node`)."""

    def __init__(
        self,
        settings: ConfigSettings,
        api: Client,
        show: telling.Show,
        *,
        nodes: Cache[Node],
        state: keeping.State | None = None,
    ) -> None:
        choices(settings)
        self._settings = settings
        self._told = telling.Telling(show)
        self._state = state
        self._nodes = nodes
        self._namespace = settings.namespace or api.namespace
        self._maps = [
            Cache(
                api,
                CONFIG_MAP,
                ConfigMap,
                namespace=self._namespace,
                field_selector=f"metadata.name={name}",
            )
            for name in settings.config_maps
        ]

    async def run(self) -> None:
        """Follow, for ever."""
        restored = await self._state.restore() if self._state is not None else None
        if restored is not None:
            log.info("The config of the last run holds at first", config=restored.name or "none")
            self._told.use(restored)
        async with asyncio.TaskGroup() as group:
            for cache in self._maps:
                group.create_task(cache.run(), name="config map")
            group.create_task(self._follow(), name="config")

    async def _follow(self) -> None:
        wake = asyncio.Event()

        def woken(_change: Change[Node] | Change[ConfigMap]) -> None:
            wake.set()

        await self._nodes.synced()
        self._nodes.subscribe(woken)
        for cache in self._maps:
            await cache.synced()
            cache.subscribe(woken)
        wake.set()
        while True:
            await wake.wait()
            wake.clear()
            node = self._nodes.objects.get(self._settings.node_name)
            if node is None:
                continue  # A Node that is not there chooses nothing: what holds stays.
            wanted = choices(self._settings, node.metadata.labels)
            selected = await asyncio.to_thread(  # A long config takes long to read.
                selecting.select,
                self._configs(),
                wanted,
                self._told.selected,
                absent=self._absent(),
            )
            self._told.use(selected)
            if self._state is not None:
                await self._state.save(selected)

    def _configs(self) -> Mapping[str, str]:
        configs: dict[str, str] = {}
        for cache in self._maps:
            for each in cache.objects.values():
                configs |= each.data or {}
        return configs

    def _absent(self) -> Sequence[str]:
        """The ConfigMap that the administrator named, if it is not there."""
        name = self._settings.config_map
        return (f"{self._namespace}/{name}",) if name and not self._maps[0].objects else ()


def own_node(api: Client, name: str) -> Cache[Node]:
    """The Node of this process with its labels and the taint of a change of its mode alone.

    Reports of its state wake nobody so.
    """
    return Cache(api, NODE, Node, field_selector=f"metadata.name={name}", keep=_trimmed)


def is_made(change: Change[Node]) -> bool:
    """Whether the Node has come, perhaps in the place of another: what was said of that is gone."""
    new, old = change.new, change.old
    return new is not None and (old is None or old.metadata.uid != new.metadata.uid)


def mode(node: Node | None) -> str | None:
    """The mode in force; "" where nobody speaks of modes, None while one follows the other."""
    found = (node.metadata.labels or {}) if node is not None else {}
    is_changing = node is not None and node.spec is not None and bool(node.spec.taints)
    return found.get(labels.ACTIVE_MODE, None if is_changing else "")


def _trimmed(node: Node) -> Node:
    found = node.metadata
    taints = (node.spec.taints if node.spec is not None else None) or ()
    return Node(
        metadata=ObjectMeta(name=found.name, uid=found.uid, labels=found.labels),
        spec=NodeSpec(taints=[each for each in taints if each.key == labels.MODE_CHANGE]),
    )
