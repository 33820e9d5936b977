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

from gpudeck.gfd import keeping, options, publishing
from gpudeck.gfd.settings import Settings
from gpudeck.host.root import Root
from gpudeck.pluginconfig import filing
from gpudeck.pluginconfig import settings as configured
from gpudeck.vendors import calling, registry, supervisor

_SHORTEST_PAUSE_SECONDS = 0.5

Task = Coroutine[Any, Any, object]
Follow = Callable[[keeping.Labels], Task]
Serve = Callable[[Callable[[], str]], Task]
"""Serves the probes, whose answer the argument is."""


async def run(settings: Settings) -> None:
    """Run until cancelled, or once. Raises GpudeckError for settings that cannot work."""
    configured.check(settings)
    file = filing.File("" if settings.config_maps else settings.config_file)
    chosen = options.merged(settings, file.read().config)
    async with _outside(settings, chosen) as (sink, follow, serve):
        labels = keeping.Labels(settings, sink, chosen)
        cards = _supervisor(settings, labels)
        followed = [follow(labels)]
        if not settings.config_maps:
            followed.append(file.follow(labels.choose))
        if chosen.oneshot:
            await _once(labels, [cards.run(), *followed])
            return
        try:
            async with asyncio.TaskGroup() as group:
                for each in (cards.run(), labels.run(), *followed, serve(labels.hanging)):
                    group.create_task(each)
        finally:
            await sink.close()


@contextlib.asynccontextmanager
async def _outside(
    settings: Settings, chosen: options.Options
) -> AsyncIterator[tuple[publishing.Sink, Follow, Serve]]:
    """Where the labels go, what of the API server decides them, what serves probes and metrics."""
    root = Root(settings.host_root, on_node=settings.host_root_on_node)
    sink: publishing.Sink = publishing.File(root, chosen.output_file)
    needs_api = bool(keeping.followed(settings, chosen))
    # The API server's client is a third of the process: a node that needs none does without.
    if not needs_api and not settings.metrics_port and not settings.health_port:
        yield sink, _nothing, _nothing
        return
    from gpudeck.gfd import serving  # noqa: PLC0415 - as just said.

    async with serving.connected(settings) as connected:
        if chosen.use_node_feature_api:
            sink = connected.sink()
        yield sink, connected.follow if needs_api else _nothing, connected.serve


async def _nothing(_: object) -> None:
    """What is done without an API server."""


async def _once(labels: keeping.Labels, sources: list[Task]) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in sources]
        await labels.once()
        for task in tasks:
            task.cancel()


def _supervisor(settings: Settings, labels: keeping.Labels) -> supervisor.Supervisor:
    program = calling.program(settings)
    timing = supervisor.Timing(
        poll=settings.poll_seconds,
        changeable=settings.mig_seconds,
        shortest_pause=_SHORTEST_PAUSE_SECONDS,
        traces=settings.look_seconds,
    )
    vendor = registry.load(settings.vendor).vendor(program.settings)
    return supervisor.Supervisor(vendor, program, labels.take, timing=timing)
