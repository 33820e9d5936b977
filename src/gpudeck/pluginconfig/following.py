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
from gpudeck.api.core import ConfigMap
from gpudeck.api.meta import Meta, ObjectMeta
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
        nodes: Cache[Meta],
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

        def woken(_change: Change[Meta] | Change[ConfigMap]) -> None:
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


def own_node(api: Client, name: str) -> Cache[Meta]:
    """The Node of this process with its labels alone, so that reports of its state wake nobody."""
    return Cache(api, NODE, Meta, field_selector=f"metadata.name={name}", keep=_trimmed)


def is_made(change: Change[Meta]) -> bool:
    """Whether the Node has come, perhaps in the place of another: what was said of that is gone."""
    new, old = change.new, change.old
    return new is not None and (old is None or old.metadata.uid != new.metadata.uid)


def _trimmed(node: Meta) -> Meta:
    found = node.metadata
    return Meta(metadata=ObjectMeta(name=found.name, uid=found.uid, labels=found.labels))
