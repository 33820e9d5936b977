# SPDX-License-Identifier: Apache-2.0
"""The process gfd: watches the cards by a library process, and keeps the node's labels.

The process keeps no state. It may be killed at any instruction: what it has written stays,
and the next one writes what holds then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from gpudeck.gfd import configuring, keeping, options, publishing, watching
from gpudeck.gfd.settings import Settings
from gpudeck.host.root import Root
from gpudeck.pluginconfig import model
from gpudeck.vendors import calling, contract, registry, supervisor

_SHORTEST_PAUSE_SECONDS = 0.5

Task = Coroutine[Any, Any, object]
Choose = Callable[[Callable[[options.Options], None]], Task]
"""Follows the config for ever, and tells of each that holds."""


async def run(settings: Settings) -> None:
    """Run until cancelled, or once. Raises GpudeckError for settings that cannot work."""
    file = configuring.File(settings)
    chosen = file.read()
    root = Root(settings.host_root, on_node=settings.host_root_on_node)
    async with _outside(settings, chosen, file) as (sink, choose, serve):
        labels = keeping.Labels(settings, sink, chosen)
        cards = _supervisor(settings, labels)
        if chosen.oneshot:
            await _once(labels, [cards.run(), choose(labels.choose)])
            return
        looking = watching.watch(
            root, cards.again, seconds=settings.look_seconds, longest=labels.longest_unread
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(cards.run(), name="cards")
                group.create_task(labels.run(), name="labels")
                group.create_task(choose(labels.choose), name="config")
                group.create_task(looking, name="looking")
                group.create_task(serve(), name="serving")
        finally:
            await sink.close()


@contextlib.asynccontextmanager
async def _outside(
    settings: Settings, chosen: options.Options, file: configuring.File
) -> AsyncIterator[tuple[publishing.Sink, Choose, Callable[[], Task]]]:
    """Where the labels go, where the config comes from, and what serves probes and metrics."""
    root = Root(settings.host_root, on_node=settings.host_root_on_node)
    sink: publishing.Sink = publishing.File(root, chosen.output_file)
    wants_ports = settings.metrics_port or settings.health_port
    # The API server's client is a third of the process: a node that needs none does without.
    if not chosen.use_node_feature_api and not settings.config_map and not wants_ports:
        yield sink, file.watch, asyncio.Event().wait
        return
    from gpudeck.gfd import serving  # noqa: PLC0415

    async with serving.connected(settings) as connected:
        if chosen.use_node_feature_api:
            sink = connected.sink()

        def follow(show: Callable[[options.Options], None]) -> Task:
            def use(config: model.Config) -> None:
                show(options.merged(settings, config))

            return connected.choose(use)

        yield sink, follow if settings.config_map else file.watch, connected.serve


async def _once(labels: keeping.Labels, sources: list[Task]) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in sources]
        await labels.once()
        for task in tasks:
            task.cancel()


def _supervisor(settings: Settings, labels: keeping.Labels) -> supervisor.Supervisor:
    places = contract.VendorSettings(
        host_root=str(settings.host_root), host_root_on_node=settings.host_root_on_node
    )
    program = calling.Program(vendor=settings.vendor, settings=places, log_level=settings.log_level)
    timing = supervisor.Timing(poll=settings.poll_seconds, shortest_pause=_SHORTEST_PAUSE_SECONDS)
    vendor = registry.load(settings.vendor).vendor(places)
    return supervisor.Supervisor(vendor, program, labels.take, timing=timing)
