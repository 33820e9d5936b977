# SPDX-License-Identifier: Apache-2.0
"""`gpudeck adapter <vendor>`: the process that serves one maker's cards of one node.

The process keeps no state; it may be killed at any instruction, and takes the processes
it started with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal

from gpudeck import errors, logs
from gpudeck.adapter import server
from gpudeck.adapter import settings as adapter_settings
from gpudeck.vendors import calling, contract, registry, supervisor

log = logs.get(__name__)


def run(settings: adapter_settings.AdapterSettings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    logs.configure(settings.log_level)
    try:
        asyncio.run(_serve(settings))
    except errors.GpudeckError as error:
        log.error("Adapter ends", reason=error.reason, why=error.message)
        return 1
    return 0


async def _serve(settings: adapter_settings.AdapterSettings) -> None:
    places = contract.VendorSettings(
        host_root=str(settings.host_root), host_root_on_node=settings.host_root_on_node
    )
    program = calling.Program(vendor=settings.vendor, settings=places, log_level=settings.log_level)
    vendor = registry.load(settings.vendor).vendor(places)
    feed = server.Feed()
    timing = supervisor.Timing(poll=settings.poll_seconds, read=settings.call_seconds)
    watched = supervisor.Supervisor(vendor, program, feed.publish, timing=timing)
    watching = asyncio.create_task(watched.run())
    try:
        async with server.serving(server.Adapter(vendor, feed), settings.socket):
            await asyncio.wait({watching, _stop_signal()}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()  # It ends by an error alone, and the process with it.
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError, errors.GpudeckError):
            await watching


def _stop_signal() -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopped
