# SPDX-License-Identifier: Apache-2.0
"""The parts of the process gfd that need the API server's client, loaded where it is used only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from gpudeck import settings as shared
from gpudeck.api.core import Node
from gpudeck.gfd import keeping, metrics, nodefeatures
from gpudeck.gfd.settings import Settings
from gpudeck.host import certificates
from gpudeck.kube import serving
from gpudeck.kube.client import Client
from gpudeck.kube.watching import Change
from gpudeck.pluginconfig import following
from gpudeck.pluginconfig import keeping as keeping_config


class Connected:
    """The process with a client."""

    def __init__(self, settings: Settings, api: Client) -> None:
        self._settings = settings
        self._api = api

    def sink(self) -> nodefeatures.Object:
        """The NodeFeature of the node. Raises InvalidError without the name of one."""
        settings = self._settings
        _check(settings)
        return nodefeatures.Object(
            self._api, settings.node_name, namespace=settings.namespace, pod=settings.pod_name
        )

    async def follow(self, labels: keeping.Labels) -> None:
        """Tell of the mode of the node, and of the named config that holds on it, for ever."""
        settings = self._settings
        _check(settings)
        nodes = following.own_node(self._api, settings.node_name)
        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run(), name="node")
            if settings.config_maps:
                found = following.Following(
                    settings, self._api, labels.choose, nodes=nodes, state=self._state()
                )
                group.create_task(found.run(), name="config")
            await nodes.synced()

            def changed(change: Change[Node] | None = None) -> None:
                node = nodes.objects.get(settings.node_name)
                if change is not None and following.is_made(change):
                    labels.renew()  # What was written went with the Node before.
                labels.switch(following.mode(node))

            changed()
            nodes.subscribe(changed)

    def _state(self) -> keeping_config.State | None:
        path = self._settings.plugin_state
        return keeping_config.State(Path(path), is_read_only=True) if path else None

    async def serve(self, hanging: Callable[[], str]) -> None:
        """Serve metrics, and probes whose answer is `hanging`, for ever."""
        await serving.serve(
            self._settings,
            self._api,
            hanging=hanging,
            text=metrics.text,
            certificate=certificates.self_signed,
        )


def _check(settings: Settings) -> None:
    shared.check_node_name(settings)


@contextlib.asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Connected]:
    """Connect inside the block. Raises InvalidError where there is no access to be had."""
    async with await Client.connect(settings.kubeconfig) as api:
        yield Connected(settings, api)
