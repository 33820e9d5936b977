# SPDX-License-Identifier: Apache-2.0
"""`gpudeck adapter <vendor>`: the process that serves one maker's cards of one node.

It may be killed at any instruction, and takes the processes it started with it. All that it
keeps is what the driver raised about cards (`vendors.remembering`).
"""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path

from gpudeck.adapter import containers, server
from gpudeck.adapter.settings import Settings
from gpudeck.host import root
from gpudeck.vendors import calling, heeding, registry, remembering, supervisor


async def run(settings: Settings) -> None:
    """Serve until cancelled. Raises what makes serving or watching impossible."""
    program = calling.program(settings)
    vendor = registry.load(settings.vendor).vendor(program.settings)
    feed = server.Feed()
    timing = supervisor.Timing(poll=settings.poll_seconds, read=settings.call_seconds)
    remembered = remembering.Remembering(root.Root(settings.host_root), vendor.name)
    watched = supervisor.Supervisor(
        vendor,
        program,
        feed.publish,
        timing=timing,
        remembered=remembered,
        heeded=heeding.of(settings),
    )
    async with asyncio.TaskGroup() as group:
        # When the process is told to end, this goes on until nobody is served any more.
        group.create_task(watched.run(), name="cards")
        adapter = server.Adapter(vendor, feed, watched.act, holding=_holding(settings))
        async with server.serving(adapter, settings.socket):
            await asyncio.Event().wait()


def _holding(settings: Settings) -> server.Holding | None:
    if not settings.runtime_socket:
        return None
    return functools.partial(containers.cdi_devices, Path(settings.runtime_socket))
