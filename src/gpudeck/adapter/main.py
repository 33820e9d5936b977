# SPDX-License-Identifier: Apache-2.0
"""`gpudeck adapter <vendor>`: the process that serves one maker's cards of one node.

The order matters: the zygote is forked before gRPC is imported, because gRPC starts
threads and a process with threads cannot fork safely. The process keeps no state; it may
be killed at any instruction.
"""

from __future__ import annotations

import asyncio
import signal

from gpudeck import errors, logs
from gpudeck.adapter import settings as adapter_settings
from gpudeck.vendors import contract, registry, supervisor, zygote

log = logs.get(__name__)


def run(settings: adapter_settings.AdapterSettings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    logs.configure(settings.log_level)
    places = contract.VendorSettings(
        host_root=str(settings.host_root), host_root_on_node=settings.host_root_on_node
    )
    try:
        forks = zygote.Zygote.start(settings.vendor, places)
        return asyncio.run(_serve(settings, places, forks))
    except errors.GpudeckError as error:
        log.error("Adapter ends", reason=error.reason, why=error.message)
        return 1


async def _serve(
    settings: adapter_settings.AdapterSettings,
    places: contract.VendorSettings,
    forks: zygote.Zygote,
) -> int:
    from gpudeck.adapter import server  # noqa: PLC0415 - imports gRPC: not before the fork.

    vendor = registry.load(settings.vendor).vendor(places)
    feed = server.Feed()
    timing = supervisor.Timing(poll=settings.poll_seconds, read=settings.call_seconds)
    watched = supervisor.Supervisor(vendor, forks, feed.publish, timing=timing)
    watching = asyncio.create_task(watched.run())
    stopped = _stop_signal()
    async with server.serving(server.Adapter(vendor, feed), settings.socket):
        await asyncio.wait({watching, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        watching.result()  # It ends by an error alone, and the process with it.
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    forks.close()
    return 0


def _stop_signal() -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopped
