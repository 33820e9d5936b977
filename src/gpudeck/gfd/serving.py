# SPDX-License-Identifier: Apache-2.0
"""The parts of the process gfd that need the API server's client, loaded where it is used only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gpudeck import errors
from gpudeck.gfd import choosing, metrics, nodefeatures
from gpudeck.gfd.settings import Settings
from gpudeck.host import certificates
from gpudeck.kube import reviewing, serving
from gpudeck.kube.client import Client


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

    async def choose(self, show: choosing.Show) -> None:
        """Tell `show` the named config that holds on the node, for ever."""
        _check(self._settings)
        await choosing.Choosing(self._settings, self._api, show).run()

    async def serve(self) -> None:
        """Serve probes and metrics, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(serving.health(self._settings.health_port, lambda: ""), name="health")
            group.create_task(
                serving.metrics(
                    self._settings.metrics_port,
                    metrics.text,
                    guard=reviewing.Guard(self._api, "/metrics"),
                    certificate=certificates.self_signed,
                ),
                name="metrics",
            )


def _check(settings: Settings) -> None:
    if not settings.node_name:
        raise errors.InvalidError(
            "--node-name: '' is not valid; allowed: the name of this process's Node",
            field="--node-name",
            allowed="the name of this process's Node",
        )


@contextlib.asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Connected]:
    """Connect inside the block. Raises InvalidError where there is no access to be had."""
    async with await Client.connect(settings.kubeconfig) as api:
        yield Connected(settings, api)
